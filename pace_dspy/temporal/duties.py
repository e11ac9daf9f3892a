"""Where and how long the user is certainly bound on a day, by the facts of the evidence (ours)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from pace_dspy.temporal.cues import BOUND, CHANGED
from pace_dspy.temporal.records import Interval, TimeExpression
from pace_dspy.temporal.statements import Statement, exact_times, falls


@dataclass(frozen=True, slots=True)
class Duty:
    """A stretch the user cannot leave (ours).

    Attributes:
        facts: The facts it follows from.
        start: Its beginning, ``None`` when only the end is known.
        end: When the user is free again at the earliest.
        places: Names of where that is.
    """

    facts: tuple[Statement, ...]
    start: dt.datetime | None
    end: dt.datetime
    places: frozenset[str]


def tied(first: Statement, second: Statement) -> bool:
    """Whether two facts have a word of a name in common."""
    names = {word for name in first.names for word in name.split() if len(word) > 3}
    return bool(names & {word for name in second.names for word in name.split()})


def changed(about: Statement, statements: Sequence[Statement]) -> bool:
    """Whether a fact, or one that shares a name with it, speaks of a change of plan."""
    return any(CHANGED.search(s.text) for s in statements if s.doc_id == about.doc_id or tied(about, s))


def bound(statement: Statement, statements: Sequence[Statement]) -> bool:
    """Whether a fact, or one that is tied to it, says that the user cannot stay away."""
    return any(BOUND.search(s.text) for s in statements if s.doc_id == statement.doc_id or tied(statement, s))


def duties(statements: Sequence[Statement], day: dt.date) -> list[Duty]:
    """Return the duties of a day.

    A dated time counts by itself. A pattern that falls on the day may get its hours from another fact that is tied to
    it, when that fact gives exact times and no date of its own.
    """
    found: list[Duty] = []
    for statement in statements:
        if not bound(statement, statements):
            continue
        own = exact_times(statement, day)
        found.extend(_duty((statement,), interval) for interval in own)
        if own or not any(falls(x, day) for x in statement.times):
            continue
        for other in statements:
            if other.doc_id != statement.doc_id and tied(statement, other):
                stretch = _hours(other, day)
                if stretch is not None:
                    found.append(_duty((statement, other), stretch))
    return found


def _duty(facts: tuple[Statement, ...], interval: Interval) -> Duty:
    start = interval.start or dt.datetime.min
    end = interval.end or start
    if end - start <= dt.timedelta(minutes=1):  # a point: free from then on at the earliest, begun we do not know when
        return Duty(facts, None, start, _places(facts))
    return Duty(facts, start, end, _places(facts))


def _places(facts: tuple[Statement, ...]) -> frozenset[str]:
    return frozenset(name for fact in facts for name in fact.places)


def _hours(statement: Statement, day: dt.date) -> Interval | None:
    """Return the stretch of a fact's exact times without a date, from the first to the last."""
    stretches = [x.clocks[0].on(day) for x in statement.times if _plain(x)]
    starts = [stretch.start for stretch in stretches if stretch.start is not None]
    ends = [stretch.end for stretch in stretches if stretch.end is not None]
    if not starts or not ends or any(x.clocks[0].end is None for x in statement.times if _plain(x)):
        return None
    last = max(ends) - dt.timedelta(minutes=int(max(ends) - max(starts) == dt.timedelta(minutes=1)))
    return Interval(min(starts), max(last, min(starts) + dt.timedelta(minutes=1)), "minute")


def _plain(x: TimeExpression) -> bool:
    """Whether an expression is one exact time of day and nothing else."""
    dateless = x.kind == "time" and not x.intervals and x.recurrence is None
    return dateless and len(x.clocks) == 1 and x.clocks[0].exact
