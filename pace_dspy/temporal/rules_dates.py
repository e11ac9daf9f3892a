"""Rules for dates that name a day or a day's place in a month (ours)."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pace_dspy.temporal import context as cal
from pace_dspy.temporal.context import Context
from pace_dspy.temporal.grammar import Grammar, Match
from pace_dspy.temporal.lexer import kind
from pace_dspy.temporal.records import Interval, Meaning, Recurrence

DATES = Grammar()
_SAFE_YEARS = range(1000, 9000)


@DATES.rule("(WEEKDAY COMMA?)? ISO", needs="ISO")
def _iso(match: Match, _: Context) -> tuple[str, Any] | None:
    raw = match.get("ISO")
    try:
        moment = dt.datetime.fromisoformat(raw)
    except ValueError:
        return "DATE", Meaning(kind="date", impossible=True)
    if moment.year not in _SAFE_YEARS:
        return None
    if "T" in raw:
        point = Interval(moment, moment + dt.timedelta(minutes=1), "minute")
        return "DATETIME", Meaning(kind="datetime", intervals=(point,))
    weekday, day = match.get("WEEKDAY"), moment.date()
    return "DATE", cal.dates(day, None if weekday is None else cal.nearest_weekday(day, weekday))


@DATES.rule(
    "(from|between)? (WEEKDAY COMMA?)? the? (NUM|ORD) (to|until|till|through|and|DASH) WEEKDAY? the? (NUM|ORD)"
    " of? MONTH (COMMA? YEAR)?",
    "(from|between)? MONTH (NUM|ORD) (to|until|till|through|and|DASH) (NUM|ORD) (?!MONTH) (COMMA? YEAR)?",
    needs="MONTH",
)
def _days_of_month(match: Match, context: Context) -> tuple[str, Any] | None:
    first, last = match.all("NUM", "ORD")[:2]
    if match.has("and") and not match.has("between"):
        return None
    if not 1 <= first < last <= 31:
        return None
    month, year = match.get("MONTH"), match.get("YEAR")
    start, end = (cal.day_of_month(context, month, day, year, None) for day in (first, last))
    if start.impossible or end.impossible:
        return "RANGE", Meaning(kind="range", impossible=True)
    if not start.intervals or not end.intervals:
        return "RANGE", Meaning(kind="range")
    return "RANGE", Meaning(kind="range", intervals=(Interval(start.intervals[0].start, end.intervals[0].end),))


@DATES.rule("(NUM|ORD) (?=((COMMA|and|or)+(NUM|ORD))+ of? MONTH)", needs="MONTH")
def _listed(match: Match, context: Context) -> tuple[str, Any] | None:
    """The "5" of "on 5 and 19 March"."""
    return _named_day(match, context, match.later("MONTH"), None)


@DATES.rule(
    "(WEEKDAY COMMA?)? (the)? (NUM|ORD) of? MONTH (COMMA? YEAR)?",
    "(WEEKDAY COMMA?)? MONTH the? (NUM|ORD) (COMMA? YEAR)?",
    needs="MONTH",
)
def _day_and_month(match: Match, context: Context) -> tuple[str, Any] | None:
    before = match.tokens[match.start - 1].value if match.start else None
    if (
        match.tokens[match.start].kind == kind("MONTH")
        and before == "in"
        and match.has("NUM")
        and not match.has("YEAR")
    ):
        return None
    return _named_day(match, context, match.get("MONTH"), match.get("YEAR"))


def _named_day(match: Match, context: Context, month: int, year: int | None) -> tuple[str, Any] | None:
    day = match.get("NUM", "ORD")
    if not 1 <= day <= 31:
        return None
    return "DATE", cal.day_of_month(context, month, day, year, match.get("WEEKDAY"))


@DATES.rule("(WEEKDAY COMMA?)? SLASHED", needs="SLASHED")
def _slashed(match: Match, context: Context) -> tuple[str, Any] | None:
    """Day first; month first as a second reading where both are possible."""
    numbers: tuple[int, ...] = match.get("SLASHED")
    if len(numbers) < 2:
        return None
    first, second, rest = numbers[0], numbers[1], numbers[2:]
    before = match.tokens[match.start - 1].value if match.start else None
    if (
        not rest
        and before not in ("on", "by", "until", "till", "from", "before", "after", "since")
        and not match.has("WEEKDAY")
    ):
        return None
    year = rest[0] if rest else None
    if year is not None and year not in _SAFE_YEARS:
        return None
    options = [(day, month) for day, month in ((first, second), (second, first)) if 1 <= month <= 12 and day >= 1]
    meanings = [cal.day_of_month(context, month, day, year, match.get("WEEKDAY")) for day, month in options]
    possible = [meaning for meaning in meanings if not meaning.impossible]
    if not possible:
        return ("DATE", Meaning(kind="date", impossible=True)) if meanings or rest else None
    readings = tuple(dict.fromkeys(interval for meaning in possible for interval in meaning.intervals))
    return "DATE", Meaning(
        kind="date", intervals=readings, ambiguous=len(readings) > 1 or possible[0].ambiguous,
        recurrence=possible[0].recurrence,
    )  # fmt: skip


@DATES.rule("(ORD|last) WEEKDAY (of|in) MONTH YEAR?", needs="MONTH")
def _nth_weekday_of_month(match: Match, context: Context) -> tuple[str, Any] | None:
    ordinal, weekday, month = match.get("ORD") or -1, match.get("WEEKDAY"), match.get("MONTH")
    years = [match.get("YEAR")] if match.has("YEAR") else context.years()
    days = [cal.nth_weekday(year, month, weekday, ordinal) for year in years]
    if not years:
        pattern = Recurrence("yearly", months=(month,), weekdays=(weekday,), ordinals=(ordinal,))
        return "DATE", Meaning(kind="date", recurrence=pattern, ambiguous=True)
    existing = [day for day in days if day is not None]
    if not existing:
        return "DATE", Meaning(kind="date", impossible=True)
    return "DATE", cal.dates(existing[0] if match.has("YEAR") else context.choose(existing))


@DATES.rule("(ORD|last) WEEKDAY (of|in) (this|next) UNIT", needs="UNIT")
def _nth_weekday_of_relative_month(match: Match, context: Context) -> tuple[str, Any] | None:
    if match.get("UNIT") != "months":
        return None
    if context.reference is None:
        return "DATE", Meaning(kind="date")
    first = context.reference.replace(day=1)
    if match.has("next"):
        first = (first + dt.timedelta(days=32)).replace(day=1)
    day = cal.nth_weekday(first.year, first.month, match.get("WEEKDAY"), match.get("ORD") or -1)
    return "DATE", cal.dates(day) if day else Meaning(kind="date", impossible=True)


@DATES.rule("the? last UNIT of MONTH YEAR?", needs="MONTH")
def _last_day_of_month(match: Match, context: Context) -> tuple[str, Any] | None:
    if match.get("UNIT") != "days":
        return None
    year = match.get("YEAR")
    interval = (
        cal.month(year, match.get("MONTH")) if year else cal.around(context, lambda y: cal.month(y, match.get("MONTH")))
    )
    if interval is None or interval.end is None:
        return "DATE", Meaning(kind="date")
    return "DATE", cal.dates((interval.end - dt.timedelta(days=1)).date())


@DATES.rule("HOLIDAY YEAR?", needs="HOLIDAY")
def _holiday(match: Match, context: Context) -> tuple[str, Any]:
    years = [match.get("YEAR")] if match.has("YEAR") else context.years()
    days = [cal.holiday(year, match.get("HOLIDAY")) for year in years]
    return "DATE", cal.dates(days[0] if match.has("YEAR") else context.choose(days))


@DATES.rule(
    "WEEKDAY COMMA? the ORD (?!WORD|MONTH|of|UNIT)",
    "(?<=[on by until till before after since from]) the ORD (?!WORD|MONTH|of|UNIT|WEEKDAY|and|or|PART)",
    "the ORD of (this|next) UNIT",
    needs="ORD",
)
def _day_of_some_month(match: Match, context: Context) -> tuple[str, Any] | None:
    """Read "the 25th" as of the month it most likely means."""
    day, weekday = match.get("ORD"), match.get("WEEKDAY")
    if not 1 <= day <= 31 or (match.has("UNIT") and match.get("UNIT") != "months"):
        return None
    if context.reference is None and (context.near is None or weekday is None):
        return "DATE", Meaning(kind="date")
    base = context.reference or context.near
    assert base is not None  # one of both is set here
    months = [(base.year + (base.month - 1 + step) // 12, (base.month - 1 + step) % 12 + 1) for step in range(-3, 7)]
    if match.has("UNIT"):
        months = [months[4 if match.has("next") else 3]]
    options = [option for year, month in months if (option := cal.valid(year, month, day)) is not None]
    options = [option for option in options if weekday is None or option.weekday() == weekday]
    if context.prefer == "future" and not match.has("UNIT"):
        options = [option for option in options if option >= base]
    if not options:
        return "DATE", Meaning(kind="date", impossible=match.has("UNIT"))
    return "DATE", cal.dates(min(options, key=lambda option: abs((option - base).days)))
