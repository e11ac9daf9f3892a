"""What every score shares: result rows, failures counted beside it, and the split by label and situation type. Ours.

A result row is one request of one run, as the run store keeps it: ``case_id``, ``query_id``, ``label``,
``situation_type``, ``gold_doc_ids``, ``evidence`` (ordered ids), ``cited``, ``decision``, ``response``, ``trace``,
``error`` (``None``, or ``{"kind", "message"}``), and once judged ``verdict`` (one of `VERDICTS`, or ``None``) and
``judge_error`` (``None``, or ``{"kind", "message"}``). All functions here are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pace_dspy.errors import ConfigError
from pace_dspy.types import LABELS, SITUATION_TYPES

Row = Mapping[str, Any]
"""One result row (see the module's docstring)."""

Key = tuple[str, str]
"""``(case_id, query_id)`` of a request."""

Verdict = Literal["PASS", "WRONG_RATIONALE", "FAIL"]

VERDICTS: tuple[Verdict, ...] = ("PASS", "WRONG_RATIONALE", "FAIL")
"""What a judge says: right with the right reason, right decision with a wrong reason, wrong decision. Paper: Sec. 5."""

UNKNOWN = "unknown"
"""Group of the rows whose label or situation type is not given."""

T = TypeVar("T")


@dataclass(frozen=True)
class Grouped(Generic[T]):
    """One summary over all rows and the same one over each label and each situation type that occurs.

    Attributes:
        overall: Over all rows.
        by_label: ``conflict``, ``non_conflict``, then ``unknown``; only those that occur.
        by_type: ``temporal``, ``personal``, ``state``, then ``unknown``; only those that occur.
    """

    overall: T
    by_label: Mapping[str, T]
    by_type: Mapping[str, T]


@dataclass(frozen=True)
class Finished:
    """Rows that ended well, and the failures beside them.

    Attributes:
        rows: Rows without error, in order.
        n_failed: Rows with an error; they are in no score.
        reasons: Failures by the kind of their error.
    """

    rows: tuple[Row, ...]
    n_failed: int
    reasons: Mapping[str, int]


def key_of(row: Row) -> Key:
    """Return ``(case_id, query_id)``."""
    return (str(row["case_id"]), str(row["query_id"]))


def finished(rows: Iterable[Row]) -> Finished:
    """Take failed requests out of the scores and count them.

    Raises:
        ConfigError: A row has no ``error`` field: its run did not record failures, so no score of it can be trusted.
    """
    good: list[Row] = []
    reasons: Counter[str] = Counter()
    for row in rows:
        if "error" not in row:
            raise ConfigError(
                f"row {'/'.join(key_of(row))} has no field 'error', so failures were not recorded; "
                "score rows of a run store, or add error: null where the request ended well"
            )
        if row["error"] is None:
            good.append(row)
        else:
            reasons[str(row["error"].get("kind", UNKNOWN))] += 1
    return Finished(tuple(good), sum(reasons.values()), dict(sorted(reasons.items())))


def grouped(rows: Sequence[Row], summarise: Callable[[Sequence[Row]], T]) -> Grouped[T]:
    """Apply a summary to all rows, by label and by situation type.

    Args:
        rows: Result rows of one run.
        summarise: For example `pace_dspy.evaluation.answers.decision_metrics`.
    """
    return Grouped(
        summarise(rows), _by(rows, "label", LABELS, summarise), _by(rows, "situation_type", SITUATION_TYPES, summarise)
    )


def ratio(part: float, whole: float) -> float | None:
    """Return ``part / whole``, ``None`` when there is nothing to divide by."""
    return part / whole if whole else None


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean, ``None`` of nothing."""
    return ratio(sum(values), len(values))


def _by(rows: Sequence[Row], field: str, order: Sequence[str], summarise: Callable[[Sequence[Row]], T]) -> dict[str, T]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.get(field) or UNKNOWN, []).append(row)
    names = [*order, *sorted(set(groups) - {*order, UNKNOWN}), UNKNOWN]
    return {name: summarise(groups[name]) for name in names if name in groups}
