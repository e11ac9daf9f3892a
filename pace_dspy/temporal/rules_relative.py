"""Rules for words that count from the reference date: weekdays, "tomorrow", "in three days" (ours)."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pace_dspy.temporal import context as cal
from pace_dspy.temporal.context import Context
from pace_dspy.temporal.grammar import Grammar, Match
from pace_dspy.temporal.records import Clock, Meaning, Recurrence
from pace_dspy.temporal.rules_coarse import period
from pace_dspy.temporal.times import combine, part_clock

RELATIVE = Grammar()
_WEEK = dt.timedelta(days=7)
_UNRESOLVED = Meaning(kind="date")


@RELATIVE.rule("the? UNIT (after|before) REL", "REL", needs="REL")
def _day_word(match: Match, context: Context) -> tuple[str, Any] | None:
    if context.reference is None:
        return "DATE", _UNRESOLVED
    step = match.get("REL") + match.has("after") - match.has("before")
    return "DATE", cal.dates(context.reference + dt.timedelta(days=step))


@RELATIVE.rule("tonight", "last (PART|PARTS)", "this PART", needs="tonight PART")
def _part_of_today(match: Match, context: Context) -> tuple[str, Any]:
    clock = Clock(dt.time(18), dt.time(0), exact=False) if match.has("tonight") else part_clock(match.get("PART"))
    if context.reference is None:
        return "DATETIME", Meaning(kind="datetime", clocks=(clock,))
    day = context.reference - dt.timedelta(days=int(match.has("last")))
    return "DATETIME", combine(cal.dates(day), (clock,))


@RELATIVE.rule("from? WEEKDAY (to|until|through|DASH) WEEKDAY", "between WEEKDAY and WEEKDAY", needs="WEEKDAY")
def _weekday_range(match: Match, context: Context) -> tuple[str, Any]:
    first, last = match.all("WEEKDAY")
    if context.reference is None:
        days = sorted((first + n) % 7 for n in range((last - first) % 7 + 1))
        pattern = Recurrence("weekly", weekdays=tuple(days))
        return "EVERY", Meaning(kind="recurrence", recurrence=pattern, ambiguous=True)
    start = cal.upcoming(context.reference, first, include=True)
    return "RANGE", Meaning(kind="range", intervals=(cal.days(start, cal.upcoming(start, last)),))


@RELATIVE.rule("(?<!for) (ADUR|DUR) (on|from) WEEKDAY", "WEEKDAY UNIT", "WEEKDAY after next", needs="WEEKDAY")
def _weeks_from_weekday(match: Match, context: Context) -> tuple[str, Any] | None:
    """Read "a week on Friday", "two weeks from Monday", "Friday week"."""
    length, unit = match.get("ADUR", "DUR"), match.get("UNIT")
    if (unit and unit != "weeks") or (length and (length.clock or (match.has("on") and not match.has("ADUR")))):
        return None
    if unit and match.tokens[match.end - 1].end - match.tokens[match.end - 1].start != 4:
        return None
    if context.reference is None:
        return "DATE", _UNRESOLVED
    day = cal.upcoming(context.reference, match.get("WEEKDAY"))
    return "DATE", cal.dates(cal.shift(day, length.steps) if length else day + _WEEK)


@RELATIVE.rule(
    "(this|the)? (coming|past)? (this|next|last) (coming|past)? WEEKDAY", "the? (coming|past) WEEKDAY", needs="WEEKDAY"
)
def _near_weekday(match: Match, context: Context) -> tuple[str, Any]:
    """Keep both readings of "next Friday" said on a Wednesday: in two days, or in nine."""
    if context.reference is None:
        return "DATE", _UNRESOLVED
    day, weekday = context.reference, match.get("WEEKDAY")
    monday = cal.monday_of(day)
    ahead = cal.upcoming(day, weekday)
    if match.has("next"):
        return "DATE", cal.dates(ahead, monday + _WEEK + dt.timedelta(days=weekday))
    if match.has("last", "past"):
        back = ahead - _WEEK if ahead - _WEEK < day else ahead - 2 * _WEEK
        return "DATE", cal.dates(back, None if match.has("past") else monday - _WEEK + dt.timedelta(days=weekday))
    if match.has("coming"):
        return "DATE", cal.dates(ahead)
    this_week = monday + dt.timedelta(days=weekday)
    if context.prefer == "future":
        return "DATE", cal.dates(cal.upcoming(day, weekday, include=True))
    return "DATE", cal.dates(this_week, None if this_week >= day else ahead)


@RELATIVE.rule("WEEKDAY", needs="WEEKDAY")
def _bare_weekday(match: Match, context: Context) -> tuple[str, Any]:
    """Read "on Thursday": the next in a request, either side of a dated fact, else perhaps weekly."""
    weekday, day = match.get("WEEKDAY"), context.reference
    if day is None:
        pattern = Recurrence("weekly", weekdays=(weekday,))
        return "DATE", Meaning(kind="recurrence", recurrence=pattern, ambiguous=True)
    ahead, same = cal.upcoming(day, weekday), day.weekday() == weekday
    if context.prefer == "future":
        return "DATE", cal.dates(ahead, day if same else None)
    return "DATE", cal.dates(day if same else None, ahead - _WEEK if not same else None, ahead if not same else None)


@RELATIVE.rule(
    "the weekend after next",
    "(this|next|last|coming|past) (coming|past)? weekend (?!of)",
    "the (coming|past)? weekend (?!of|WORD)",
    needs="weekend",
)
def _weekend(match: Match, context: Context) -> tuple[str, Any]:
    if context.reference is None:
        return "DATE", _UNRESOLVED
    day = context.reference
    this, following = cal.weekend(day), cal.weekend(day + _WEEK)
    if match.has("after"):
        options = [following if day.weekday() < 5 else cal.weekend(day + 2 * _WEEK)]
    elif match.has("next"):
        options = [following] if day.weekday() >= 5 else [this, following]
    elif match.has("last", "past"):
        options = [cal.weekend(day - _WEEK)]
    else:
        options = [this]
    return "DATE", Meaning(kind="date", intervals=tuple(options), ambiguous=len(options) > 1)


@RELATIVE.rule("the UNIT (after next|before last)", "(this|next|last) UNIT (?!of)", needs="UNIT")
def _period(match: Match, context: Context) -> tuple[str, Any] | None:
    unit = match.get("UNIT")
    if unit not in ("weeks", "months", "years"):
        return None
    if context.reference is None:
        return "DATE", _UNRESOLVED
    step = (
        -2
        if match.has("before")
        else 2
        if match.has("after")
        else 1
        if match.has("next")
        else -1
        if match.has("last")
        else 0
    )
    return "DATE", Meaning(kind="date", intervals=(period(context.reference, unit, step),))


@RELATIVE.rule(
    "(in|over|during|for|within)? the (next|last|past|coming) (DUR|UNIT)", "within (DUR|ADUR)", needs="DUR ADUR UNIT"
)
def _window(match: Match, context: Context) -> tuple[str, Any] | None:
    """Read "in the next two weeks", "within three days"."""
    length = match.get("DUR", "ADUR")
    if length is None or length.clock:
        return None
    if context.reference is None:
        return "RANGE", Meaning(kind="range")
    back = match.has("last", "past")
    other = cal.shift(context.reference, length.steps, -1 if back else 1) or context.reference
    first, last = sorted((context.reference, other))
    return "RANGE", Meaning(kind="range", intervals=(cal.days(first, last),))


@RELATIVE.rule("in (DUR|ADUR) (time)? (?!WORD)", "(DUR|ADUR) ago", "(DUR|ADUR) from now", needs="DUR ADUR")
def _offset(match: Match, context: Context) -> tuple[str, Any] | None:
    length = match.get("DUR", "ADUR")
    if length.clock or length.working:
        return None
    if context.reference is None:
        return "DATE", _UNRESOLVED
    day = cal.shift(context.reference, length.steps, -1 if match.has("ago") else 1)
    if length.unit in ("months", "years") and day is not None:
        around = period(day, length.unit, 0)
        return "DATE", Meaning(kind="date", intervals=(cal.days(day, day), around), ambiguous=True)
    return "DATE", cal.dates(day)


@RELATIVE.rule("(?<!for) (DUR|ADUR) (after|before|from) DATE", needs="DATE")
def _offset_from_date(match: Match, _: Context) -> tuple[str, Any] | None:
    length, meaning = match.get("DUR", "ADUR"), match.get("DATE")
    if length.clock or length.working:
        return None
    sign = -1 if match.has("before") else 1
    starts = [i.start.date() for i in meaning.intervals if i.start is not None and i.granularity == "day"]
    return "DATE", cal.dates(*(cal.shift(day, length.steps, sign) for day in starts))
