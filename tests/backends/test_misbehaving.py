"""Every way in which a server misbehaves, through the whole program and the command line.

For each: what the request ends as, how often the server was asked, and the line a user sees. Never a traceback, a
decision the model did not make, or the key.
"""

import json
import logging
from dataclasses import dataclass, field

import pytest
from misbehaving import CANARY, DRAFT, GOOD, MODEL, Act, MisbehavingServer, chat, error, html

from pace_dspy.backends.retry import FIRST_BACKOFF_S

ASK = ("--request", "Book dinner on Friday", "--date", "2026-03-18", "--persona", "Ines")
ANSWER = json.dumps(GOOD["answerer"])
GOOD_CALLS = 5


@dataclass
class Case:
    """One misbehaviour.

    Attributes:
        acts: What the server does, by stage.
        ends: Decision, or the name of what the user is told.
        calls: Requests for a reply that reached the server.
        says: Part of the output: of the fallback line, or of the one error line.
        settings: ``--set`` options.
        retries: Retries counted in the trace.
        repairs: Repair turns counted in the trace.
    """

    acts: dict
    ends: str
    calls: int
    says: str = ""
    settings: tuple = ()
    retries: int = 0
    repairs: int = 0
    models: object = field(default_factory=lambda: ({"id": MODEL},))


def refused(status, message, **fields):
    return {"planner": error(status, message, **fields)}


