"""A scripted OpenAI-compatible server on the loopback that misbehaves on demand, and counts what it is asked."""

import http.server
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

CANARY = "sk-canary-4711-never-show-me"
MODEL = "scripted-model"
STAGES = {
    "cues": "planner",
    "queries": "views",
    "keep": "pre_filter",
    "selected": "post_filter",
    "response": "answerer",
}
GOOD = {
    "planner": {"cues": [{"direction": "time", "why": "another plan", "anchors": ["Friday"]}]},
    "views": {"queries": ["other plans on Friday", "who is vegan"]},
    "pre_filter": {"keep": [1, 2, 3]},
    "post_filter": {"selected": [2, 1]},
    "answerer": {"response": "It can be done. Nothing stands against it.", "cited": [1], "decision": "non_conflict"},
}
DRAFT = json.dumps({"response": "A draft.", "cited": [], "decision": "conflict"})


@dataclass
class Act:
    """What the server does with one request."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    cut_connection: bool = False


def chat(content: str | None, finish: str | None = "stop", **message: Any) -> Act:
    """A chat completion."""
    return Act(
        {
            "id": "1",
            "object": "chat.completion",
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish,
                    "message": {"role": "assistant", "content": content, **message},
                }
            ],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }
    )


def error(status: int, message: str, *, headers: dict[str, str] | None = None, **fields: Any) -> Act:
    """An error in OpenAI's envelope; every message echoes the key, as some servers do."""
    text = f"{message} (request of key {CANARY})"
    return Act(
        {"error": {"message": text, "type": "error", "param": None, "code": None, **fields}}, status, headers or {}
    )


def good(stage: str) -> Act:
    """The reply of a model that does well."""
    return chat(json.dumps(GOOD[stage]))


def html(status: int) -> Act:
    """A gateway's page."""
    page = f"<!DOCTYPE html><html><head><title>Gateway trouble</title></head><body>{CANARY}</body></html>"
    return Act(page, status, {"Content-Type": "text/html"})


class MisbehavingServer:
    """Plays acts by stage; well-behaved once a stage's acts are used up.

    Args:
        acts: Stage -> acts in order, or one act for ever.
        models: Entries of ``/v1/models``; ``None`` answers 404 there.
        delay_s: Latency of every reply.
    """

    def __init__(self, acts=None, *, models=({"id": MODEL},), delay_s=0.0, well=good, root="/v1"):
        self.acts = {stage: [act] if isinstance(act, Act) else list(act) for stage, act in (acts or {}).items()}
        self.forever = {stage for stage, act in (acts or {}).items() if isinstance(act, Act)}
        self.models, self.delay_s, self.well, self.root = models, delay_s, well, root
        self.calls, self.bodies, self.gets = Counter(), [], []
        self.open, self.most_open = 0, 0
        self.lock = threading.Lock()
        self.quitting = threading.Event()

    def __enter__(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True

            def log_message(self, *args):
                pass

            def do_GET(self):
                outer.gets.append(self.path)
                if outer.models is None or self.path != f"{outer.root}/models":
                    self.send(error(404, "Not Found"))
                elif isinstance(outer.models, Act):
                    self.send(outer.models)
                else:
                    self.send(Act({"object": "list", "data": list(outer.models)}))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send(outer.act(self.path, self.headers, body))
                with outer.lock:
                    outer.open -= bool(body)

            def send(self, act):
                outer.quitting.wait(act.delay_s)
                data = act.body if isinstance(act.body, bytes) else None
                if data is None:
                    data = (act.body if isinstance(act.body, str) else json.dumps(act.body)).encode()
                try:
                    self.send_response(act.status)
                    for name, value in {"Content-Type": "application/json", **act.headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    if act.cut_connection:
                        self.wfile.write(data[: len(data) // 2])
                        self.close_connection = True
                    elif act.drip_s:
                        for byte in data:
                            self.wfile.write(bytes([byte]))
                            self.wfile.flush()
                            if outer.quitting.wait(act.drip_s):
                                return
                    else:
                        self.wfile.write(data)
                    self.wfile.flush()
                except OSError:
                    self.close_connection = True

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                pass

        self.http = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self.http.server_port}{self.root}"
        return self

    def __exit__(self, *_):
        self.quitting.set()
        self.http.shutdown()
        self.http.server_close()

    def act(self, path, headers, body):
        if not body:
            return error(400 if path == f"{self.root}/chat/completions" else 404, "no messages")
        fixed = body["messages"][0]["content"]
        stage = next((stage for name, stage in STAGES.items() if f'"{name}":' in fixed), "other")
        with self.lock:
            self.calls[stage] += 1
            self.bodies.append((stage, headers, body))
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            acts = self.acts.get(stage, [])
            act = (acts[0] if stage in self.forever else acts.pop(0)) if acts else None
        time.sleep(self.delay_s)
        if path != f"{self.root}/chat/completions":
            return error(404, "Not Found")
        return act or self.well(stage)

    @property
    def posts(self):
        """Number of requests for a reply."""
        return sum(self.calls.values())
