"""Calendar arithmetic against a given date, built on dateutil; the system clock is never read (ours)."""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dateutil.easter import easter
from dateutil.relativedelta import MO, SU, relativedelta

from pace_dspy.temporal.records import Granularity, Interval, Meaning, Prefer, Recurrence

PAST_SLACK_DAYS = 45  # a request's "3 March" may lie this far back before next year's is meant (our choice)
_MIN, _MAX = 2, 9998


@dataclass(frozen=True, slots=True)
class Context:
    """What relative words are resolved against (ours).

    Attributes:
        reference: The day the text was written, ``None`` when unknown: relative words then stay unresolved.
        near: A day near which dates without a year lie; ``None``: they become yearly patterns.
        prefer: ``future`` for requests, ``nearest`` for facts.
    """

    reference: dt.date | None
    near: dt.date | None
    prefer: Prefer = "nearest"

    def choose(self, candidates: Iterable[dt.date]) -> dt.date | None:
        """Return the candidate the text most likely means, ``None`` without candidates or ``near``."""
        near, options = self.near, sorted(candidates)
        if near is None or not options:
            return None
        if self.prefer == "future":
            earliest = near - dt.timedelta(days=PAST_SLACK_DAYS)
            return next((day for day in options if day >= earliest), options[-1])
        return min(options, key=lambda day: (abs((day - near).days), -day.toordinal()))

    def years(self, span: int = 1) -> range:
        """Return the years around ``near`` (none without it)."""
        return range(0) if self.near is None else range(self.near.year - span, self.near.year + span + 1)


def midnight(day: dt.date) -> dt.datetime:
    """Return the first instant of a day."""
    return dt.datetime(day.year, day.month, day.day)


def days(first: dt.date, last: dt.date, granularity: Granularity = "day") -> Interval:
    """Return the interval from the first to the last day, both included."""
    return Interval(midnight(first), midnight(last) + dt.timedelta(days=1), granularity)


def dates(*options: dt.date | None) -> Meaning:
    """Return a date with one reading per distinct day."""
    readings = tuple(days(day, day) for day in dict.fromkeys(options) if day is not None)
    return Meaning(kind="date", intervals=readings, ambiguous=len(readings) > 1)


def valid(year: int, month: int, day: int) -> dt.date | None:
    """Return the date, or ``None`` where it does not exist."""
    try:
        return dt.date(year, month, day)
    except ValueError:
        return None


def day_of_month(context: Context, month: int, day: int, year: int | None, weekday: int | None) -> Meaning:
    """Resolve "Friday 27 March 2026" with year or weekday perhaps missing; both readings where they disagree."""
    if not 1 <= day <= calendar.monthrange(2024, month)[1] or (year is not None and not valid(year, month, day)):
        return Meaning(kind="date", impossible=True)
    if year is None and context.near is None:
        pattern = Recurrence(
            "yearly", months=(month,), month_days=(day,), weekdays=() if weekday is None else (weekday,)
        )
        return Meaning(kind="date", recurrence=pattern, ambiguous=True)
    span = 4 if (month, day) == (2, 29) else 1
    options = [valid(y, month, day) for y in ([year] if year else context.years(span))]
    existing = [option for option in options if option is not None]
    if weekday is None:
        return dates(existing[0] if year else context.choose(existing))
    fitting = [option for option in existing if option.weekday() == weekday]
    if fitting:
        return dates(context.choose(fitting) if len(fitting) > 1 else fitting[0])
    stated = existing[0] if year else context.choose(existing)
    return dates(stated, stated and nearest_weekday(stated, weekday))


def nearest_weekday(day: dt.date, weekday: int) -> dt.date:
    """Return the given weekday within three days of a day."""
    return day + dt.timedelta(days=(weekday - day.weekday() + 3) % 7 - 3)


def upcoming(day: dt.date, weekday: int, *, include: bool = False) -> dt.date:
    """Return the first such weekday after a day (or on it, with ``include``)."""
    ahead = (weekday - day.weekday()) % 7
    return day + dt.timedelta(days=ahead if ahead or include else 7)


def monday_of(day: dt.date) -> dt.date:
    """Return the Monday of a day's week."""
    return day + relativedelta(weekday=MO(-1))


def week(day: dt.date) -> Interval:
    """Return the week, Monday to Sunday, of a day."""
    return days(monday_of(day), day + relativedelta(weekday=SU(1)), "week")


def weekend(day: dt.date) -> Interval:
    """Return the Saturday and Sunday of a day's week."""
    monday = monday_of(day)
    return days(monday + dt.timedelta(days=5), monday + dt.timedelta(days=6), "weekend")


def month(year: int, number: int) -> Interval:
    """Return a calendar month."""
    first = dt.date(year, number, 1)
    return days(first, first + relativedelta(day=31), "month")


def season(year: int, first_month: int) -> Interval:
    """Return a northern meteorological season; winter belongs to the year it begins in."""
    first = dt.date(year, first_month, 1)
    return days(first, first + relativedelta(months=2, day=31), "season")


def whole_year(year: int) -> Interval:
    """Return a calendar year."""
    return days(dt.date(year, 1, 1), dt.date(year, 12, 31), "year")


def nth_weekday(year: int, month_number: int, weekday: int, ordinal: int) -> dt.date | None:
    """Return the nth such weekday of a month (-1 for the last), ``None`` where there is none."""
    last = calendar.monthrange(year, month_number)[1]
    found = [
        dt.date(year, month_number, d)
        for d in range(1, last + 1)
        if dt.date(year, month_number, d).weekday() == weekday
    ]
    if ordinal == -1:
        return found[-1]
    return found[ordinal - 1] if 1 <= ordinal <= len(found) else None


def holiday(year: int, rule: tuple[int, int] | int) -> dt.date:
    """Return a holiday's date in a year: fixed, or counted from Easter Sunday."""
    if isinstance(rule, tuple):
        return dt.date(year, *rule)
    return easter(year) + dt.timedelta(days=rule)


def shift(day: dt.date, length: relativedelta, sign: int = 1) -> dt.date | None:
    """Return the day a length later (or earlier), ``None`` outside years 2 to 9998."""
    try:
        moved = day + length if sign > 0 else day - length
    except (ValueError, OverflowError):
        return None
    return moved if _MIN <= moved.year <= _MAX else None


def around(context: Context, build: Callable[[int], Interval]) -> Interval | None:
    """Return the reading of a year-less month or season (``build(year)``) that the text most likely means."""
    options = {midpoint(interval): interval for interval in (build(year) for year in context.years())}
    if context.prefer == "future" and context.near is not None:
        ahead = [i for i in options.values() if i.end is not None and i.end > midnight(context.near)]
        return min(ahead, key=lambda i: i.start or dt.datetime.min, default=None)
    chosen = context.choose(options)
    return None if chosen is None else options[chosen]


def midpoint(interval: Interval) -> dt.date:
    """Return the middle day of a closed interval."""
    start, end = interval.start or dt.datetime.min, interval.end or dt.datetime.max
    return (start + (end - start) / 2).date()
