"""Do two times touch? Recurrences are expanded by dateutil's ``rrule``, only over the interval asked for (ours)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Literal

from dateutil import rrule

from pace_dspy.temporal.context import monday_of
from pace_dspy.temporal.records import Interval, Recurrence, TimeExpression

_FREQUENCIES: dict[str, Literal[0, 1, 2, 3]] = {
    "daily": rrule.DAILY, "weekly": rrule.WEEKLY, "monthly": rrule.MONTHLY, "yearly": rrule.YEARLY,
}  # fmt: skip
_WEEKDAYS = (rrule.MO, rrule.TU, rrule.WE, rrule.TH, rrule.FR, rrule.SA, rrule.SU)
MAX_EXPANDED_DAYS = 3660
_DAY = dt.timedelta(days=1)


def occurs(pattern: Recurrence) -> bool:
    """Whether a pattern says on which days it falls ("every other week" alone does not)."""
    if pattern.frequency == "weekly":
        return bool(pattern.weekdays or pattern.anchor)
    if pattern.frequency in ("monthly", "yearly"):
        return bool(pattern.weekdays or pattern.month_days or pattern.months)
    return True


def occurrences(pattern: Recurrence, interval: Interval) -> tuple[Interval, ...]:
    """Return a pattern's occurrences that touch an interval, in order.

    Args:
        pattern: The recurrence; one that skips weeks without an anchor is expanded to every week it may mean.
        interval: Where to look; an open side is cut ten years away.

    Returns:
        Whole days, or the time of day where the pattern has one.
    """
    if not occurs(pattern) or (interval.start is None and interval.end is None):
        return ()
    first = (interval.start or (interval.end or dt.datetime.max) - _DAY * MAX_EXPANDED_DAYS).date() - _DAY
    last = interval.end.date() if interval.end else first + _DAY * MAX_EXPANDED_DAYS
    last = min(last, first + _DAY * MAX_EXPANDED_DAYS, pattern.until or last)
    first = max(first, pattern.since or first)
    if last < first:
        return ()
    found = []
    for moment in _rule(pattern, first, last):
        day = moment.date()
        span = pattern.clock.on(day) if pattern.clock else Interval(moment, moment + _DAY)
        if span.overlaps(interval):
            found.append(span)
    return tuple(found)


def _rule(pattern: Recurrence, first: dt.date, last: dt.date) -> rrule.rrule:
    """Return the ``rrule`` of a pattern from ``first`` on, in step with its anchor."""
    step = pattern.interval if pattern.anchor else 1
    start = first
    if pattern.anchor and step > 1:
        if pattern.frequency == "weekly":
            weeks = (monday_of(first) - monday_of(pattern.anchor)).days // 7
            start = monday_of(first) - dt.timedelta(weeks=weeks % step)
        elif pattern.frequency == "daily":
            start = first - _DAY * ((first - pattern.anchor).days % step)
        else:
            start = min(pattern.anchor, first)
    weekdays = pattern.weekdays or (
        (pattern.anchor.weekday(),) if pattern.frequency == "weekly" and pattern.anchor else ()
    )
    by_day = [_WEEKDAYS[day](n) for day in weekdays for n in pattern.ordinals] or [_WEEKDAYS[day] for day in weekdays]
    every_day = pattern.frequency == "yearly" and not (weekdays or pattern.month_days)
    return rrule.rrule(
        rrule.DAILY if every_day else _FREQUENCIES[pattern.frequency],
        dtstart=dt.datetime(start.year, start.month, start.day),
        until=dt.datetime(last.year, last.month, last.day),
        interval=1 if every_day else step,
        wkst=rrule.MO,
        byweekday=by_day or None,
        bymonthday=pattern.month_days or None,
        bymonth=pattern.months or None,
    )


def touches(times: TimeExpression | Iterable[Interval], interval: Interval, *, sure: bool = False) -> bool:
    """Return whether any reading of a time touches an interval.

    Args:
        times: A found expression, or intervals.
        interval: The interval asked about; two open sides are unknown and touch nothing.
        sure: Leave out ambiguous expressions.
    """
    if not isinstance(times, TimeExpression):
        return any(found.overlaps(interval) for found in times)
    if times.impossible or (sure and times.ambiguous):
        return False
    if times.intervals:
        return any(found.overlaps(interval) for found in times.intervals)
    pattern = times.recurrence
    if pattern is None or not _may_fall(pattern, interval):
        return False
    return bool(occurrences(pattern, interval))


def _may_fall(pattern: Recurrence, interval: Interval) -> bool:
    """Skip the expansion when no weekday of a short interval (or the evening before) is the pattern's."""
    if not pattern.weekdays or interval.start is None or interval.end is None:
        return True
    length = (interval.end - interval.start).days + 2
    if length >= 7:
        return True
    first = interval.start.date() - _DAY
    return any((first + _DAY * n).weekday() in pattern.weekdays for n in range(length + 1))
