"""What an optimizer can do with a budget of metric calls: computed before anything is paid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pace_dspy.errors import ConfigError
from pace_dspy.optimization.settings import NO_OPTIMIZER, OptimizerName

DEFAULT_METRIC_CALLS = 300
"""Metric calls a group of stages gets when no budget is given."""

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
        metric_calls: The limit, scoring before included.
        expected: Metric calls it will probably need.
        repeated: Of these, those on the program as it was, whose replies are in the cache of the run.
        proposals: Candidates it can score.
        proposal_calls: Calls of the prompt model.
        options: Arguments of the optimizer.
    """

    metric_calls: int
    expected: int
    repeated: int
    proposals: int
    proposal_calls: int
    options: Mapping[str, Any] = field(default_factory=dict)


def scores_itself(optimizer: OptimizerName) -> bool:
    """Return whether an optimizer scores its candidates on dev; those of the others are scored by us afterwards."""
    return optimizer in ("bootstrap-rs", "mipro", "gepa")


def reserved_calls(optimizer: OptimizerName, n_dev: int) -> int:
    """Return the metric calls that are kept for scoring a candidate after the optimizer has ended."""
    return 0 if scores_itself(optimizer) else n_dev


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
    return dev + reserved_calls(optimizer, dev) + full[optimizer]


def plan_optimizer(optimizer: OptimizerName, size: Size, metric_calls: int | None) -> OptimizerPlan:
    """Fit an optimizer into a number of metric calls.

    Raises:
        ConfigError: They cannot do one full proposal; says the least that can.
    """
    if optimizer == NO_OPTIMIZER:
        return OptimizerPlan(0, 0, 0, 0, 0)
    least = least_metric_calls(optimizer, size)
    limit = max(least, DEFAULT_METRIC_CALLS) if metric_calls is None else metric_calls
    if limit < least:
        raise ConfigError(
            f"a budget of {limit} metric calls a group of stages cannot do one full proposal of {optimizer} with "
            f"{size.n_train} train and {size.n_dev} dev examples: at least {least} are needed. Raise --budget, or "
            "lower --limit"
        )
    return _PLANS[optimizer](size, limit)


def plan_proposals(optimizer: OptimizerName, size: Size, proposals: int) -> OptimizerPlan:
    """Return the smallest plan that can score at least ``proposals`` candidates, or as many as the optimizer ever does.

    Args:
        optimizer: Which one.
        size: Examples.
        proposals: Candidates wanted, >= 1.
    """
    low = least_metric_calls(optimizer, size)
    high = low + proposals * (size.n_train + 4 * size.n_dev + 100)
    most = plan_optimizer(optimizer, size, high).proposals
    while low < high:
        middle = (low + high) // 2
        if plan_optimizer(optimizer, size, middle).proposals >= min(proposals, most):
            high = middle
        else:
            low = middle + 1
    return plan_optimizer(optimizer, size, low)


def _labeled(size: Size, limit: int) -> OptimizerPlan:
    return OptimizerPlan(limit, 2 * size.n_dev, 0, 1, 0)


def _bootstrap(size: Size, limit: int) -> OptimizerPlan:
    return OptimizerPlan(limit, 2 * size.n_dev + size.bootstrap, 0, 1, 0)


def _bootstrap_rs(size: Size, limit: int) -> OptimizerPlan:
    each = size.bootstrap + size.n_dev
    candidates = max(1, min(16, (limit - size.n_dev) // each))
    return OptimizerPlan(limit, size.n_dev + candidates * each, 0, candidates, 0, {"candidates": candidates})


def _mipro(size: Size, limit: int) -> OptimizerPlan:
    free = limit - size.n_dev

    def needed(candidates: int, trials: int) -> int:
        return (candidates - 2) * size.bootstrap + (trials + 1) * size.n_dev

    fitting = [count for count in range(3, 9) if needed(count, math.ceil(1.5 * count)) <= free]
    candidates = max(fitting, default=3)
    trials = max(2, min(3 * candidates, (free - needed(candidates, 0)) // size.n_dev))
    return OptimizerPlan(
        limit,
        size.n_dev + needed(candidates, trials),
        size.n_dev,
        trials,
        candidates * size.n_predictors,
        {"candidates": candidates, "trials": trials},
    )


def _gepa(size: Size, limit: int) -> OptimizerPlan:
    calls = limit - size.n_dev
    rounds = max(1, (calls - size.n_dev) // (2 * _GEPA_BATCH + size.n_dev // 3))
    return OptimizerPlan(limit, limit, size.n_dev, rounds, rounds, {"metric_calls": calls, "batch": _GEPA_BATCH})


def _simba(size: Size, limit: int) -> OptimizerPlan:
    free = limit - 2 * size.n_dev
    steps = max([count for count in range(1, 9) if _simba_calls(count, size) <= free], default=1)
    batch, candidates = _simba_shape(size)
    return OptimizerPlan(
        limit,
        2 * size.n_dev + _simba_calls(steps, size),
        0,
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
