"""What is found before the first request is spent, and what a server's word is used for."""

import datetime as dt

import dspy
import pytest
from misbehaving import CANARY, MODEL, Act, MisbehavingServer, error
from scripted import scripted_lm

from pace_dspy import PaceMakerConfig, PaceMakerProgram, make_lm
from pace_dspy.backends.budget import estimate_tokens
from pace_dspy.backends.preflight import check_server, preflight
from pace_dspy.backends.served import listed
from pace_dspy.calendar import today_line
from pace_dspy.errors import AuthError, BackendTimeoutError, BadSettingError, ServerError, WindowError


def lm_of(server, settings=None, backend="openai-compatible", **environ):
    fixed = {
        "PACE_BASE_URL": server.base_url,
        "PACE_MODEL": MODEL,
        "PACE_API_KEY": CANARY,
        "VLLM_BASE_URL": server.base_url,
    }
    return make_lm(backend, settings, environ={**fixed, **environ})


@pytest.mark.parametrize("key", ["max_model_len", "context_length", "context_window", "max_context_length"])
def test_the_window_is_the_servers_when_none_is_configured(key):
    with MisbehavingServer(models=({"id": "other", key: 5}, {"id": MODEL, key: 16384})) as server:
        lm = lm_of(server)
        assert lm.profile.window is None
        preflight(lm, PaceMakerProgram())
        assert lm.profile.window == 16384
        assert server.gets == ["/v1/models"]
        configured = lm_of(server, {"window": "8192"})
        preflight(configured, PaceMakerProgram())
        assert configured.profile.window == 8192
        assert server.posts == 0


def test_a_configured_window_above_the_servers_is_refused():
    refusal = r"window=9000 is more than the 4096 tokens .*Use --set window=4096"
    models = ({"id": MODEL, "max_model_len": 4096},)
    with MisbehavingServer(models=models) as server, pytest.raises(BadSettingError, match=refusal):
        preflight(lm_of(server, {"window": "9000"}), PaceMakerProgram())


def test_every_profile_of_the_dialect_is_checked_and_each_server_once():
    with MisbehavingServer(
        models=({"id": "Qwen/Qwen3-4B-Instruct-2507", "max_model_len": 32768}, {"id": MODEL})
    ) as server:
        vllm, other = lm_of(server, backend="vllm"), lm_of(server)
        program = PaceMakerProgram()
        program.answerer.predict.lm = other
        preflight(vllm, program)
        assert vllm.profile.window == 32768
        assert server.gets == ["/v1/models"] * 2
        ollama = make_lm("ollama", {"model": MODEL}, environ={"OLLAMA_BASE_URL": server.base_url})
        assert check_server(ollama).windows == {"Qwen/Qwen3-4B-Instruct-2507": 32768, MODEL: None}


def test_a_program_without_our_agents_is_checked_too():
    with MisbehavingServer(models=({"id": "other"},)) as server, pytest.raises(BadSettingError, match="serves other"):
        preflight(lm_of(server), dspy.Predict("a -> b"))


def test_the_providers_own_address_is_not_asked():
    assert check_server(make_lm("openai", environ={"OPENAI_API_KEY": CANARY})) is None
    assert check_server(make_lm("gemini", environ={"GEMINI_API_KEY": CANARY})) is None
    assert check_server(scripted_lm({})) is None


def test_a_model_that_is_not_served_lists_what_is():
    served = tuple({"id": f"model-{i}"} for i in range(11))
    refusal = r"it serves model-0, model-1, .* model-7 and 3 more \(parameter 'model'\)"
    with MisbehavingServer(models=served) as server, pytest.raises(BadSettingError, match=refusal):
        preflight(lm_of(server), PaceMakerProgram())
    with MisbehavingServer(models=({"id": f"{MODEL}:latest"},)) as server:
        preflight(lm_of(server), PaceMakerProgram())
    with MisbehavingServer(models=()) as server:
        preflight(lm_of(server), PaceMakerProgram())
    assert listed({"a": 1}) == "a"


@pytest.mark.parametrize(
    ("models", "kind", "message"),
    [
        (
            error(401, "bad key"),
            AuthError,
            r"/v1/models answers HTTP 401: bad key \(request of key \*\*\*\)\. Check the key",
        ),
        (error(500, "boom"), ServerError, r"/v1/models answers HTTP 500"),
        (
            Act("", 302, {"Location": "https://box/v1/models"}),
            BadSettingError,
            r"HTTP 302 \(it points to https://box/v1/models\)",
        ),
        (Act([1, 2]), BadSettingError, r"does not list models \(\[1, 2\]\)"),
        (Act({}, delay_s=5), BackendTimeoutError, r"no answer from .*/v1/models within 0\.2 s"),
    ],
)
def test_servers_that_are_no_good(models, kind, message):
    with MisbehavingServer(models=models) as server:
        with pytest.raises(kind, match=message) as caught:
            preflight(lm_of(server, {"timeout_s": "0.2"}), PaceMakerProgram())
        assert CANARY not in str(caught.value)
        assert server.posts == 0


def test_a_server_that_limits_the_list_is_left_to_the_first_request():
    with MisbehavingServer(models=error(429, "slow")) as server:
        preflight(lm_of(server), PaceMakerProgram())


def test_the_stage_that_needs_most_decides_the_window():
    program = PaceMakerProgram()
    with pytest.raises(WindowError) as caught:
        preflight(scripted_lm({}, window=600), program)
    text = str(caught.value)
    assert "a window of 600 tokens is too small: stage " in text
    needed = int(text.split("needs about ")[1].split(" ")[0])
    with pytest.raises(WindowError):
        preflight(scripted_lm({}, window=needed - 1), program)
    preflight(scripted_lm({}, window=needed), program)
    program.planner.predict.demos = [dspy.Example(request="r " * 3000, today="t", cues=[])]
    with pytest.raises(WindowError, match="stage planner needs about"):
        preflight(scripted_lm({}, window=needed), program)
    off = PaceMakerConfig.parse({"agents": {"planner": "off"}})
    preflight(scripted_lm({}, window=needed), PaceMakerProgram(off))


def test_an_exact_count_overrules_the_estimate():
    lm = scripted_lm({}, window=600)
    lm.token_counter = lambda text: len(text) // 8
    preflight(lm, PaceMakerProgram())


def test_the_estimate_counts_other_scripts_dearer():
    assert estimate_tokens("abcdef") == 2
    assert estimate_tokens("") == 0
    assert estimate_tokens("é") == 1
    assert estimate_tokens("日本語") == 3
    assert estimate_tokens("🙂") == 2
    assert estimate_tokens("abc日🙂") == 1 + 1 + 2


# True counts by the tokenizer of Qwen2.5 and Qwen3: one token for each digit, and one for a blank before it.
@pytest.mark.parametrize(
    ("text", "true_count"),
    [
        (today_line(dt.date(2026, 3, 18)), 99),
        ("[3206] Sofia's best half marathon time is 1:58:40, from 2022.", 29),
        ("\n".join(f"[{i}] 2026-09-{i:02d} 12:30-14:00 call +34 600 123 45{i % 10}" for i in range(1, 31)), 1310),
        ("\n".join(f"[{i}] Ines met guest {i} at place {i % 7} and liked it." for i in range(1, 1301)), 27686),
    ],
)
def test_the_estimate_is_not_below_a_tokenizer_that_reads_digits_one_by_one(text, true_count):
    assert true_count <= estimate_tokens(text) <= 1.2 * true_count
