"""Decision calibration: the probability of ``conflict`` from which the answerer refuses, fitted on dev. Ours.

Small models say one label far too often; their token probabilities still rank requests. The threshold is kept in the
manifest and applied at answer time where the backend gives probabilities; everything else of an answer stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from pace_dspy.errors import ConfigError
from pace_dspy.types import Label

PLAIN_THRESHOLD = 0.5


@dataclass(frozen=True)
class Measured:
    """One dev request: probability of ``conflict``, gold label, and what the model decided by itself."""

    p_conflict: float
    label: Label
    decision: Label | None


@dataclass(frozen=True)
class Rates:
    """Decision rates on dev, each in [0, 1]."""

    accuracy: float
    conflict_recall: float
    over_refusal_rate: float

    @property
    def balanced_accuracy(self) -> float:
        """Mean of conflict recall and one minus over-refusal."""
        return (self.conflict_recall + 1 - self.over_refusal_rate) / 2


@dataclass(frozen=True)
class Calibration:
    """A fitted threshold and what it changes on the requests it was fitted on (so ``after`` is optimistic).

    Attributes:
        threshold: Refuse when the probability of ``conflict`` is at least this.
        objective: ``balanced_accuracy``, or ``refusal_cost=C``.
        n: Requests with a probability.
        n_without: Requests whose reply gave none.
        before: As the model decided.
        after: With the threshold.
    """

    threshold: float
    objective: str
    n: int
    n_without: int
    before: Rates
    after: Rates

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready, for the manifest."""
        rates = {name: {**asdict(value), "balanced_accuracy": value.balanced_accuracy}
                 for name, value in (("before", self.before), ("after", self.after))}  # fmt: skip
        return {**asdict(self), **rates}


def fit_threshold(measured: Sequence[Measured], refusal_cost: float | None = None, n_without: int = 0) -> Calibration:
    """Choose the threshold between two neighbouring probabilities that is best on these requests.

    Args:
        measured: Requests of dev.
        refusal_cost: Cost of refusing a fine request where obeying a bad one costs 1; ``None`` for the best balanced
            accuracy.
        n_without: Requests without a probability, for the record.

    Returns:
        The calibration; of equally good thresholds the one nearest to 0.5.

    Raises:
        ConfigError: One of the two labels does not occur.
    """
    labels = {one.label for one in measured}
    if len(labels) < 2:
        raise ConfigError(
            f"calibration needs dev requests of both labels with a probability, received {len(measured)} with labels "
            f"{', '.join(sorted(labels)) or 'none'}; use a backend with token log-probabilities and a larger dev side"
        )

    def loss(threshold: float) -> tuple[float, float]:
        rates = rates_at(measured, threshold)
        if refusal_cost is None:
            return (1 - rates.balanced_accuracy, abs(threshold - PLAIN_THRESHOLD))
        share = sum(one.label == "conflict" for one in measured) / len(measured)
        cost = (1 - rates.conflict_recall) * share + refusal_cost * rates.over_refusal_rate * (1 - share)
        return (cost, abs(threshold - PLAIN_THRESHOLD))

    points = sorted({one.p_conflict for one in measured})
    middles = [(low + high) / 2 for low, high in pairwise(points)]
    best = min([PLAIN_THRESHOLD, points[0] / 2, *middles, (1 + points[-1]) / 2], key=loss)
    objective = "balanced_accuracy" if refusal_cost is None else f"refusal_cost={refusal_cost:g}"
    before = _rates([(one.decision, one.label) for one in measured])
    return Calibration(best, objective, len(measured), n_without, before, rates_at(measured, best))


def rates_at(measured: Sequence[Measured], threshold: float) -> Rates:
    """Return the decision rates when ``conflict`` is said from a probability of ``threshold`` on."""
    return _rates([("conflict" if one.p_conflict >= threshold else "non_conflict", one.label) for one in measured])


def _rates(pairs: Sequence[tuple[str | None, str]]) -> Rates:
    def share(label: str, said: str) -> float:
        of = [decision for decision, gold in pairs if gold == label]
        return sum(decision == said for decision in of) / max(1, len(of))

    accuracy = sum(decision == label for decision, label in pairs) / max(1, len(pairs))
    return Rates(accuracy, share("conflict", "conflict"), share("non_conflict", "conflict"))
