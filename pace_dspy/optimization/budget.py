"""What an optimizer can do with a budget, and what it will cost: computed before anything is paid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from pace_dspy.backends.budget import prompt_tokens
from pace_dspy.backends.lm import BackendLM
from pace_dspy.errors import ConfigError
from pace_dspy.optimization.settings import Budget, OptimizerName
from pace_dspy.optimization.snapshot import DEMO_CHARS

DEFAULT_METRIC_CALLS = 300
"""Metric calls a group of stages gets when no budget is given."""

SPEEDS: Mapping[str, tuple[float, float]] = {"local": (46.0, 23.0), "ollama": (46.0, 23.0)}
"""Prompt and written tokens a second on two CPU cores (measured with the embedded model)."""
_HOSTED_SPEED = (3000.0, 80.0)
_REPLY_SHARE = 0.45
"""Typical length of a reply as a share of its limit (measured: answerer 144 of 320 tokens)."""
_GEPA_BATCH = 3


@dataclass(frozen=True)
class Size:
    """Examples of one group of stages: at most this many, counted before frozen inputs are made."""

    n_train: int
    n_dev: int
    n_predictors: int
    max_demos: int

    @property
    def bootstrap(self) -> int:
        """Examples that one round of bootstrapping usually needs: half of them succeed. Never more than train has."""
        return min(self.n_train, 2 * self.max_demos)


@dataclass(frozen=True)
class OptimizerPlan:
    """How an optimizer is run inside its budget.

    Attributes:
        metric_calls: The limit, before and after included.
        expected: Metric calls it will probably need.
        proposals: Candidates it can score.
        proposal_calls: Calls of the prompt model.
        options: Arguments of the optimizer.
    """

    metric_calls: int
    expected: int
    proposals: int
    proposal_calls: int
    options: Mapping[str, Any] = field(default_factory=dict)


def least_metric_calls(optimizer: OptimizerName, size: Size) -> int:
    """Return the metric calls of one full proposal in the worst case, scoring before and after included."""
    train, dev = size.n_train, size.n_dev
    full = {
        "labeled": 0,
        "bootstrap": train,
        "bootstrap-rs": train + dev,
        "mipro": train + 3 * dev,
        "gepa": 2 * dev + 2 * _GEPA_BATCH,
        "simba": _simba_calls(1, size),
    }
    return 2 * dev + full[optimizer]


def plan_optimizer(optimizer: OptimizerName, size: Size, metric_calls: int | None) -> OptimizerPlan:
    """Fit an optimizer into a number of metric calls.

    Raises:
        ConfigError: They cannot do one full proposal; says the least that can.
    """
    least = least_metric_calls(optimizer, size)
    limit = max(least, DEFAULT_METRIC_CALLS) if metric_calls is None else metric_calls
    if limit < least:
        raise ConfigError(
            f"a budget of {limit} metric calls a group of stages cannot do one full proposal of {optimizer} with "
            f"{size.n_train} train and {size.n_dev} dev examples: at least {least} are needed. Raise --budget, or "
            "lower --limit"
        )
    return _PLANS[optimizer](size, limit)


def _labeled(size: Size, limit: int) -> OptimizerPlan:
    return OptimizerPlan(limit, 2 * size.n_dev, 1, 0)


def _bootstrap(size: Size, limit: int) -> OptimizerPlan:
    return OptimizerPlan(limit, 2 * size.n_dev + size.bootstrap, 1, 0)


def _bootstrap_rs(size: Size, limit: int) -> OptimizerPlan:
    each = size.bootstrap + size.n_dev
    candidates = max(1, min(16, (limit - 2 * size.n_dev) // each))
    return OptimizerPlan(limit, 2 * size.n_dev + candidates * each, candidates, 0, {"candidates": candidates})


def _mipro(size: Size, limit: int) -> OptimizerPlan:
    free = limit - 2 * size.n_dev

    def needed(candidates: int, trials: int) -> int:
        return (candidates - 2) * size.bootstrap + (trials + 1) * size.n_dev

    fitting = [count for count in range(3, 9) if needed(count, math.ceil(1.5 * count)) <= free]
    candidates = max(fitting, default=3)
    trials = max(2, min(3 * candidates, (free - needed(candidates, 0)) // size.n_dev))
    return OptimizerPlan(
        limit,
        2 * size.n_dev + needed(candidates, trials),
        trials,
        candidates * size.n_predictors,
        {"candidates": candidates, "trials": trials},
    )


def _gepa(size: Size, limit: int) -> OptimizerPlan:
    calls = limit - 2 * size.n_dev
    rounds = max(1, (calls - size.n_dev) // (2 * _GEPA_BATCH + size.n_dev // 3))
    return OptimizerPlan(limit, limit, rounds, rounds, {"metric_calls": calls, "batch": _GEPA_BATCH})


def _simba(size: Size, limit: int) -> OptimizerPlan:
    steps = max([count for count in range(1, 9) if 2 * size.n_dev + _simba_calls(count, size) <= limit], default=1)
    batch, candidates = _simba_shape(size)
    return OptimizerPlan(
        limit,
        2 * size.n_dev + _simba_calls(steps, size),
        steps * (candidates + 1),
        steps * (candidates + 1) // 2,
        {"steps": steps, "batch": batch, "candidates": candidates},
    )


def _simba_shape(size: Size) -> tuple[int, int]:
    return min(size.n_train, 6), 3


def _simba_calls(steps: int, size: Size) -> int:
    batch, candidates = _simba_shape(size)
    return steps * batch * (2 * candidates + 1) + min(steps, candidates) * (size.n_train + size.n_dev) + size.n_train


_PLANS: Mapping[str, Callable[[Size, int], OptimizerPlan]] = {
    "labeled": _labeled,
    "bootstrap": _bootstrap,
    "bootstrap-rs": _bootstrap_rs,
    "mipro": _mipro,
    "gepa": _gepa,
    "simba": _simba,
}


@dataclass(frozen=True)
class Cost:
    """What a number of scored examples costs on a backend: an estimate.

    Attributes:
        calls: Model calls.
        prompt_tokens: Tokens read anew (the fixed first part of a prompt is taken from the prefix cache).
        completion_tokens: Tokens written.
        minutes: Wall time.
        usd: Money, ``None`` when the profile has no price.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    minutes: float
    usd: float | None

    def __add__(self, other: Cost) -> Cost:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Cost(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.minutes + other.minutes,
            usd,
        )

    def to_text(self) -> str:
        """Return one line."""
        money = "price unknown" if self.usd is None else f"${self.usd:.2f}"
        return (
            f"about {self.calls} model calls, {self.prompt_tokens:,} tokens read, {self.completion_tokens:,} written, "
            f"{self.minutes:.0f} minutes, {money}"
        )


