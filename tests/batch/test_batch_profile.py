"""Whose rules the prompts of a batch follow."""

import pytest

from pace_dspy.backends.lm import make_lm
from pace_dspy.backends.profiles import PROFILES, get_profile
from pace_dspy.errors import ConfigError


def test_the_table_row_is_what_like_openai_gives():
    assert get_profile("batch") == get_profile("batch", {"like": "openai"})
    assert PROFILES["batch"].model_dump(exclude={"params", "slots"}) == get_profile("batch").model_dump(
        exclude={"params", "slots"}
    )


@pytest.mark.parametrize("like", [name for name in PROFILES if name not in {"batch", "openai-compatible"}])
def test_model_parameters_schema_and_window_are_theirs(like):
    ours, theirs = get_profile("batch", {"like": like}), PROFILES[like]
    same = (
        "model", "window", "schema_form", "additional_properties", "params", "temperature", "thinking_tokens",
        "reasoning_effort", "supports_logprobs", "supports_seed",
    )  # fmt: skip
    assert [getattr(ours, name) for name in same] == [getattr(theirs, name) for name in same]
    assert (ours.name, ours.base_url, ours.key_env, ours.key_required) == ("batch", None, None, False)
    assert ours.max_tokens_param == ("max_completion_tokens" if like == "openai" else "max_tokens")


def test_prices_are_half_where_the_service_says_so_and_gone_with_another_model():
    assert get_profile("batch", {"like": "gemini"}).price_prompt == PROFILES["gemini"].price_prompt / 2
    assert get_profile("batch", {"like": "local", "model": "lm_small"}).price_prompt == 0
    other = get_profile("batch", {"model": "gpt-other"})
    assert (other.price_prompt, other.window) == (None, None)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"like": "claude"}, "like=claude is no profile to follow; known: local, openai-compatible, openai"),
        ({"like": "batch"}, "like=batch is no profile to follow"),
        ({"like": "openai-compatible"}, "like=openai-compatible needs a model; add --set model=NAME"),
        ({"base_url": "http://x/v1"}, "nothing is sent, so there is no base_url"),
    ],
)
def test_what_does_not_fit_is_refused(settings, told):
    with pytest.raises(ConfigError, match=told):
        get_profile("batch", settings)


def test_like_is_for_batch_alone():
    with pytest.raises(ConfigError, match="backend openai: like is for --backend batch only"):
        get_profile("openai", {"like": "vllm"})


def test_the_model_needs_no_key_and_is_told_apart(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
    labels = [make_lm("batch", {"like": like}).label for like in ("openai", "vllm", "local")]
    assert labels == [
        "batch: openai/gpt-5.4-mini@batch",
        "batch: hosted_vllm/Qwen/Qwen3-4B-Instruct-2507@batch, temperature=0.0, thinking_tokens=0",
        "batch: hosted_vllm/lm_default@batch, temperature=0.0, thinking_tokens=0",
    ]


def test_a_temperature_that_the_model_refuses_is_a_setting_error():
    with pytest.raises(ConfigError, match=r"temperature=0\.5 is not taken by gpt-5\.4-mini"):
        make_lm("batch", {"temperature": "0.5"})