CASES = {
    # it passes: the result is the same as on a good day
    "429 with Retry-After": Case(
        {"planner": [error(429, "slow down", headers={"Retry-After": "3"})]}, "non_conflict", 6, retries=1
    ),
    "429 without Retry-After": Case({"planner": [error(429, "slow down")]}, "non_conflict", 6, retries=1),
    "500 then fine": Case({"answerer": [error(500, "oops")]}, "non_conflict", 6, retries=1),
    "502 page then fine": Case({"views": [html(502)]}, "non_conflict", 6, retries=1),
    "connection cut in the reply": Case(
        {"planner": [Act({"x": "y" * 500}, cut_connection=True)]}, "non_conflict", 6, retries=1
    ),
    "cut JSON, then with more room": Case({"answerer": [chat(ANSWER[:40], "length")]}, "non_conflict", 6, repairs=1),
    "JSON that looks whole, cut": Case({"answerer": [chat(DRAFT, "length")]}, "non_conflict", 6, repairs=1),
    "prose, then JSON": Case({"answerer": [chat("It cannot be done, sorry.")]}, "non_conflict", 6, repairs=1),
    "think with a draft before the answer": Case(
        {"answerer": [chat(f"<think>Perhaps {DRAFT}?</think>\n{ANSWER}")]}, "non_conflict", 5
    ),
    "a draft, closed by the prompt's think": Case(
        {"answerer": [chat(f"Perhaps {DRAFT}?</think>{ANSWER}")]}, "non_conflict", 5
    ),
    "unclosed think, then JSON": Case({"answerer": [chat(f"<think>Perhaps {DRAFT}")]}, "non_conflict", 6, repairs=1),
    "null content with a reasoning field": Case(
        {"answerer": [chat(None, reasoning_content=DRAFT)]}, "non_conflict", 6, repairs=1
    ),
    "reasoning field beside the answer": Case({"answerer": [chat(ANSWER, reasoning=DRAFT)]}, "non_conflict", 5),
    "two answers that differ": Case({"answerer": [chat(f"{DRAFT}\n{ANSWER}")]}, "non_conflict", 6, repairs=1),
    "a key twice": Case({"answerer": [chat(ANSWER[:-1] + ', "decision": "conflict"}')]}, "non_conflict", 6, repairs=1),
    "aborted generation": Case({"answerer": [chat(DRAFT, "abort")]}, "non_conflict", 6, repairs=1),
    "half a character": Case(
        {"answerer": [chat(ANSWER.replace("It can", "\\ud83d It can"))]}, "non_conflict", 6, repairs=1
    ),
    "duplicate and unknown numbers": Case(
        {
            "pre_filter": [chat('{"keep": [2, 2, 999, 0, -1, 1]}')],
            "answerer": [chat(ANSWER.replace("[1]", "[1, 1, 77]"))],
        },
        "non_conflict",
        5,
    ),
    # it does not pass: the stage falls back to its defined result
    "empty list": Case(
        {"post_filter": chat('{"selected": []}')},
        "non_conflict",
        5,
        "Fallback  post_filter: no valid candidate number in the reply",
    ),
    "cut twice": Case(
        {"planner": chat('{"cues": [', "length")},
        "non_conflict",
        6,
        "Fallback  planner: reply unusable twice: the reply was cut off by the token limit",
        repairs=1,
    ),
    "malformed JSON": Case(
        {"views": chat('{"queries": ["a", "b"')},
        "non_conflict",
        6,
        "Fallback  views: reply unusable twice: the reply holds no complete JSON object",
        repairs=1,
    ),
    "a label outside the set": Case(
        {"answerer": chat(ANSWER.replace("non_conflict", "maybe"))},
        "none",
        6,
        "Fallback  answerer: reply unusable twice: field 'decision': Input should be 'conflict' or 'non_conflict'",
        repairs=1,
    ),
    "only thinking": Case(
        {"answerer": chat(f"<think>Perhaps {DRAFT}")},
        "none",
        6,
        "Fallback  answerer: reply unusable twice: the reply holds only thinking",
        repairs=1,
    ),
    "null content for ever": Case(
        {"answerer": chat(None, reasoning_content=DRAFT)},
        "none",
        6,
        "Fallback  answerer: reply unusable twice: the reply holds only thinking",
        repairs=1,
    ),
    "content filter": Case(
        {"answerer": chat("", "content_filter")},
        "none",
        6,
        "Fallback  answerer: reply unusable twice: the backend's content filter blocked the reply",
        repairs=1,
    ),
    "10 MB": Case(
        {"answerer": chat(ANSWER + " " * 10_000_000)},
        "none",
        6,
        f"Fallback  answerer: reply unusable twice: the reply is {10_000_000 + len(ANSWER)} characters long, 200000",
        repairs=1,
    ),
    # the backend fails: the request is an error, nothing is decided
    "an hour of Retry-After": Case(
        {"planner": error(429, "slow down", headers={"Retry-After": "3600"})},
        "error",
        1,
        "HTTP 429: slow down (request of key ***); the server asks to wait 3600 s. Lower --concurrency",
    ),
    "429 for ever": Case({"planner": error(429, "slow down")}, "error", 5, "HTTP 429: slow down"),
    "500 for ever": Case({"answerer": error(500, "oops")}, "error", 9, "HTTP 500: oops"),
    "a page with 502": Case(
        {"planner": html(502)},
        "error",
        5,
        "HTTP 502: a web page, not a model's reply: Gateway trouble. The server failed",
    ),
    "a page with 200": Case(
        {"planner": html(200)},
        "error",
        5,
        "HTTP 200: a web page, not a model's reply: Gateway trouble. The server failed",
    ),
    "an envelope of another service": Case({"planner": Act(["what?"])}, "error", 5, "the reply is not a model's reply"),
    "an error inside a 200": Case(
        {"planner": error(200, "upstream is busy", code="503")}, "error", 5, "HTTP 503: upstream is busy"
    ),
    "hang past the timeout": Case(
        {"planner": Act({}, delay_s=30)},
        "error",
        2,
        "no complete reply within 0.3 s. Check that the server answers; --set timeout_s=N if it is slow",
        settings=("timeout_s=0.3",),
    ),
    "a reply that trickles": Case(
        {"planner": Act({"x": "y" * 2000}, drip_s=0.05)},
        "error",
        2,
        "no complete reply within 0.3 s",
        settings=("timeout_s=0.3",),
    ),
    "40 MB": Case({"planner": Act(b" " * 40_000_000)}, "error", 1, "the reply is larger than 32 MB"),
    "quota": Case(
        refused(429, "You exceeded your current quota", code="insufficient_quota", type="insufficient_quota"),
        "error",
        1,
        "HTTP 429: You exceeded your current quota (request of key ***). Check the account's credit",
    ),
    "401": Case(
        refused(401, f"Incorrect API key provided: {CANARY}", code="invalid_api_key"),
        "error",
        1,
        "HTTP 401: Incorrect API key provided: *** (request of key ***). Check the key and its permissions",
    ),
    "403": Case(refused(403, "no access"), "error", 1, "HTTP 403: no access"),
    "400 on max_tokens": Case(
        refused(
            400,
            "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        ),
        "error",
        1,
        "(parameter 'max_tokens'). Use --set provider=openai, which sends max_completion_tokens",
    ),
    "400 on additionalProperties": Case(
        refused(
            400,
            "Invalid JSON payload. Unknown name \"additionalProperties\" at 'generation_config.response_schema'",
        ),
        "error",
        1,
        "(parameter 'additionalProperties'). Use --set additional_properties=false",
    ),
    "400 on response_format": Case(
        refused(400, "This response_format type is unavailable now", param="response_format"),
        "error",
        1,
        "(parameter 'response_format'). Use --set schema_form=json_object, or schema_form=none",
    ),
    "400 on temperature": Case(
        refused(400, "Unsupported value: 'temperature' does not support 0 with this model.", param="temperature"),
        "error",
        1,
        "(parameter 'temperature'). Use --set temperature=none, which sends none",
    ),
    "400 on something else": Case(refused(400, "bad things"), "error", 1, "HTTP 400: bad things"),
    "400 window exceeded": Case(
        refused(400, "This model's maximum context length is 4096 tokens. However, you requested 5000", code=400),
        "error",
        1,
        "HTTP 400: This model's maximum context length is 4096 tokens",
    ),
    "404 for the model": Case(
        refused(404, f"The model `{MODEL}` does not exist.", code="model_not_found"),
        "error",
        1,
        "(parameter 'model'). Use --set model=NAME",
    ),
    # found before the first request is spent
    "wrong path": Case(
        {},
        "error",
        0,
        "/v2/models answers HTTP 404 (parameter 'base_url'). The address ends in /v1",
        models="wrong path",
    ),
    "another model served": Case(
        {},
        "error",
        0,
        "the server does not serve this model; it serves a-model, b-model (parameter 'model'). Use --set model=a-model",
        models=({"id": "a-model"}, {"id": "b-model"}),
    ),
    "models refuse the key": Case(
        {}, "error", 0, "/v1/models answers HTTP 401: nope (request of key ***)", models=error(401, "nope")
    ),
    "models are down": Case({}, "error", 0, "/v1/models answers HTTP 503", models=error(503, "loading")),
    "models are a page": Case({}, "error", 0, "/v1/models does not list models", models=html(200)),
    "window too small": Case(
        {}, "error", 0, "a window of 512 tokens is too small: stage", models=({"id": MODEL, "max_model_len": 512},)
    ),
    "no list of models": Case({}, "non_conflict", 5, models=None),
}


def one_error_line(err):
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, err
    return lines[0]


def assert_no_key(folder, *texts):
    for text in texts:
        assert CANARY not in text
    for path in folder.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("name", CASES)
def test_misbehaviour(name, cli, served_by, facts, naps, tmp_path, caplog, monkeypatch):
    case = CASES[name]
    caplog.set_level(logging.DEBUG)
    models = ({"id": MODEL},) if case.models == "wrong path" else case.models
    with MisbehavingServer(case.acts, models=models) as server:
        served_by(server)
        if case.models == "wrong path":
            monkeypatch.setenv("PACE_BASE_URL", server.base_url.replace("/v1", "/v2"))
        settings = [part for setting in case.settings for part in ("--set", setting)]
        code, out, err = cli("check", "--kb", facts, *ASK, "--backend", "openai-compatible", *settings)
    assert "Traceback" not in out + err
    assert "truncated" not in err
    assert_no_key(tmp_path, out, err, caplog.text)
    assert server.posts == case.calls, (server.calls, out, err)
    if case.ends == "error":
        assert code == (2 if "parameter" in case.says or "too small" in case.says else 1) or case.calls == 0, err
        assert case.says in one_error_line(err)
        assert out == ""
    else:
        assert code == int(case.ends == "none"), err  # no decision is failed work, its evidence is shown all the same
        assert f"Decision  {case.ends}" in out
        assert case.says in out
        assert ("Fallback" in out) == bool(case.says)
        assert len(naps) == case.retries


def test_the_trace_counts_retries_and_repairs(cli, served_by, facts, naps):
    acts = {
        "planner": [error(500, "oops"), error(429, "slow", headers={"Retry-After": "7"}), chat("prose")],
        "answerer": [error(503, "busy")],
    }
    with MisbehavingServer(acts) as server:
        served_by(server)
        _, out, _ = cli("check", "--kb", facts, *ASK, "--backend", "openai-compatible", "--json")
    usage = {stage["stage"]: stage for stage in json.loads(out)["trace"]["usage"]}
    assert (usage["planner"]["calls"], usage["planner"]["retries"], usage["planner"]["repairs"]) == (2, 2, 1)
    assert (usage["answerer"]["calls"], usage["answerer"]["retries"]) == (1, 1)
    assert usage["views"]["retries"] == 0
    assert FIRST_BACKOFF_S / 2 <= naps[0] <= FIRST_BACKOFF_S
    assert 7 < naps[1] <= 7 + FIRST_BACKOFF_S


def test_a_cut_reply_is_asked_for_again_with_twice_the_room(cli, served_by, facts):
    with MisbehavingServer({"planner": [chat('{"cues": [', "length")]}) as server:
        served_by(server)
        cli("check", "--kb", facts, *ASK, "--backend", "openai-compatible")
    limits = [body["max_tokens"] for stage, _, body in server.bodies if stage == "planner"]
    assert limits == [320, 640]


def test_a_run_with_a_refused_parameter_spends_one_request_and_stops(cli, served_by, naps, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    acts = refused(400, f"Unsupported parameter: 'max_tokens' {CANARY}", param="max_tokens")
    with MisbehavingServer(acts) as server:
        served_by(server)
        code, out, err = cli(
            "run", "--data", "mini", "--backend", "openai-compatible", "--out", tmp_path / "run", "--concurrency", 1
        )
    assert code == 1
    assert server.posts == 1
    assert "stopped early: backend openai-compatible/scripted-model: HTTP 400" in err
    assert "Traceback" not in out + err
    assert_no_key(tmp_path, out, err, caplog.text)


def test_a_server_that_is_not_there(cli, served_by, facts, naps):
    with MisbehavingServer() as server:
        served_by(server)
    code, out, err = cli("check", "--kb", facts, *ASK, "--backend", "openai-compatible")
    assert (code, out) == (1, "")
    assert "/v1/models cannot be reached" in one_error_line(err)
    assert "Check the address and that the server is running" in err


def test_a_server_that_goes_away_is_retried_and_then_an_error(served_by, naps):
    from program_helpers import DAY, make_kb

    from pace_dspy import PaceMakerProgram, make_lm, use_backend
    from pace_dspy.errors import BackendTimeoutError

    make_kb("home")
    with MisbehavingServer() as server:
        served_by(server)
        lm = make_lm("openai-compatible")
    with use_backend(lm), pytest.raises(BackendTimeoutError, match="failed to connect") as caught:
        PaceMakerProgram()(request="Book dinner", reference_date=DAY, kb_id="home")
    assert len(naps) == 4
    assert [caught.value.backend, caught.value.model] == ["openai-compatible", MODEL]
