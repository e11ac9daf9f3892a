"""Rules for vague dates: parts of months, months, seasons, years (ours)."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from dateutil.relativedelta import relativedelta

from pace_dspy.temporal import context as cal
from pace_dspy.temporal.context import Context
from pace_dspy.temporal.grammar import Grammar, Match
from pace_dspy.temporal.lexer import kind
from pace_dspy.temporal.records import Interval, Meaning

COARSE_DATES = Grammar()
_LEADS = "in since until till by through throughout of from during before after to DASH between over around about"
# First and last day of each part of a month (our choice); negative days count from the end.
_PARTS = {
    "early": (1, 10), "mid": (11, 20), "middle": (11, 20), "late": (21, -1),
    "beginning": (1, 7), "start": (1, 7), "end": (-7, -1),
}  # fmt: skip


def part_of(interval: Interval, part: str) -> Interval:
    """Return the early, middle or late part (or the start or end) of a month, a season or a year."""
    assert interval.start is not None  # only ever called with a closed interval
    assert interval.end is not None
    first, last = interval.start.date(), (interval.end - dt.timedelta(days=1)).date()
    low, high = _PARTS[part]
    if interval.granularity == "month":
        days = [first + dt.timedelta(days=n - 1) if n > 0 else last + dt.timedelta(days=n + 1) for n in (low, high)]
    else:
        third = (last - first).days // 3
        step = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}[part]
        days = [
            first + dt.timedelta(days=third * step),
            last if step == 2 else first + dt.timedelta(days=third * (step + 1)),
        ]
    return cal.days(days[0], days[1], "part")


def _month(match: Match, context: Context, number: int, year: int | None) -> Interval | None:
    if year:
        return cal.month(year, number)
    before = match.tokens[match.start - 1].value if match.start else None
    if before == "since" and context.near is not None:
        near = context.near
        return cal.month(near.year if number <= near.month else near.year - 1, number)
    if before == "the":  # "the June samples" speaks of one that is known, so rarely of next year's
        context = dataclasses.replace(context, prefer="nearest")
    return cal.around(context, lambda y: cal.month(y, number))


def _date(interval: Interval | None) -> tuple[str, Any]:
    return "DATE", Meaning(kind="date", intervals=() if interval is None else (interval,))


@COARSE_DATES.rule(
    "(early|mid|late) (in|DASH)? MONTH (COMMA? YEAR)?",
    "the? (beginning|start|middle|end) of MONTH (COMMA? YEAR)?",
    needs="MONTH",
)
def _part_of_month(match: Match, context: Context) -> tuple[str, Any]:
    interval = _month(match, context, match.get("MONTH"), match.get("YEAR"))
    return _date(interval and part_of(interval, match.get(*_PARTS)))


@COARSE_DATES.rule("the? (last|ORD) UNIT (of|in) MONTH (COMMA? YEAR)?", needs="MONTH")
def _week_of_month(match: Match, context: Context) -> tuple[str, Any] | None:
    """Resolve "the last week of May" to its last seven days."""
    ordinal = match.get("ORD")
    if match.get("UNIT") != "weeks" or ordinal not in (None, 1):
        return None
    interval = _month(match, context, match.get("MONTH"), match.get("YEAR"))
    return _date(interval and part_of(interval, "start" if ordinal else "end"))


@COARSE_DATES.rule("the? (beginning|start|middle|end) of (the|this|next|last) UNIT", needs="UNIT")
def _part_of_period(match: Match, context: Context) -> tuple[str, Any] | None:
    unit = match.get("UNIT")
    if unit not in ("weeks", "months", "years"):
        return None
    if context.reference is None:
        return _date(None)
    step = 1 if match.has("next") else -1 if match.has("last") else 0
    base = period(context.reference, unit, step)
    if unit == "weeks":
        monday = base.start.date() if base.start else context.reference
        first = {"beginning": 0, "start": 0, "middle": 2, "end": 4}[match.get(*_PARTS)]
        return _date(cal.days(monday + dt.timedelta(days=first), monday + dt.timedelta(days=min(first + 2, 6))))
    return _date(part_of(base, match.get(*_PARTS)))


def period(day: dt.date, unit: str, step: int) -> Interval:
    """Return the week, month or year that lies ``step`` units from the one of a day."""
    if unit == "weeks":
        return cal.week(day + dt.timedelta(weeks=step))
    if unit == "years":
        return cal.whole_year(day.year + step)
    moved = day.replace(day=1) + relativedelta(months=step)
    return cal.month(moved.year, moved.month)


@COARSE_DATES.rule("(this|next|last) (MONTH|SEASON) (?!WORD)", needs="MONTH SEASON")
def _relative_month(match: Match, context: Context) -> tuple[str, Any]:
    if context.reference is None:
        return _date(None)
    day, number = context.reference, match.get("MONTH", "SEASON")
    build = cal.month if match.has("MONTH") else cal.season
    options = [build(day.year + step, number) for step in range(-2, 3)]
    now = cal.midnight(day)
    current = [i for i in options if i.end and i.start and i.start <= now < i.end]
    later = [i for i in options if i.start and i.start > now]
    past = [i for i in options if i.end and i.end <= now]
    if match.has("last"):
        return _date(past[-1])
    return _date(later[0] if match.has("next") or not current else current[0])


@COARSE_DATES.rule("(from|between)? MONTH (to|until|through|and|DASH) MONTH YEAR", needs="YEAR")
def _months_of_year(match: Match, _: Context) -> tuple[str, Any] | None:
    first, last = match.all("MONTH")
    if first >= last or (match.has("and") and not match.has("between")):
        return None
    start, end = (cal.month(match.get("YEAR"), number) for number in (first, last))
    return "RANGE", Meaning(kind="range", intervals=(Interval(start.start, end.end, "month"),))


@COARSE_DATES.rule("MONTH (of|COMMA)? YEAR", needs="YEAR")
def _month_and_year(match: Match, _: Context) -> tuple[str, Any]:
    return _date(cal.month(match.get("YEAR"), match.get("MONTH")))


@COARSE_DATES.rule(
    f"(?<=[{_LEADS} the]) MONTH", "(?<=for) MONTH (?!WORD)", "MONTH (?=and MONTH)",
    "(?<=DATE and) MONTH", "MONTH (?=(to|through|DASH)MONTH)",
    needs="MONTH",
)  # fmt: skip
def _bare_month(match: Match, context: Context) -> tuple[str, Any]:
    return _date(_month(match, context, match.get("MONTH"), None))


@COARSE_DATES.rule(
    "(early|mid|late|the)? DASH? SEASON of? YEAR",
    "(?<=[in since until till by during before after]) (early|mid|late|the)? DASH? SEASON (?!WORD|UNIT)",
    needs="SEASON",
)
def _season(match: Match, context: Context) -> tuple[str, Any]:
    year, number = match.get("YEAR"), match.get("SEASON")
    interval = cal.season(year, number) if year else cal.around(context, lambda y: cal.season(y, number))
    part = match.get("early", "mid", "late")
    return _date(part_of(interval, part) if interval and part else interval)


@COARSE_DATES.rule(f"(?<=[{_LEADS} and]) (early|mid|late)? DASH? YEAR", needs="YEAR")
def _year(match: Match, _: Context) -> tuple[str, Any] | None:
    before = match.tokens[match.start - 1]
    if before.kind == kind("and") and not (match.start > 1 and match.tokens[match.start - 2].kind == kind("DATE")):
        return None
    interval, part = cal.whole_year(match.get("YEAR")), match.get("early", "mid", "late")
    return _date(part_of(interval, part) if part else interval)


@COARSE_DATES.rule("the? UNIT (of|from|commencing|beginning|starting) DATE", "the? weekend of DATE", needs="DATE")
def _week_of(match: Match, _: Context) -> tuple[str, Any] | None:
    meaning = match.get("DATE")
    unit = match.get("UNIT")
    if unit not in (None, "weeks"):
        return None
    starts = [i.start.date() for i in meaning.intervals if i.start is not None and i.granularity == "day"]
    build = cal.week if unit else cal.weekend
    if meaning.intervals and not starts:
        return None
    intervals = tuple(build(day) for day in starts)
    return "DATE", Meaning(kind="date", intervals=intervals, ambiguous=len(intervals) > 1)
