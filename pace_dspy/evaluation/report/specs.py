"""The metrics a report shows: name, title, how requests are averaged, and the paper's name for it. Ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pace_dspy.evaluation.resampling import Mean
from pace_dspy.evaluation.samples import Sample, request_value, sample_of
from pace_dspy.evaluation.scores import Row
from pace_dspy.evaluation.statistics import Interval, bootstrap_interval


@dataclass(frozen=True)
class MetricSpec:
    """One metric.

    Attributes:
        name: Key in tables and in the paper's numbers.
        title: As shown.
        average: macro over personas for retrieval (as the reference reports), micro over requests for answers.
        value: Of a finished row, in [0, 1], ``None`` where it does not apply.
        lower_is_better: For over-refusal and failures.
    """

    name: str
    title: str
    average: Mean
    value: Callable[[Row], float | None]
    lower_is_better: bool = False

    def sample(self, rows: Sequence[Row], run: str) -> Sample:
        """Take this metric out of the rows of a run."""
        return sample_of(rows, self.value, run, metric_name=self.name)

    def interval(self, rows: Sequence[Row], run: str) -> Interval:
        """Return the score with its bootstrap interval over personas."""
        return bootstrap_interval(self.sample(rows, run), average=self.average)


def _named(name: str, title: str, average: Mean, *, metric: str = "", lower_is_better: bool = False) -> MetricSpec:
    return MetricSpec(name, title, average, lambda row: request_value(row, metric or name), lower_is_better)


def _verdict(name: str, title: str, verdict: str, label: str | None = None) -> MetricSpec:
    def value(row: Row) -> float | None:
        asked = row.get("verdict") is not None and label in (None, row.get("label"))
        return float(row["verdict"] == verdict) if asked else None

    return MetricSpec(name, title, "micro", value, lower_is_better=verdict != "PASS")


RECALL = _named("recall@10", "Recall@10", "macro")
GOLD = _named("gold@10", "Gold@10", "macro")
PASS = _named("pass", "PASS", "micro")
ACCURACY = _named("decision_accuracy", "Decision accuracy", "micro")

RETRIEVAL: tuple[MetricSpec, ...] = (
    _named("recall@5", "Recall@5", "macro"),
    RECALL,
    _named("hit@10", "Hit@10", "macro"),
    GOLD,
    _named("mrr", "MRR", "macro"),
)
"""Paper: main table, retrieval. MRR is shown in percent, too, as in the paper."""

JUDGED: tuple[MetricSpec, ...] = (
    PASS,
    _verdict("wrong_rationale", "Wrong rationale", "WRONG_RATIONALE"),
    _verdict("fail", "FAIL", "FAIL"),
    _verdict("conflict_pass", "PASS on conflicts", "PASS", "conflict"),
    _verdict("conflict_fail", "FAIL on conflicts", "FAIL", "conflict"),
)
"""Paper: main table, answers."""

DECIDED: tuple[MetricSpec, ...] = (
    ACCURACY,
    _named("balanced_accuracy", "Balanced accuracy", "balanced", metric="decision_accuracy"),
    _named("conflict_recall", "Conflict recall", "micro"),
    _named("over_refusal_rate", "Over-refusal", "micro", lower_is_better=True),
)
"""The typed decision; needs no judge. Ours."""


def outcome_of(rows: Sequence[Row]) -> MetricSpec | None:
    """Return what counts as the outcome: PASS where anything was judged, else decision accuracy, else ``None``."""
    for spec in (PASS, ACCURACY):
        if any(row["error"] is None and spec.value(row) is not None for row in rows):
            return spec
    return None
