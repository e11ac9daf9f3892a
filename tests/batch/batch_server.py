"""A scripted Batch service on the loopback: files, batches, a model behind them; it echoes the key wherever it can."""

import json
import re
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rounds import answered

CANARY = "sk-canary-4711-never-show-me"


class BatchServer:
    """Use as a context manager.

    Attributes:
        states: What ``GET /batches/ID`` says, in order; the last one for ever.
        fail: Path -> (status, error) instead of an answer.
        raw: Path -> bytes sent with status 200 instead of an answer.
        refused: Numbers of the prompts (from 0) that end in the error file.
        calls: (method, path) of all requests.
        files: Content by file id.
    """

    def __init__(self, states=("completed",), *, fail=None, refused=(), raw=None):
        self.raw = dict(raw or {})
        self.states, self.fail, self.refused = list(states), dict(fail or {}), set(refused)
        self.calls, self.files, self.batches, self.keys = [], {}, {}, set()

    def __enter__(self):
        handler = type("Handler", (_Handler,), {"owner": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
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

    def state(self, batch):
        status = self.states[0] if len(self.states) == 1 else self.states.pop(0)
        requests = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        batch = {**batch, "status": status}
        if status in ("completed", "expired", "cancelled"):
            good = [answered(request) for n, request in enumerate(requests) if n not in self.refused]
            bad = [refusal(request) for n, request in enumerate(requests) if n in self.refused]
            for name, lines in (("output_file_id", good), ("error_file_id", bad)):
                if lines:
                    batch[name] = f"{name}-{batch['id']}"
                    self.files[batch[name]] = "\n".join(json.dumps(line) for line in lines).encode()
            batch["request_counts"] = {"completed": len(good), "failed": len(bad), "total": len(requests)}
        if status == "failed":
            problem = {"code": "x", "line": 3, "message": f"no such model (key {CANARY})", "param": None}
            batch["errors"] = {"object": "list", "data": [problem]}
        return batch


def refusal(request):
    error = {"error": {"message": "please no", "type": "invalid_request_error", "param": None, "code": None}}
    response = {"status_code": 400, "request_id": "r", "body": error}
    return {"id": "e", "custom_id": request["custom_id"], "response": response, "error": None}


class _Handler(BaseHTTPRequestHandler):
    owner: BatchServer

    def do_GET(self):
        self.serve("GET")

    def do_POST(self):
        self.serve("POST")

    def serve(self, method):
        owner, path = self.owner, self.path.removeprefix("/v1")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        owner.calls.append((method, path))
        owner.keys.add(self.headers["Authorization"])
        for wanted, (status, message) in owner.fail.items():
            if re.fullmatch(wanted, f"{method} {path}"):
                error = {"message": f"{message} (key {CANARY})", "type": "error", "param": None, "code": None}
                return self.send(status, {"error": error})
        if f"{method} {path}" in owner.raw:
            return self.send(200, owner.raw[f"{method} {path}"])
        if path == "/files":
            name = f"file-{len(owner.files)}"
            owner.files[name] = uploaded(self.headers["Content-Type"], body)
            return self.send(200, {"id": name, "object": "file", "bytes": 1, "created_at": 0, "filename": "f"})
        if path == "/batches":
            asked = json.loads(body)
            batch = {"id": f"batch_{len(owner.batches)}", "object": "batch", "created_at": 0, "status": "validating"}
            owner.batches[batch["id"]] = batch | asked
            return self.send(200, batch | asked)
        if found := re.fullmatch(r"/batches/(\w+)", path):
            return self.send(200, owner.state(owner.batches[found[1]]))
        if found := re.fullmatch(r"/files/([\w-]+)/content", path):
            return self.send(200, owner.files[found[1]])
        return self.send(404, {"error": {"message": "nothing here"}})

    def send(self, status, body):
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args):
        pass


def uploaded(content_type, body):
    """The content of the part ``file`` of an upload; the purpose must be ``batch``."""
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    parts = {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
        for part in message.iter_parts()
    }
    assert parts["purpose"].strip() == b"batch"
    return parts["file"]