@dataclass(frozen=True)
class CallSize:
    """Tokens of one call of one stage: fixed first part, the rest of the prompt, and the reply."""

    fixed: int
    fresh: int
    reply: int


def measure_call(lm: Any, adapter: Any, agent: Any, inputs: Mapping[str, str]) -> CallSize:
    """Return the size of a call, from the prompt it would send; nothing is sent.

    Args:
        lm: The model; counts tokens exactly where it can.
        adapter: Renders the prompt.
        agent: The stage's agent.
        inputs: Typical inputs.
    """
    signature, demos = agent.predict.signature, agent.predict.demos
    messages: Sequence[dict[str, str]] = adapter.format(signature, demos, dict(inputs))
    fixed = prompt_tokens(None, messages[:-1])
    return CallSize(fixed, prompt_tokens(None, messages[-1:]), math.ceil(agent.reply_tokens * _REPLY_SHARE))


def estimate(lm: BackendLM, calls: Sequence[CallSize], n: int, n_programs: int, *, demos: bool) -> Cost:
    """Return the cost of ``n`` scored examples.

    Args:
        lm: The model.
        calls: The calls of one example.
        n: Examples scored.
        n_programs: Different prompts among them: each fixed part is read once, then comes from the prefix cache.
        demos: Whether candidates carry demos.
    """
    profile = lm.profile
    extra = DEMO_CHARS // 3 if demos else 0
    fresh = sum(n * call.fresh for call in calls)
    fixed_read = sum(n_programs * (call.fixed + extra) for call in calls)
    fixed_all = sum(n * (call.fixed + extra) for call in calls)
    wrote = sum(n * call.reply for call in calls)
    read_speed, write_speed = SPEEDS.get(profile.name, _HOSTED_SPEED)
    seconds = (fresh + fixed_read) / read_speed + wrote / write_speed
    if profile.name not in SPEEDS:
        seconds /= max(1, profile.slots)
    money = profile.cost_usd(fresh + fixed_all, max(0, fixed_all - fixed_read), wrote)
    return Cost(n * len(calls), fresh + fixed_read, wrote, seconds / 60, money)


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


def prompt_cost(lm: BackendLM, n: int) -> Cost:
    """Return the cost of ``n`` proposals: about 3,000 tokens read and 400 written each (ours)."""
    return estimate(lm, [CallSize(0, 3000, 400)], n, n, demos=False)


def check_backend_price(budget: Budget, *models: BackendLM) -> None:
    """Refuse a budget in money on a backend whose price is unknown.

    Raises:
        ConfigError: Names the backend.
    """
    for lm in models:
        if budget.usd is not None and lm.profile.cost_usd(1, 0, 1) is None:
            raise ConfigError(
                f"--budget in usd cannot be kept on backend {lm.profile.name}: its price is unknown. Give "
                "metric calls or minutes"
            )


def demo_like(example: dspy.Example, names: Sequence[str], candidates: str) -> dict[str, str]:
    """Return typical prompt inputs of a stage from an example, for `measure_call`."""
    known = {"request": example.request, "persona": example.persona or "the user", "today": "x" * 160}
    return {name: known.get(name, candidates) for name in names}
