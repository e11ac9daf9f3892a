"""Rules that join pieces: a date with a time, ranges, open ends, a start with a duration (ours)."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from pace_dspy.temporal import context as cal
from pace_dspy.temporal.context import Context
from pace_dspy.temporal.grammar import Grammar, Match
from pace_dspy.temporal.records import Clock, Interval, Meaning
from pace_dspy.temporal.times import combine, narrowed, part_clock

COMBINED = Grammar()
_DAY = "(DATE|EVERY)"
_WHEN = "(DATE|DATETIME)"


@COMBINED.rule(
    "((on|in)? the)? (early|late)? (PART|PARTS) of the? DATE",
    f"{_DAY} (early|late)? (PART|PARTS)",
    "DATE in the (PART|PARTS)",
    needs="PART PARTS",
)
def _part_of_day(match: Match, _: Context) -> tuple[str, Any] | None:
    if any(interval.coarse for interval in match.get("DATE", "EVERY").intervals):
        return None
    name = "EVERY" if match.has("EVERY") else "DATETIME"
    return name, combine(match.get("DATE", "EVERY"), (part_clock(match.get("PART", "PARTS")),))


@COMBINED.rule(
    f"{_DAY} (COMMA|at|from|between|DASH|STOPLESS)? TIME",
    f"TIME COMMA? (on the|on|COMMA)? {_DAY}",
    "DATETIME (COMMA|at)? TIME",
    "TIME (COMMA|on)? DATETIME",
    needs="TIME",
)
def _date_and_time(match: Match, _: Context) -> tuple[str, Any] | None:
    clocks, date = match.get("TIME").clocks, match.get("DATE", "EVERY", "DATETIME")
    if match.has("DATETIME"):
        if not date.clocks or date.clocks[0].exact or not clocks[0].exact:
            return None
        starts = [i.start.date() for i in date.intervals if i.start is not None]
        clocks = narrowed(clocks, date.clocks[0])
        if not starts:
            return "DATETIME", dataclasses.replace(date, clocks=clocks)
        return "DATETIME", combine(cal.dates(*starts), clocks)
    return ("EVERY" if match.has("EVERY") else "DATETIME"), combine(date, clocks)


@COMBINED.rule("DATETIME for DUR", "for DUR (from|at) DATETIME", needs="DUR")
def _lasting_time(match: Match, _: Context) -> tuple[str, Any] | None:
    meaning, length = match.get("DATETIME"), match.get("DUR").length
    points = [i.start for i in meaning.intervals if i.start is not None and i.granularity == "minute"]
    if len(points) != len(meaning.intervals) or not points:
        return None
    readings = tuple(Interval(start, start + length, "minute") for start in points)
    clocks = tuple(Clock(i.start.time(), i.end.time()) for i in readings if i.start and i.end)
    return "DATETIME", dataclasses.replace(meaning, intervals=readings, clocks=clocks)


@COMBINED.rule(
    "for (DUR|ADUR) (from|starting|beginning) on? DATE",
    "(from|starting|beginning)? on? DATE for (DUR|ADUR)",
    needs="DUR ADUR",
)
def _lasting_days(match: Match, _: Context) -> tuple[str, Any] | None:
    length, meaning = match.get("DUR", "ADUR"), match.get("DATE")
    if length.clock or length.working:
        return None
    starts = [i.start for i in meaning.intervals if i.start is not None and i.granularity == "day"]
    readings = tuple(Interval(start, start + length.steps) for start in starts)
    return "RANGE", Meaning(kind="range", intervals=readings, ambiguous=len(readings) > 1)


@COMBINED.rule(
    f"(from|between)? {_WHEN} (to|until|till|through|and|DASH) (late|on|early)? on? {_WHEN}", needs="DATE DATETIME"
)
def _range(match: Match, _: Context) -> tuple[str, Any] | None:
    if match.has("and") and not match.has("between"):
        return None
    first, last = match.all("DATE", "DATETIME")
    if first.impossible or last.impossible:
        return "RANGE", Meaning(kind="range", impossible=True)
    pairs = [(a, b) for a in first.intervals for b in last.intervals if a.start and b.end and a.start < b.end]
    if not pairs:
        return ("RANGE", Meaning(kind="range")) if not (first.intervals and last.intervals) else None
    pairs = pairs if first.ambiguous or last.ambiguous else pairs[:1]
    readings = tuple(dict.fromkeys(Interval(a.start, _end(b), b.granularity) for a, b in pairs))
    return "RANGE", Meaning(kind="range", intervals=readings, ambiguous=len(readings) > 1)


def _end(interval: Interval) -> dt.datetime | None:
    """A point ends a range where it starts; a day, where the day ends."""
    point = interval.granularity == "minute" and interval.start and interval.end
    if point and interval.start and interval.end and interval.end - interval.start <= dt.timedelta(minutes=1):
        return interval.start
    return interval.end


@COMBINED.rule(
    f"(until|till|through|by|before) (late|early)? on? the? {_WHEN}",
    f"(up|right) (to|until) {_WHEN}",
    needs="DATE DATETIME",
)
def _open_start(match: Match, _: Context) -> tuple[str, Any] | None:
    meaning = match.get("DATE", "DATETIME")
    if meaning.kind == "recurrence":
        return None
    ends = [i.start if match.has("before") else _end(i) for i in meaning.intervals]
    return _open(meaning, [Interval(None, end, i.granularity) for i, end in zip(meaning.intervals, ends, strict=True)])


@COMBINED.rule(
    f"(since|from|after) (late|early)? on? {_WHEN} (on|onwards|onward)? (?!DATE)",
    f"as (of|from) {_WHEN}",
    f"{_WHEN} (onwards|onward)",
    f"(until|till) after {_WHEN}",
    needs="DATE DATETIME",
)
def _open_end(match: Match, _: Context) -> tuple[str, Any] | None:
    meaning = match.get("DATE", "DATETIME")
    if meaning.kind == "recurrence" or (
        match.has("from") and meaning.intervals[:1] and meaning.intervals[0].granularity == "year"
    ):
        return None
    starts = [_end(i) if match.has("after") else i.start for i in meaning.intervals]
    return _open(
        meaning, [Interval(start, None, i.granularity) for i, start in zip(meaning.intervals, starts, strict=True)]
    )


def _open(meaning: Meaning, readings: list[Interval]) -> tuple[str, Any]:
    return "RANGE", Meaning(
        kind="range", intervals=tuple(readings), ambiguous=meaning.ambiguous and len(readings) > 1,
        impossible=meaning.impossible, clocks=meaning.clocks,
    )  # fmt: skip


@COMBINED.rule("EVERY (in|during)? (RANGE|DATE)", needs="EVERY")
def _bounded(match: Match, _: Context) -> tuple[str, Any] | None:
    """Read "every Tuesday until 30 June"."""
    pattern, bound = match.get("EVERY"), match.get("RANGE", "DATE")
    coarse = bound.intervals and (match.has("RANGE") or bound.intervals[0].coarse or match.has("in", "during"))
    if not coarse or pattern.recurrence is None:
        return None
    start, end = bound.intervals[0].start, bound.intervals[0].end
    limited = dataclasses.replace(
        pattern.recurrence,
        since=start.date() if start else None,
        until=(end - dt.timedelta(microseconds=1)).date() if end else None,
    )
    if start and limited.interval > 1 and bound.intervals[0].granularity == "day":
        days = limited.weekdays or ((start.weekday(),) if limited.frequency == "weekly" else ())
        limited = dataclasses.replace(limited, anchor=start.date(), weekdays=days)
    return "EVERY", dataclasses.replace(pattern, recurrence=limited)
