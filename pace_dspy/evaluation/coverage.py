"""Answer quality by how much of the gold the evidence covers: none, partial, full. Paper: Fig. 3."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pace_dspy.evaluation.metrics import gold_at_k, hit_at_k, unique
from pace_dspy.evaluation.samples import request_value
from pace_dspy.evaluation.scores import Row, finished, mean, ratio

Coverage = Literal["none", "partial", "full"]
Outcome = Literal["pass", "decision_accuracy"]

COVERAGES: tuple[Coverage, ...] = ("none", "partial", "full")


@dataclass(frozen=True)
class CoverageLevel:
    """Requests of one level of coverage.

    Attributes:
        coverage: none (no gold fact in the first k), partial (some), full (all: Gold@k).
        n_requests: Requests of this level.
        share: Of all requests with gold, in [0, 1]; ``None`` when there are none.
        n: Of ``n_requests``, those with an outcome.
        n_unscored: Of ``n_requests``, those without: undecided, not judged, or a judge error.
        value: Mean outcome over ``n``, in [0, 1]; ``None`` when there are none.
    """

    coverage: Coverage
    n_requests: int
    share: float | None
    n: int
    n_unscored: int
    value: float | None


@dataclass(frozen=True)
class CoverageReport:
    """Outcome by coverage.

    Attributes:
        k: Length of the evidence looked at.
        outcome: ``pass`` (judge) or ``decision_accuracy`` (typed decision).
        levels: none, partial, full; always all three.
        n_failed: Requests that failed; they are in no level.
        n_no_gold: Requests without gold facts; they are in no level.
        reasons: Failures by the kind of their error.
    """

    k: int
    outcome: Outcome
    levels: tuple[CoverageLevel, ...]
    n_failed: int
    n_no_gold: int
    reasons: Mapping[str, int]


def coverage_of(evidence: Sequence[str], gold: Collection[str], k: int = 10) -> Coverage | None:
    """Return how much of the gold the first ``k`` facts cover, ``None`` without gold.

    Args:
        evidence: Ids, best first; repeats are dropped.
        gold: The decisive facts.
        k: Facts looked at, >= 1. Paper: 10.

    Raises:
        ValueError: ``k`` below 1.
    """
    ids = unique(evidence)
    if not gold:
        return None
    if gold_at_k(ids, gold, k):
        return "full"
    return "partial" if hit_at_k(ids, gold, k) else "none"


def coverage_metrics(rows: Sequence[Row], k: int = 10, outcome: Outcome = "decision_accuracy") -> CoverageReport:
    """Return PASS or decision accuracy by coverage. For label and type: `pace_dspy.evaluation.scores.grouped`.

    Args:
        rows: Result rows of one run.
        k: Facts of the evidence looked at, >= 1. Paper: 10.
        outcome: ``pass`` needs judged rows.

    Raises:
        ValueError: ``k`` below 1, or rows that do not record failures.
    """
    ended = finished(rows)
    levels: dict[Coverage, list[Row]] = {name: [] for name in COVERAGES}
    for row in ended.rows:
        level = coverage_of(row["evidence"], row["gold_doc_ids"], k)
        if level is not None:
            levels[level].append(row)
    n_gold = sum(len(group) for group in levels.values())

    def summary(name: Coverage) -> CoverageLevel:
        values = [request_value(row, outcome) for row in levels[name]]
        scored = [value for value in values if value is not None]
        n = len(values)
        return CoverageLevel(name, n, ratio(n, n_gold), len(scored), n - len(scored), mean(scored))

    n_no_gold = len(ended.rows) - n_gold
    return CoverageReport(k, outcome, tuple(map(summary, COVERAGES)), ended.n_failed, n_no_gold, ended.reasons)
