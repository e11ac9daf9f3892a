"""One metric of one run, request by request: what intervals and paired comparisons are made of. Ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.answers import label_of, verdict_of
from pace_dspy.evaluation.metrics import score_request
from pace_dspy.evaluation.scores import UNKNOWN, Key, Row, key_of

DECISION_VALUES: tuple[str, ...] = ("decision_accuracy", "conflict_recall", "over_refusal_rate", "pass")
"""Names beside the retrieval metrics that `request_value` knows."""


@dataclass(frozen=True)
class Sample:
    """One metric of one run.

    Attributes:
        name: Of the run, for messages.
        metric: Of the metric.
        values: By request, those the metric applies to, each in [0, 1].
        failed: Kind of error of each request that failed; ``None`` when the run did not record failures.
        unscored: Requests that ended well but have no value (undecided, not judged, other label).
        strata: Gold label by request, for the balanced mean.
    """

    name: str
    metric: str
    values: Mapping[Key, float]
    failed: Mapping[Key, str] | None
    unscored: frozenset[Key] = frozenset()
    strata: Mapping[Key, str] = field(default_factory=dict)

    @property
    def requests(self) -> frozenset[Key]:
        """All requests the run was asked: scored, failed and unscored."""
        return frozenset(self.values) | frozenset(self.failed or ()) | self.unscored


def sample_of(
    rows: Iterable[Row], metric: str | Callable[[Row], float | None], name: str = "run", *, metric_name: str = ""
) -> Sample:
    """Take one metric out of the rows of one run.

    Args:
        rows: Result rows.
        metric: A name `request_value` knows, or a function of a finished row that
            returns a value in [0, 1], or ``None`` where it does not apply.
        name: Of the run, for messages.
        metric_name: Name of a function given as ``metric``.

    Raises:
        ValueError: A request occurs twice, an unknown metric, or a value outside [0, 1].
    """
    values: dict[Key, float] = {}
    failed: dict[Key, str] | None = {}
    unscored: set[Key] = set()
    strata: dict[Key, str] = {}
    for row in rows:
        key = key_of(row)
        if key in strata:
            raise ConfigError(f"run {name}: request {'/'.join(key)} occurs twice; one row a request is expected")
        strata[key] = str(row.get("label") or UNKNOWN)
        if "error" not in row:
            failed = None
        if row.get("error") is not None:
            if failed is not None:
                failed[key] = str(row["error"].get("kind", UNKNOWN))
            continue
        value = request_value(row, metric) if isinstance(metric, str) else metric(row)
        if value is None:
            unscored.add(key)
        elif not 0.0 <= value <= 1.0:
            raise ConfigError(f"run {name}: the metric gives {value} for request {'/'.join(key)}; it must be in [0, 1]")
        else:
            values[key] = float(value)
    label = metric if isinstance(metric, str) else metric_name or getattr(metric, "__name__", "metric")
    return Sample(name, label, values, failed, frozenset(unscored), strata)


def request_value(row: Row, name: str) -> float | None:
    """Return one metric of one finished request, for intervals and comparisons.

    Args:
        row: A row without error.
        name: ``hit@k``, ``recall@k``, ``precision@k``, ``gold@k`` (any ``k``), ``mrr``, or one of `DECISION_VALUES`.

    Returns:
        A value in [0, 1], or ``None`` where the metric does not apply: undecided or unlabelled, not judged, judge
        error, a non-conflict for ``conflict_recall``, a conflict for ``over_refusal_rate``.

    Raises:
        ValueError: Unknown name.
    """
    if name == "pass":
        return None if row.get("verdict") is None else float(verdict_of(row) == "PASS")
    if name in DECISION_VALUES:
        label, decision = label_of(row, "label"), label_of(row, "decision")
        only = {"conflict_recall": "conflict", "over_refusal_rate": "non_conflict"}.get(name, label)
        if label is None or decision is None or label != only:
            return None
        return float(decision == "conflict" if name == "over_refusal_rate" else decision == label)
    kind, _, cut = name.partition("@")
    known = name == "mrr" or (kind in {"hit", "recall", "precision", "gold"} and cut.isdecimal() and int(cut) > 0)
    if not known:
        raise ConfigError(
            f"unknown metric {name!r}; use hit@k, recall@k, precision@k, gold@k with k >= 1, mrr, "
            f"{', '.join(DECISION_VALUES)}"
        )
    return score_request(row["evidence"], row["gold_doc_ids"], (int(cut),) if cut else ())[name]
