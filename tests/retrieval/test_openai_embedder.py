"""The OpenAI-compatible embedder against a loopback server with scripted answers."""

import email.utils
import json
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from pace_dspy.errors import (
    AuthError,
    BackendError,
    BackendTimeoutError,
    BadRequestError,
    ConfigError,
    MissingKeyError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from pace_dspy.retrieval import OpenAICompatibleEmbedder, make_embedder

CANARY = "sk-canary-7f3a91"


class Server(ThreadingHTTPServer):
    """Answers with scripted ``(status, headers, body)`` first, then with vectors."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.requests, self.dim = [], [], 3
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, dict(self.headers), body))
        status, headers, reply = self.server.script.pop(0) if self.server.script else (200, {}, None)
        if reply is None:
            data = [{"index": n, "embedding": vector(text, self.server.dim)} for n, text in enumerate(body["input"])]
            reply = json.dumps({"data": data[::-1]})  # order is by "index", not by place
        payload = reply.encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(payload))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args):
        pass


def vector(text, dim):
    return [float(len(text)), 1.0, *[0.0] * (dim - 2)]


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("PACE_EMBEDDING_API_KEY", "OPENAI_API_KEY", "PACE_API_KEY", "PACE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def waits():
    return []


@pytest.fixture
def embedder(server, waits, monkeypatch):
    monkeypatch.setenv("PACE_EMBEDDING_API_KEY", CANARY)
    return OpenAICompatibleEmbedder("emb", server.url, batch_size=2, max_retries=2, sleep=waits.append)


def test_batches_order_and_length(server, embedder):
    texts = ["aaaa", "b", "cc", "ddd", ""]
    vectors = embedder.embed_documents(texts)
    expected = np.array([vector(text, 3) for text in texts])
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    assert vectors.dtype == np.float32
    assert [body["input"] for _, _, body in server.requests] == [["aaaa", "b"], ["cc", "ddd"], [""]]
    path, headers, body = server.requests[0]
    assert (path, body["model"], headers["Authorization"]) == ("/v1/embeddings", "emb", f"Bearer {CANARY}")


def test_dim_is_asked_once(server, embedder):
    assert (embedder.dim, embedder.dim) == (3, 3)
    assert len(server.requests) == 1
    assert embedder.embed_queries([]).shape == (0, 3)


def test_id_holds_no_key(server, embedder):
    assert embedder.id == f"openai:emb@{server.url}"


@pytest.mark.parametrize(("header", "expected"), [("2", 2.0), ("0.25", 0.25), ("", 0.5), ("soon", 0.5)])
def test_retry_after_seconds(header, expected, server, embedder, waits):
    server.script = [(429, {"Retry-After": header}, "{}")]
    assert embedder.embed_queries(["a"]).shape == (1, 3)
    assert waits == [expected]


def test_retry_after_date(server, embedder, waits):
    date = email.utils.formatdate(time.time() + 20, usegmt=True)
    server.script = [(429, {"Retry-After": date}, "{}")]
    embedder.embed_queries(["a"])
    assert 15 < waits[0] <= 20


def test_waits_double_without_retry_after(server, embedder, waits):
    server.script = [(500, {}, "{}"), (503, {}, "{}")]
    embedder.embed_queries(["a"])
    assert waits == [0.5, 1.0]


def test_a_wait_that_is_too_long_fails_at_once(server, embedder, waits):
    server.script = [(429, {"Retry-After": "3600"}, "slow down")]
    with pytest.raises(RateLimitError, match=r"backend openai-embeddings/emb: HTTP 429: slow down. .* wait 3600 s"):
        embedder.embed_queries(["a"])
    assert (waits, len(server.requests)) == ([], 1)


ECHO = json.dumps({"error": {"message": f"Incorrect API key provided: {CANARY}"}})


@pytest.mark.parametrize(
    ("status", "body", "error", "n_calls"),
    [
        (429, "busy " + ECHO, RateLimitError, 3),
        (429, '{"error": {"code": "insufficient_quota"}}' + ECHO, QuotaError, 1),
        (500, ECHO, ServerError, 3),
        (401, ECHO, AuthError, 1),
        (403, ECHO, AuthError, 1),
        (400, ECHO, BadRequestError, 1),
        (404, ECHO, BadRequestError, 1),
        (302, ECHO, BackendError, 1),
    ],
)
def test_failures_are_typed_and_hold_no_key(status, body, error, n_calls, server, embedder):
    server.script = [(status, {}, body)] * n_calls
    with pytest.raises(error, match=f"HTTP {status}") as caught:
        embedder.embed_queries(["a"])
    assert type(caught.value) is error
    assert len(server.requests) == n_calls
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__) + repr(embedder)
    assert CANARY not in text


def test_no_server(waits):
    embedder = OpenAICompatibleEmbedder("emb", "http://127.0.0.1:9/v1", max_retries=1, sleep=waits.append)
    with pytest.raises(BackendTimeoutError, match=r"no answer from http://127.0.0.1:9/v1 \(ConnectError\)"):
        embedder.embed_queries(["a"])
    assert waits == [0.5]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("not json", "the reply is not a list of vectors of one length"),
        ("[]", "the reply is not a list of vectors of one length"),
        ('{"data": [{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [1]}]}', "vectors of one length"),
        ('{"data": [{"index": 0, "embedding": [1, 2, 3]}]}', "the reply holds 1 vectors for 2 texts"),
        ('{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}', "repeats an index"),
        ('{"data": [{"index": 0, "embedding": [1, NaN]}, {"index": 1, "embedding": [1, 1]}]}', "finite vectors"),
        ('{"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}]}', "finite vectors"),
        ('{"data": [{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": "AAAA"}]}', "not a list of vectors"),
    ],
)
def test_unusable_replies(reply, message, server, embedder):
    server.script = [(200, {}, reply)]
    with pytest.raises(BackendError, match=message) as caught:
        embedder.embed_queries(["a", "b"])
    assert "Check that the address is an embeddings endpoint" in str(caught.value)


def test_another_length_than_before(server, embedder):
    embedder.embed_queries(["a"])
    server.dim = 5
    with pytest.raises(BackendError, match="the reply has vectors of length 5, not 3"):
        embedder.embed_queries(["a"])


def test_no_key_no_header(server):
    make_embedder(f"openai:emb@{server.url}").embed_queries(["a"])
    assert "Authorization" not in server.requests[0][1]


def test_keys_go_only_where_they_belong(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("PACE_API_KEY", "sk-pace")
    make_embedder(f"openai:emb@{server.url}").embed_queries(["a"])
    monkeypatch.setenv("PACE_BASE_URL", server.url + "/")
    make_embedder(f"openai:emb@{server.url}").embed_queries(["a"])
    assert "Authorization" not in server.requests[0][1]
    assert server.requests[1][1]["Authorization"] == "Bearer sk-pace"


def test_openai_itself_needs_a_key(monkeypatch):
    with pytest.raises(MissingKeyError, match="neither PACE_EMBEDDING_API_KEY nor OPENAI_API_KEY is set"):
        make_embedder("openai:text-embedding-3-small")
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    assert make_embedder("openai:emb").id == "openai:emb@https://api.openai.com/v1"


def test_a_key_with_a_line_break_is_not_shown(monkeypatch):
    monkeypatch.setenv("PACE_EMBEDDING_API_KEY", f"{CANARY}\nx")
    with pytest.raises(ConfigError, match="the key in PACE_EMBEDDING_API_KEY holds a space, line break") as caught:
        make_embedder("openai:emb@http://127.0.0.1:9/v1")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["localhost:1/v1", "ftp://host/v1", "http://", "http:///v1", "http://[::1", "http://h:abc/v1"]
)
def test_addresses_that_are_none(url):
    with pytest.raises(ConfigError, match=r"^embedding server: base_url='.*; use one like http://localhost:8000/v1$"):
        make_embedder(f"openai:emb@{url}")


@pytest.mark.parametrize("url", [f"http://me:{CANARY}@host/v1", f"http://host/v1?key={CANARY}"])
def test_addresses_with_a_secret(url):
    with pytest.raises(ConfigError, match="must hold no user, password or query") as caught:
        OpenAICompatibleEmbedder("emb", url)
    assert CANARY not in str(caught.value)
