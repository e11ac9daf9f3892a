"""What scored examples and proposals cost on a backend: an estimate, computed before anything is paid.

Instructions and demos are rendered and counted; what a request adds to a prompt, a fact's tokens and the written tokens
are means of real prompts and replies; prices come from the backend's profile. Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pace_dspy.backends.budget import MESSAGE_OVERHEAD_TOKENS
from pace_dspy.backends.profiles import BackendProfile
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.estimate import (
    HOSTED_LATENCY_S,
    HOSTED_WRITE_PER_S,
    LOCAL_READ_PER_S,
    LOCAL_WRITE_PER_S,
)
from pace_dspy.optimization.settings import Budget
from pace_dspy.optimization.snapshot import DEMO_CHARS

REPLY_TOKENS: Mapping[str, int] = {
    "planner": 196,
    "views": 70,
    "pre_filter": 46,
    "second_look": 73,
    "post_filter": 42,
    "answerer": 119,
}
"""Written tokens a call: means of 12 requests of PACE-mini's test personas with the embedded model, ``paper`` (3 of
``plus`` for the second look, ``lite`` for the answerer). Hidden thinking is not in them."""
INPUT_TOKENS: Mapping[str, int] = {
    "planner": 129,
    "views": 170,
    "pre_filter": 133,
    "second_look": 133,
    "post_filter": 133,
    "answerer": 141,
}
"""Request, calendar, persona and cues in a prompt: means of 90 requests of PACE-mini, counted with the vocabulary of
the embedded model (``experiments/tokens.py``); the second look's is that of the filters."""
LABEL_TOKENS, FACT_CHARS_PER_TOKEN, PROSE_CHARS_PER_TOKEN = 3.9, 3.73, 4.3
"""A candidate's number; characters a token of facts, and of instructions and demos. Counted likewise."""
PROPOSAL_READ, PROPOSAL_WRITTEN = 3_000, 400
"""Tokens of one proposal of the prompt model. Assumed."""
_SLOW = ("local", "ollama")


@dataclass(frozen=True)
class Cost:
    """What a number of scored examples costs on a backend: an estimate.

    Attributes:
        calls: Model calls.
        prompt_tokens: Tokens read, those from the prefix cache included.
        cached_tokens: Of these, the fixed first parts that a prefix cache can give.
        completion_tokens: Tokens written.
        minutes: Wall time.
        usd: Money without any discount for cached tokens (hosted caches begin at longer prompts than most of ours),
            ``None`` when the profile has no price.
    """

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    minutes: float
    usd: float | None

    def __add__(self, other: Cost) -> Cost:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Cost(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
            self.minutes + other.minutes,
            usd,
        )

    def to_text(self) -> str:
        """Return one line."""
        money = "price unknown" if self.usd is None else f"${self.usd:.2f}"
        fresh = self.prompt_tokens - self.cached_tokens
        return (
            f"about {self.calls:,} model calls, {self.prompt_tokens:,} tokens read ({fresh:,} without a prefix cache's "
            f"part), {self.completion_tokens:,} written, {self.minutes:.0f} minutes, {money}"
        )


NOTHING = Cost(0, 0, 0, 0, 0.0, 0.0)


@dataclass(frozen=True)
class CallSize:
    """Tokens of one call of one stage.

    Attributes:
        fixed: First part of the prompt, the same for every example.
        fresh: The rest of it.
        reply: Tokens written.
        demo: Tokens of one demo of the stage.
    """

    fixed: int
    fresh: int
    reply: int
    demo: int = 0


def call_size(adapter: Any, agent: Any, n_facts: float, fact_chars: float) -> CallSize:
    """Return the typical size of a call; nothing is sent.

    Args:
        adapter: Renders the fixed part of the prompt.
        agent: The stage's agent.
        n_facts: Facts it is shown.
        fact_chars: Characters of a fact.
    """
    predictor = agent.predict
    messages: Sequence[dict[str, str]] = adapter.format(predictor.signature, predictor.demos, {})
    chars = sum(len(message["content"]) for message in messages)
    fixed = chars / PROSE_CHARS_PER_TOKEN + MESSAGE_OVERHEAD_TOKENS * len(messages)
    fresh = INPUT_TOKENS[agent.stage] + n_facts * (LABEL_TOKENS + fact_chars / FACT_CHARS_PER_TOKEN)
    reply = REPLY_TOKENS[agent.stage]
    return CallSize(round(fixed), round(fresh), reply, round(fresh) + reply)


def estimate(
    profile: BackendProfile, calls: Sequence[CallSize], n: int, n_programs: int, *, demos: int = 0, in_flight: int = 1
) -> Cost:
    """Return the cost of ``n`` scored examples.

    Args:
        profile: The backend.
        calls: The calls of one example.
        n: Examples scored.
        n_programs: Different prompts among them: each fixed part is read once, then comes from the prefix cache.
        demos: Demos that a predictor carries.
        in_flight: Examples in flight at the same time.
    """
    fixed = sum(call.fixed + min(demos * call.demo, round(DEMO_CHARS / PROSE_CHARS_PER_TOKEN)) for call in calls)
    fresh, reply = sum(call.fresh for call in calls), sum(call.reply for call in calls)
    cached = max(0, n - n_programs) * fixed
    read, wrote, n_calls = n * (fixed + fresh), n * reply, n * len(calls)
    if profile.name in _SLOW:
        seconds = (read - cached) / LOCAL_READ_PER_S + wrote / LOCAL_WRITE_PER_S
    else:
        seconds = (n_calls * HOSTED_LATENCY_S + wrote / HOSTED_WRITE_PER_S) / max(1, min(in_flight, profile.slots))
    return Cost(n_calls, read, cached, wrote, seconds / 60, profile.cost_usd(read, 0, wrote))


def prompt_cost(profile: BackendProfile, n: int) -> Cost:
    """Return the cost of ``n`` proposals."""
    return estimate(profile, [CallSize(0, PROPOSAL_READ, PROPOSAL_WRITTEN)], n, n)


def calls_within(budget: Budget, each: Callable[[int], Cost]) -> int | None:
    """Return the metric calls that all limits of a budget allow by the estimate, ``None`` without any limit.

    Args:
        budget: The limits.
        each: Cost of a number of metric calls.
    """
    limits = [] if budget.metric_calls is None else [budget.metric_calls]
    sample = each(1000)
    if budget.minutes is not None and sample.minutes > 0:
        limits.append(int(budget.minutes / sample.minutes * 1000))
    if budget.usd is not None and sample.usd:
        limits.append(int(budget.usd / sample.usd * 1000))
    return min(limits) if limits else None


def check_backend_price(budget: Budget, *profiles: BackendProfile) -> None:
    """Refuse a budget in money on a backend whose price is unknown.

    Raises:
        ConfigError: Names the backend.
    """
    for profile in profiles:
        if budget.usd is not None and profile.cost_usd(1, 0, 1) is None:
            raise ConfigError(
                f"--budget in usd cannot be kept on backend {profile.name}: its price is unknown. Give "
                "metric calls or minutes"
            )
