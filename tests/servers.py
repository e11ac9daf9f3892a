"""A scripted OpenAI-compatible loopback server: answers by stage, embeds by hash, logs every request, fails on cue.

It is a thread of the test process, so that processes under test can be killed while it goes on and remembers.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hash_embedder import HashEmbedder

from pace_dspy import signatures

STAGES = {
    signatures.PlanProbes: "planner",
    signatures.WriteCounterViews: "views",
    signatures.SelectSeeds: "pre_filter",
    signatures.LookAgain: "second_look",
    signatures.SelectEvidence: "post_filter",
    signatures.DecideRequest: "answerer",
    signatures.SearchNotes: "react",
    signatures.JudgeResponse: "judge",
}
FIRST_LINES = {signature.instructions.splitlines()[0]: stage for signature, stage in STAGES.items()}
REPLIES = {
    "planner": {"cues": [{"direction": "time", "why": "another plan", "anchors": []}]},
    "views": {"queries": ["other plans on that day", "who cannot come"]},
    "pre_filter": {"keep": [1, 2, 3, 4, 5]},
    "second_look": {"useful": [1, 2], "missing": []},
    "post_filter": {"selected": [2, 1]},
    "answerer": {"response": "It can be done. Nothing stands against it.", "cited": [1], "decision": "non_conflict"},
    "react": {"next_thought": "enough", "next_tool_name": "finish", "next_tool_args": {}},
    "judge": {"reason": "the same", "verdict": "PASS"},
}
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@dataclass
class Fault:
    """What happens instead of an answer.

    Attributes:
        status: HTTP status of an error; 0 for none.
        retry_after: The header's value.
        hang_s: Seconds before anything is sent.
        message: The error's text.
    """

    status: int = 0
    retry_after: str | None = None
    hang_s: float = 0.0
    message: str = ""


@dataclass
class Call:
    """One chat request as the server saw it; ``words`` counts those of all its messages."""

    at: float
    stage: str | None
    request: str
    status: int = 0
    answered_at: float = 0.0
    words: int = 0


@dataclass
class LoopbackServer:
    """Use as a context manager.

    Attributes:
        delay_s: Seconds every chat answer takes.
        fault: Called with each chat request; returns what goes wrong, ``None`` for an answer.
        replies: Reply by stage, or a function of the `Call`.
        usage: Returns the tokens that an answer reports.
        calls: All chat requests, in order.
        embedded: Number of texts embedded.
    """

    delay_s: float = 0.0
    fault: Callable[[Call], Fault | None] = lambda call: None
    replies: dict = field(default_factory=lambda: dict(REPLIES))
    usage: Callable[[Call], dict] = lambda call: USAGE
    calls: list[Call] = field(default_factory=list)
    embedded: int = 0

    def __enter__(self):
        self.lock = threading.Lock()
        self.embedder = HashEmbedder()
        handler = type("Handler", (_Handler,), {"owner": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.handle_error = lambda *_: None  # a killed process leaves its connections
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def requests(self, stage=None, since=0):
        """The request texts asked about, from call number ``since`` on."""
        return [call.request for call in self.calls[since:] if stage in (None, call.stage)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: LoopbackServer

    def do_GET(self):
        models = [{"id": "scripted", "object": "model", "max_model_len": 8192}]
        self.send(200, {"object": "list", "data": models})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/embeddings"):
            return self.embeddings(body)
        words = sum(len(str(message["content"]).split()) for message in body["messages"])
        call = Call(time.monotonic(), stage_of(body), section(body, "request"), words=words)
        with self.owner.lock:
            self.owner.calls.append(call)
            fault = self.owner.fault(call)
        time.sleep(self.owner.delay_s + (fault.hang_s if fault else 0.0))
        if fault and fault.status:
            call.status, call.answered_at = fault.status, time.monotonic()
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            return self.send(fault.status, {"error": {"message": fault.message or f"scripted {fault.status}"}}, headers)
        reply = self.owner.replies.get(call.stage)
        content = json.dumps(reply(call) if callable(reply) else reply)
        call.status, call.answered_at = 200, time.monotonic()
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        return self.send(200, {**answer, "usage": self.owner.usage(call)})

    def embeddings(self, body):
        vectors = self.owner.embedder.embed_documents(body["input"])
        with self.owner.lock:
            self.owner.embedded += len(vectors)
        data = [{"index": n, "embedding": [float(x) for x in row]} for n, row in enumerate(vectors)]
        self.send(200, {"data": data, "model": body["model"]})

    def send(self, status, body, headers=None):
        payload = json.dumps(body).encode()
        try:
            self.send_response(status)
            fixed = {"Content-Type": "application/json", "Content-Length": str(len(payload))}
            for name, value in {**fixed, **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the process that asked was killed

    def log_message(self, *args):
        pass


def stage_of(body):
    """The stage that asks, by the first line of the system prompt."""
    system = next((m["content"] for m in body["messages"] if m["role"] in ("system", "developer")), "")
    return FIRST_LINES.get(system.splitlines()[0] if system else "")


def section(body, name):
    """A section of the user prompt, as `PaceAdapter` writes it; without the judge's quote marks."""
    for message in body["messages"]:
        _, found, rest = str(message["content"]).partition(f"[{name}]\n")
        if found and message["role"] == "user":
            return rest.split("\n\n[")[0].strip().removeprefix("> ")
    return ""


def write_release(root, *, cases=3, requests=8, facts=30):
    """Write a dataset in the JSON release layout whose request texts are all different; returns its folder."""
    timeline = {"window_start": "2026-01-01", "ref_date": "2026-03-18", "window_end": "2026-06-30"}
    for case in range(cases):
        name = f"p{case}"
        corpus = [
            {"doc_id": f"{name}f{n}", "text": f"Persona {case} meets guest {n} at place {n % 5} on Friday."}
            for n in range(facts)
        ]
        asked = [
            {
                "query_id": f"q{n:03}",
                "query": f"Invite guest {n} of persona {case} to dinner number {n}.",
                "label": "conflict" if n % 2 else "non_conflict",
                "situation_type": ("temporal", "personal", "state")[n % 3],
                "gold_doc_ids": [f"{name}f{n}"],
                "judgment": f"Guest {n} is met at place {n % 5}.",
            }
            for n in range(requests)
        ]
        folder = root / "kb" / name
        folder.mkdir(parents=True)
        (folder / "corpus.json").write_text(json.dumps({"timeline": timeline, "corpus": corpus}))
        (folder / "queries.json").write_text(json.dumps({"timeline": timeline, "queries": asked}))
        profile = root / "profile" / f"{name}.json"
        profile.parent.mkdir(exist_ok=True)
        profile.write_text(json.dumps({"spec": {"demographic": {"full_name": f"Persona {case}"}}}))
    return root
