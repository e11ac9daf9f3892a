"""The ``batch`` profile: another profile's model and rules, written down for a file instead of a server. Ours.

Whatever the provider, the files hold Chat Completions bodies, since that is what OpenAI's Batch service, vLLM's
``run-batch`` and most others read. So ``like=gemini`` means Gemini's schema subset and limits in an OpenAI body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pace_dspy.backends.profile_table import PROFILES, BackendProfile, Provider
from pace_dspy.errors import ConfigError

BATCH = "batch"
HALF_PRICE = ("openai", "gemini")
"""Providers whose batch service asks half of the ordinary price."""


def batch_base(changes: Mapping[str, Any]) -> BackendProfile:
    """Return the ``batch`` row with the values of the profile that it is to be like.

    Args:
        changes: What the user set; ``like`` picks the profile, by default that of the table.

    Raises:
        ConfigError: No such profile; an address, which is not ours to use; or no model name.
    """
    row = PROFILES[BATCH]
    known = [name for name in PROFILES if name != BATCH]
    like = changes.get("like", row.like)
    if like not in known:
        raise ConfigError(f"backend {BATCH}: like={like} is no profile to follow; known: {', '.join(known)}")
    if changes.get("base_url") is not None:
        raise ConfigError(
            f"backend {BATCH}: nothing is sent, so there is no base_url; `pace-dspy batch submit --base-url` takes one"
        )
    theirs = PROFILES[like]
    if not (changes.get("model") or theirs.model):
        raise ConfigError(f"backend {BATCH}: like={like} needs a model; add --set model=NAME")
    provider: Provider = "openai" if theirs.provider == "openai" else "hosted_vllm"
    half = 0.5 if like in HALF_PRICE else 1.0
    prices = {
        name: None if (price := getattr(theirs, name)) is None else price * half
        for name in ("price_prompt", "price_cached", "price_completion")
    }
    kept = {
        name: getattr(row, name) for name in ("name", "summary", "schema_note", "slots", "num_retries", "timeout_s")
    }
    of_a_server = dict.fromkeys(("model_env", "base_url", "base_url_env", "key_env"))
    update = {**kept, **prices, **of_a_server, "key_required": False, "provider": provider, "like": like}
    return theirs.model_copy(update=update)
