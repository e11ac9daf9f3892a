"""Frozen records of the temporal package (ours; the paper has no time handling).

Intervals are half-open, ``[start, end)``, in naive local time; a missing side is open. "Friday" is
``[Fri 00:00, Sat 00:00)``; a point such as "at 19:00" is one minute long.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

Granularity = Literal["minute", "daypart", "day", "weekend", "week", "part", "month", "season", "year"]
Frequency = Literal["daily", "weekly", "monthly", "yearly"]
Kind = Literal["date", "datetime", "time", "range", "recurrence", "duration"]
Prefer = Literal["future", "nearest"]

COARSE: frozenset[Granularity] = frozenset({"part", "month", "season", "year"})


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of time (ours).

    Attributes:
        start: First instant, ``None`` when open ("until 21 March").
        end: First instant after it, ``None`` when open ("since January").
        granularity: How exact the words were.
    """

    start: dt.datetime | None
    end: dt.datetime | None
    granularity: Granularity = "day"

    @property
    def open_start(self) -> bool:
        """Whether the interval has no beginning."""
        return self.start is None

    @property
    def open_end(self) -> bool:
        """Whether the interval has no end."""
        return self.end is None

    @property
    def coarse(self) -> bool:
        """Whether the words were vague: a part of a month, a month, a season or a year."""
        return self.granularity in COARSE

    def overlaps(self, other: Interval) -> bool:
        """Whether both share at least one instant; open sides reach without limit."""
        return (self.start is None or other.end is None or self.start < other.end) and (
            other.start is None or self.end is None or other.start < self.end
        )


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day or a stretch of one (ours).

    Attributes:
        start: First moment, ``None`` for "until 07:45".
        end: First moment after it, ``None`` for "from 18:00"; at or before ``start`` means the next day.
        exact: False for a part of the day ("morning").
    """

    start: dt.time | None
    end: dt.time | None
    exact: bool = True

    @property
    def point(self) -> bool:
        """Whether it is a single moment ("at 19:00")."""
        return self.start is not None and self.start == self.end

    def on(self, day: dt.date) -> Interval:
        """Return the interval on a day; an open side reaches to the day's edge."""
        start = dt.datetime.combine(day, self.start or dt.time())
        if self.end is None:
            end = dt.datetime.combine(day, dt.time()) + dt.timedelta(days=1)
        elif self.point:
            end = start + dt.timedelta(minutes=1)
        else:
            end = dt.datetime.combine(day, self.end)
            if self.start is not None and self.end <= self.start:
                end += dt.timedelta(days=1)
        return Interval(start, end, "minute" if self.exact else "daypart")


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A repeating pattern, expanded only over the interval asked for (ours).

    Attributes:
        frequency: The repeating unit.
        interval: Every nth unit; counted from ``anchor``. Without an anchor any of the units may be meant.
        weekdays: Monday 0 to Sunday 6, ascending.
        ordinals: Which of these weekdays in the month, 1 to 5, -1 for the last; empty for all.
        month_days: Days of the month, -1 for the last.
        months: Months of the year, 1 to 12.
        anchor: A day on which the pattern is known to fall.
        since: First possible day.
        until: Last possible day.
        clock: Time of day.
    """

    frequency: Frequency
    interval: int = 1
    weekdays: tuple[int, ...] = ()
    ordinals: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    months: tuple[int, ...] = ()
    anchor: dt.date | None = None
    since: dt.date | None = None
    until: dt.date | None = None
    clock: Clock | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What time words mean (ours).

    Attributes:
        kind: Sort of expression.
        intervals: Every reading, likeliest first; empty when unresolved (no reference) or impossible.
        ambiguous: More than one reading is possible; all are kept.
        recurrence: The pattern of a recurring expression (also of a year-less date without a reference).
        duration: Length, of a duration.
        clocks: Readings of the time of day, likeliest first.
        impossible: The date does not exist ("31 February").
    """

    kind: Kind
    intervals: tuple[Interval, ...] = ()
    ambiguous: bool = False
    recurrence: Recurrence | None = None
    duration: dt.timedelta | None = None
    clocks: tuple[Clock, ...] = ()
    impossible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeExpression(Meaning):
    """A time expression found in a text (ours).

    Attributes:
        text: The words, ``source[span[0]:span[1]]``.
        span: Character positions in the source.
    """

    text: str
    span: tuple[int, int]
