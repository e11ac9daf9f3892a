"""The road without a batch service: ``experiments/answer_batch.py`` on a scripted server, stopped and continued."""

import json
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest
from rounds import MODEL, requests_of, rows_of, said_rounds, what_counts
from scripted import scripted_lm
from servers import Fault, LoopbackServer

from pace_dspy.backends.lm import make_lm
from pace_dspy.backends.local_server import LocalServer
from pace_dspy.batch import answering
from pace_dspy.batch.answering import Prompt, answer_one, answer_round
from pace_dspy.batch.files import last_round
from pace_dspy.batch.lines import Failure, outcome_of
from pace_dspy.errors import ConfigError

SCRIPT = Path(__file__).parents[2] / "experiments" / "answer_batch.py"
CANARY = "sk-canary-4711-never-show-me"
COMPATIBLE = ("--set", "like=openai-compatible", "--set", "model=scripted")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(answering, "sleep", lambda _: None)
    with LoopbackServer() as running:
        monkeypatch.setenv("PACE_BASE_URL", running.url)
        monkeypatch.setenv("PACE_MODEL", "scripted")
        monkeypatch.setenv("PACE_API_KEY", CANARY)
        yield running


@pytest.fixture
def script(monkeypatch, capsys):
    def start(*arguments):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return ended.value.code or 0, " ".join(capsys.readouterr().err.split())

    return start


def test_a_run_answered_prompt_by_prompt_is_the_direct_run(run, script, server, tmp_path):
    code, _, err = run("--no-cache", limit=3, backend="openai-compatible", out="direct")
    assert code == 0, err
    asked = len(server.calls)
    for number in range(1, 6):
        code, out, err = run(*COMPATIBLE, limit=3)
        assert (code, said_rounds(out)) == (0, [number]), err
        code, err = script(tmp_path / "r", "--backend", "openai-compatible")
        assert (code, "3 of 3 answered" in err) == (0, True), err
    code, out, err = run(*COMPATIBLE, limit=3)
    assert (code, said_rounds(out)) == (0, []), err
    assert len(server.calls) == 2 * asked
    rows, direct = rows_of(tmp_path / "r"), rows_of(tmp_path / "direct")
    assert {name: what_counts(row) for name, row in rows.items()} == {
        name: what_counts(row) for name, row in direct.items()
    }
    assert script(tmp_path / "r", "--backend", "openai-compatible")[0] == 3
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def test_a_stopped_start_continues_and_asks_nothing_twice(run, script, server, tmp_path):
    run(*COMPATIBLE, limit=6)
    server.fault = lambda call: Fault(401) if len(server.calls) > 3 else None
    code, err = script(tmp_path / "r", "--backend", "openai-compatible", "--concurrency", 1)
    assert code == 1
    assert "HTTP 401: scripted 401. Check the key; start again to continue" in err
    its = last_round(tmp_path / "r")
    partial = its.responses.with_name(its.responses.name + ".partial")
    assert (its.responses.exists(), len(partial.read_text().splitlines())) == (False, 3)
    assert run(*COMPATIBLE, limit=6)[0] == 0  # it waits
    with partial.open("a") as file:
        file.write('{"custom_id": "pace-cut')
    server.fault = lambda call: None
    before = len(server.calls)
    code, err = script(tmp_path / "r", "--backend", "openai-compatible")
    assert (code, len(server.calls) - before) == (0, 3), err
    assert [json.loads(line)["custom_id"] for line in its.responses.read_text().splitlines()] == [
        request["custom_id"] for request in requests_of(tmp_path / "r")
    ]
    assert not partial.exists()


def test_failures_are_tried_again_then_left_to_the_next_round(run, script, server, tmp_path):
    run(*COMPATIBLE, limit=2)
    bad = requests_of(tmp_path / "r")[0]["body"]["messages"][-1]["content"]
    server.fault = lambda call: Fault(500, retry_after="0") if call.request in bad else None
    code, err = script(tmp_path / "r", "--backend", "openai-compatible", "--set", "num_retries=2")
    assert (code, "1 of 2 answered" in err) == (0, True), err
    assert len(server.calls) == 4
    code, out, _ = run(*COMPATIBLE, limit=2)
    assert code == 0
    assert "round 1: 1 of 2 prompts answered; failed: 1 HTTP 500; asked again: 1" in out


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault(500, retry_after="0"), "0 of 1 answered in"),
        (Fault(400), "failed: 1 BadRequestError"),
    ],
)
def test_a_server_that_answers_no_prompt_is_told_by_the_exit_status(run, script, server, tmp_path, fault, told):
    run(*COMPATIBLE, limit=1)
    server.fault = lambda call: fault
    code, err = script(tmp_path / "r", "--backend", "openai-compatible", "--set", "num_retries=0")
    assert (code, "0 of 1 answered in" in err, told in err) == (1, True, True), err
    code, out, _ = run(*COMPATIBLE, limit=1)
    assert ("not asked again" in out, code) == ((True, 1) if fault.status == 400 else (False, 0)), out
    assert ("to have a round answered again, delete its" in out) == (fault.status == 400)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--concurrency", "0"), "--concurrency must be at least 1, received 0"),
        (("--max-usd", "nan"), "--max-usd must be 0 or more, received nan"),
    ],
)
def test_limits_that_are_none_are_refused_before_anything_is_sent(run, script, server, tmp_path, option, told):
    run(*COMPATIBLE, limit=1)
    code, err = script(tmp_path / "r", "--backend", "openai-compatible", *option)
    assert (code, told in err, server.calls) == (2, True, []), err


def test_a_reply_nested_without_end_is_a_failure_of_its_prompt(server):
    lm = make_lm("openai-compatible", {"num_retries": "0"})
    row = answer_one(lambda body: httpx.Response(200, content=b"[" * 200_000), lm, Prompt("pace-1", {}, 0))
    assert row["error"]["kind"] == "ServerError"
    assert isinstance(outcome_of(row["line"]), Failure)


def test_the_embedded_model_is_asked_at_its_own_address(run, script, server, tmp_path, monkeypatch):
    """Everything but the model itself: the address, the key and the name that this process's server has."""
    keys = []
    monkeypatch.setattr(LocalServer, "start", lambda self: keys.append(self.api_key))
    monkeypatch.setattr(LocalServer, "request", lambda self: nullcontext(server.url))
    run("--set", "like=local", limit=2)
    body = requests_of(tmp_path / "r")[0]["body"]
    assert (body["model"], body["temperature"], "max_tokens" in body) == ("lm_default", 0, True)
    code, err = script(tmp_path / "r", "--backend", "local")
    assert (code, len(server.calls)) == (0, 2), err
    assert keys
    code, out, _ = run("--set", "like=local", limit=2)
    assert (code, said_rounds(out)) == (0, [2])


def test_another_model_or_kind_of_server_is_refused(run, server, tmp_path, monkeypatch):
    run(*COMPATIBLE, limit=1)
    its = last_round(tmp_path / "r")
    with pytest.raises(ConfigError, match="the round asks scripted, backend openai-compatible answers as other"):
        answer_round(its, make_lm("openai-compatible", {"model": "other"}))
    monkeypatch.setenv("GEMINI_API_KEY", CANARY)
    with pytest.raises(ConfigError, match="backend gemini has no chat-completions server of its own"):
        answer_round(its, make_lm("gemini", {"model": "scripted"}))
    with pytest.raises(ConfigError, match="has no chat-completions server"):
        answer_round(its, scripted_lm(MODEL))
    assert server.calls == []
