"""Times of day: readings of an hour without am or pm, parts of the day, and a date joined with a time (ours)."""

from __future__ import annotations

import dataclasses
import datetime as dt

from pace_dspy.temporal.lexicon import PARTS
from pace_dspy.temporal.records import Clock, Interval, Meaning

_HALF_DAY = 12


def part_clock(part: str) -> Clock:
    """Return the hours of a part of the day."""
    first, last = PARTS[part]
    return Clock(dt.time(first), dt.time(last), exact=False)


def readings(hour: int, minute: int = 0) -> tuple[dt.time, ...]:
    """Return the times "at seven" can mean, likelier first (7 to 11 in the morning, 1 to 6 in the afternoon)."""
    if not 0 <= hour <= 24 or not 0 <= minute <= 59 or (hour == 24 and minute):
        return ()
    if hour in (0, 24) or hour >= _HALF_DAY:
        return (dt.time(hour % 24, minute),)
    early, late = dt.time(hour, minute), dt.time(hour + _HALF_DAY, minute)
    return (early, late) if hour >= 7 else (late, early)


def minutes(time: dt.time) -> int:
    """Return minutes since midnight."""
    return time.hour * 60 + time.minute


def stretches(starts: tuple[dt.time, ...], ends: tuple[dt.time, ...]) -> tuple[Clock, ...]:
    """Return the readings of "from nine till five": each start with the nearest end after it, shortest first."""
    found = []
    for start in starts:
        gaps = {(minutes(end) - minutes(start)) % 1440: end for end in ends}
        gaps.pop(0, None)
        if gaps:
            gap = min(gaps)
            found.append((gap, Clock(start, gaps[gap])))
    if len(ends) == 1 and len(starts) > 1:  # "7-8 PM": the end decides
        return tuple(clock for _, clock in sorted(found, key=lambda item: item[0])[:1])
    return tuple(clock for _, clock in found)


def in_part(clock: Clock, part: Clock) -> bool:
    """Whether a time begins (or, without beginning, ends) in a part of the day or two hours before it."""
    moment = clock.start if clock.start is not None else clock.end
    if moment is None or part.start is None or part.end is None:
        return True
    first, last, at = minutes(part.start) - 120, minutes(part.end), minutes(moment)
    return first <= at <= last if first < last else at >= first or at <= last


def narrowed(clocks: tuple[Clock, ...], part: Clock) -> tuple[Clock, ...]:
    """Return the readings that fit a part of the day, or all when none does."""
    return tuple(clock for clock in clocks if in_part(clock, part)) or clocks


def combine(date: Meaning, clocks: tuple[Clock, ...]) -> Meaning:
    """Return a date (or a recurrence) with a time of day: every reading of one with every reading of the other."""
    ambiguous = date.ambiguous or len(clocks) > 1
    pattern = date.recurrence and dataclasses.replace(date.recurrence, clock=clocks[0] if clocks else None)
    if date.impossible or not date.intervals:
        kind = date.kind if date.impossible or date.kind == "recurrence" else "datetime"
        return dataclasses.replace(date, kind=kind, recurrence=pattern, clocks=clocks, ambiguous=ambiguous)
    found: list[Interval] = []
    for day in date.intervals:
        if day.start is None or day.end is None or (day.end - day.start) > dt.timedelta(days=1):
            return dataclasses.replace(date, clocks=clocks, ambiguous=ambiguous)
        found.extend(clock.on(day.start.date()) for clock in clocks)
    return Meaning(kind="datetime", intervals=tuple(found), ambiguous=ambiguous, recurrence=pattern, clocks=clocks)
