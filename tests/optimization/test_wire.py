"""Token log-probabilities over the wire: asked for in the request, read from a server's reply, kept in the cache."""

import datetime as dt
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dspy
import pytest

from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import make_lm
from pace_dspy.modules import Answerer
from pace_dspy.types import Candidate, Task

REPLY = ['{"response": "It can.", "cited": [1], "decision": "', "non", '_conflict"}']


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        top = [{"token": "non", "logprob": math.log(0.8), "bytes": None}, {"token": "con", "logprob": math.log(0.2)}]
        content = [
            {"token": text, "logprob": math.log(0.8), "top_logprobs": top if text == "non" else []} for text in REPLY
        ]
        choice = {"index": 0, "message": {"role": "assistant", "content": "".join(REPLY)}, "finish_reason": "stop"}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": content}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        reply = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.bodies = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def test_the_probability_of_the_decision_comes_back_and_is_cached(server, tmp_path):
    address = f"http://127.0.0.1:{server.server_port}/v1"
    environ = {"PACE_BASE_URL": address, "PACE_MODEL": "m"}
    lm = make_lm("openai-compatible", environ=environ, reply_cache=ReplyCache(tmp_path / "cache"))
    agent, task = Answerer(), Task("Book", dt.date(2026, 3, 18), "home")
    facts = [Candidate("a", "A fact.")]
    with dspy.context(lm=lm):
        plain = agent(task, facts)
        agent.measure = True
        measured, again = agent(task, facts), agent(task, facts)
        agent.threshold = 0.15
        strict = agent(task, facts)
    assert (plain.decision, plain.p_conflict) == ("non_conflict", None)
    assert measured.p_conflict == again.p_conflict == pytest.approx(0.2)
    assert measured.decision == "non_conflict"
    assert strict.decision == "conflict"
    assert strict.response == measured.response
    assert [body.get("logprobs") for body in server.bodies] == [None, True]
    assert server.bodies[1]["top_logprobs"] == 10
