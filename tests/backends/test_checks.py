"""The checks of a server, each against a scripted server that does well and one that does not."""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest
from servers import REPLIES, Fault, LoopbackServer

from pace_dspy import make_lm
from pace_dspy.backends.checks import run_checks
from pace_dspy.errors import BackendTimeoutError, BadSettingError

SCRIPT = Path(__file__).parents[2] / "experiments" / "check_server.py"
WINDOW = 8192
TOO_LONG = (
    "This model's maximum context length is 8192 tokens. However, your prompt contains at least 8193 input tokens"
)
TOLD_IN_VAIN = {"prefix cache", "log-probabilities"}


def free(call):
    """The reply to a question of no stage: a topic, or the code word that was asked for."""
    return {"code": call.request.rpartition(" ")[2].rstrip(".")} if call.request else {"topic": "meal"}


def honest_usage(call):
    return {"prompt_tokens": call.words + call.words // 3, "completion_tokens": 12}


def refuses_too_long(call):
    return Fault(400, message=TOO_LONG) if call.words > WINDOW else None


@pytest.fixture
def server():
    with LoopbackServer(replies={**REPLIES, None: free}, usage=honest_usage, fault=refuses_too_long) as running:
        yield running


def lm_of(server, **settings):
    return make_lm("vllm", {"base_url": server.url, "model": "scripted", "num_retries": "0", **settings}, environ={})


def outcome_of(server, *only, **settings):
    checks = {check.name: check for check in run_checks(lm_of(server, **settings), only=only)}
    return next(check for name, check in checks.items() if any(part in name for part in only))


def test_a_good_server_passes_and_what_it_does_not_tell_is_no_failure(server):
    shown = []
    checks = run_checks(lm_of(server), on_check=shown.append)
    assert shown == checks
    assert {check.name: check.seen for check in checks if check.outcome == "fail"}.keys() == {"log-probabilities"}
    assert [check.name for check in checks if check.outcome == "untold"] == ["prefix cache"]
    assert [check.name for check in checks if check.name.startswith("stage ")] == [
        "stage planner",
        "stage views",
        "stage pre_filter",
        "stage second_look",
        "stage post_filter",
        "stage answerer",
        "stage judge",
    ]
    seen = {check.name: check.seen for check in checks}
    assert seen["model and window"] == "scripted, 8,192 tokens"
    assert seen["stage judge"].startswith("first try, ")
    assert seen["8 at once stay apart"].startswith("8 of 8 replies hold their own code, none another's")
    assert (
        "by the server as a window error: HTTP 400: This model's maximum context" in seen["over-long prompt is refused"]
    )


def test_the_trimmed_prompt_fits_the_servers_window_and_fills_most_of_it(server):
    check = outcome_of(server, "trimmed")
    assert check.outcome == "pass"
    assert "320 kept for the reply" in check.seen
    longest = max(call.words for call in server.calls)
    assert 3000 < longest < WINDOW - 320


def test_a_server_that_cuts_prompts_silently_fails_twice():
    with LoopbackServer(usage=lambda call: {"prompt_tokens": min(call.words, 2048), "completion_tokens": 9}) as server:
        assert "so the server cut the prompt" in outcome_of(server, "trimmed").seen
        check = outcome_of(server, "over-long")
        assert check.outcome == "fail"
        assert check.seen.startswith("the server read 2,048 of 10,240 words or more and answered")


def test_a_server_that_ignores_the_schema_is_told_by_name():
    with LoopbackServer(replies={None: "Good morning to you too!"}) as server:
        check = outcome_of(server, "schema")
        assert check.outcome == "fail"
        assert "--set schema_form=json_object, or none" in check.seen
        assert outcome_of(server, "schema", schema_form="none").outcome == "untold"
        assert "--set schema_form=none" in outcome_of(server, "schema", schema_form="json_object").seen


def test_a_stage_that_needs_a_repair_passes_and_says_so_and_one_that_stays_bad_fails():
    asked = Counter()

    def late(call):
        asked[call.stage] += 1
        return REPLIES["judge"] if asked[call.stage] > 1 else {"reason": "none", "verdict": "MAYBE"}

    with LoopbackServer(replies={**REPLIES, "judge": late, "planner": {"cues": "none"}}) as server:
        checks = {check.name: check for check in run_checks(lm_of(server), only=("stage",))}
        assert checks["stage judge"].seen.startswith("only after a repair, 200 tokens read")
        assert checks["stage planner"].outcome == "fail"
        assert checks["stage planner"].seen.startswith("reply unusable twice: field 'cues'")
        assert sum(check.outcome == "pass" for check in checks.values()) == 7


def test_mixed_replies_are_caught():
    with LoopbackServer(replies={None: {"code": "AMBER-1137"}}) as server:
        check = outcome_of(server, "apart")
        assert check.outcome == "fail"
        assert check.seen.startswith("7 of 8 replies hold another prompt's code, such as ('BIRCH-1178', 'AMBER-1137')")
    with LoopbackServer(replies={None: {"code": "I see none"}}) as server:
        check = outcome_of(server, "apart")
        assert (check.outcome, check.seen[:23]) == ("untold", "0 of 8 replies hold the"[:23])
    with LoopbackServer(fault=lambda call: Fault(500)) as server:
        assert outcome_of(server, "apart").seen.startswith("8 of 8 failed: HTTP 500")


def test_all_prompts_are_in_flight_together(server):
    server.delay_s = 0.3
    check = outcome_of(server, "apart")
    assert check.outcome == "pass"
    assert check.seconds < 8 * 0.3 / 2


def test_cached_tokens_reach_our_usage(server):
    server.usage = lambda call: {**honest_usage(call), "prompt_tokens_details": {"cached_tokens": 128}}
    check = outcome_of(server, "prefix")
    assert check.outcome == "pass"
    assert check.seen.startswith("128 of the ")


def test_a_failure_in_one_check_does_not_stop_the_others():
    with LoopbackServer(fault=lambda call: Fault(500) if call.stage == "views" else None) as server:
        checks = {check.name: check for check in run_checks(lm_of(server), only=("stage",))}
        assert checks["stage views"].seen.startswith("ServerError: HTTP 500")
        assert checks["stage judge"].outcome == "pass"


def test_a_server_that_cannot_be_asked_ends_the_checks(server):
    with pytest.raises(BadSettingError, match="it serves scripted"):
        run_checks(lm_of(server, model="other"))
    with pytest.raises(BackendTimeoutError, match="cannot be reached"):
        run_checks(make_lm("vllm", {"base_url": "http://127.0.0.1:9/v1"}, environ={}))


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("check_server", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def test_the_script_prints_a_table_and_its_exit_code_tells(script, server, capsys):
    at = ["vllm", "--set", f"base_url={server.url}", "--set", "model=scripted"]
    assert script([*at, "--only", "stage", "--only", "prefix"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 10
    assert out[0].split(" s  ")[1] == "scripted, 8,192 tokens"
    assert out[-2].startswith("?    prefix cache")
    assert out[-1].startswith("8 ok, 0 failed: vllm: hosted_vllm/scripted@http://127.0.0.1")
    assert script([*at, "--only", "log-prob", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [check["outcome"] for check in report["checks"]] == ["pass", "fail"]
    assert script(["vllm", "--set", "base_url=http://127.0.0.1:9/v1"]) == 2
    assert "error: backend vllm/Qwen/Qwen3-4B-Instruct-2507: http://127.0.0.1:9/v1/models cannot be reached" in (
        capsys.readouterr().err
    )
    for wrong, told in (
        (("--only", "nosuch"), "no check is called like nosuch; there are: model and window, "),
        (("--in-flight", "0"), "prompts in flight must be at least 1, received 0"),
    ):
        assert script([*at, *wrong]) == 2
        assert f"error: {told}" in capsys.readouterr().err
    assert script(["vllm", "--set", "nothing=1"]) == 2
