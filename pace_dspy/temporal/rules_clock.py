"""Rules for times of day: "at 7 PM", "19:00-21:30", "half past seven", "in the evening" (ours)."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pace_dspy.temporal.context import Context
from pace_dspy.temporal.grammar import Grammar, Match
from pace_dspy.temporal.lexer import Token, kind
from pace_dspy.temporal.records import Clock, Meaning
from pace_dspy.temporal.times import in_part, minutes, part_clock, readings, stretches

CLOCKS = Grammar()
_TO = "(to|until|till|and|through|DASH)"
_ANY = "(MOMENT|CLOCK|CLOCKPM|NOON|NUM)"
_SURE = "(MOMENT|CLOCK|CLOCKPM|NOON)"
_NO_NOUN = "(?!WORD|UNIT|MONTH|DATE|DUR|NUM|OVER)"


def _times(value: Any) -> tuple[dt.time, ...]:
    """Return the readings of a token's value: an hour, a time, or readings found before."""
    if isinstance(value, tuple):
        return value
    return readings(value) if isinstance(value, int) else (value,)


def _worded(token: Token) -> bool:
    """A number word above twelve ("at twenty") is no hour."""
    return token.kind == kind("NUM") and token.value > 12 and token.end - token.start > 2


def _time(*clocks: Clock) -> tuple[str, Any] | None:
    if not clocks:
        return None
    return "TIME", Meaning(kind="time", clocks=clocks, ambiguous=len(clocks) > 1)


@CLOCKS.rule(
    "(a|just)? (half|quarter) (past|to) (NUM|NOON)",
    "NUM minutes? (past|to) (NUM|NOON)",
    "DUR (past|to) (NUM|NOON)",
    needs="past to",
)
def _past(match: Match, _: Context) -> tuple[str, Any] | None:
    numbers, noon, span = match.all("NUM"), match.get("NOON"), match.get("DUR")
    hour = noon.hour if noon is not None else numbers[-1]
    if match.has("half", "quarter"):
        offset = 30 if match.has("half") else 15
    elif span is not None:
        offset = int(span.length.total_seconds() // 60) if span.unit == "minutes" else 0
    else:
        offset = numbers[0]
        before = match.tokens[match.start - 1].value if match.start else None
        if match.has("to") and before not in ("at", "by", "until", "till", "before", "after"):
            return None
    if offset not in (5, 10, 15, 20, 25, 30) or (match.has("half") and match.has("to")):
        return None
    base = readings(hour)
    if not base:
        return None
    shifted = [(minutes(time) + (offset if match.has("past") else -offset)) % 1440 for time in base]
    return "MOMENT", tuple(dt.time(total // 60, total % 60) for total in shifted)


@CLOCKS.rule("NUM (in the|at) (PART|PARTS)", needs="PART PARTS")
def _hour_in_part(match: Match, _: Context) -> tuple[str, Any] | None:
    """Read "eight in the evening"."""
    part = match.get("PART", "PARTS")
    if match.has("at") and part != "night":
        return None
    fitting = tuple(time for time in readings(match.get("NUM")) if in_part(Clock(time, time), part_clock(part)))
    return ("MOMENT", fitting) if fitting else None


@CLOCKS.rule("NUM o'clock", "(NUM|MOMENT) AMPM", needs="o'clock AMPM")
def _oclock(match: Match, _: Context) -> tuple[str, Any] | None:
    times = _times(match.get("NUM", "MOMENT"))
    if match.has("AMPM"):
        times = tuple(time for time in times if time.hour >= 12)
    return ("MOMENT", times) if times else None


@CLOCKS.rule(
    f"(from|between)? {_SURE} {_TO} {_ANY} (AMPM)? {_NO_NOUN}", f"(from|between)? {_ANY} {_TO} {_SURE}",
    f"(from|between) NUM {_TO} NUM {_NO_NOUN}", f"(?<=[DATE EVERY COMMA open]) NUM (to|until|till|DASH) NUM {_NO_NOUN}",
    needs="to until till and through DASH",
)  # fmt: skip
def _stretch(match: Match, _: Context) -> tuple[str, Any] | None:
    if match.has("and") and not match.has("between"):
        return None
    raw = [token for token in match.tokens[match.start : match.end] if token.kind in map(kind, _NAMES)]
    starts, ends = _times(raw[0].value), _times(raw[1].value)
    if any(_worded(token) for token in raw):
        return None
    if not starts or not ends:
        return None
    if raw[0].kind == kind("CLOCK") and raw[1].kind == kind("CLOCKPM") and raw[0].end - raw[0].start == 4:
        starts = readings(starts[0].hour, starts[0].minute)  # "5:30 to 7 PM"
    both_24h = raw[0].kind == raw[1].kind == kind("CLOCK")
    if both_24h and ends[0] < starts[0] and starts[0].hour < 15 and ends[0].hour < 12:
        ends = (ends[0].replace(hour=ends[0].hour + 12),)  # "9:00 to 5:30"
    return _time(*stretches(starts, ends))


_NAMES = ("MOMENT", "CLOCK", "CLOCKPM", "NOON", "NUM")


@CLOCKS.rule(
    f"(until|till|by|before|after|from|since) (late|early|about|around)? {_SURE}",
    f"(until|till|before|after|by|from) NUM (sharp)? {_NO_NOUN}",
    needs="until till by before after from since",
)
def _open(match: Match, _: Context) -> tuple[str, Any] | None:
    times = _times(match.get(*_NAMES))
    bare = match.has("NUM")
    if any(_worded(token) for token in match.tokens[match.start : match.end]):
        return None
    beside = [match.tokens[i].kind for i in (match.start - 1, match.end, match.end + 1) if 0 <= i < len(match.tokens)]
    if bare and match.has("by", "from") and not {kind("DATE"), kind("EVERY"), kind("RANGE")} & set(beside):
        return None
    if match.has("until", "till", "by", "before"):
        return _time(*(Clock(None, time) for time in times))
    return _time(*(Clock(time, None) for time in times))


@CLOCKS.rule(
    f"(at|about|around) (about|around)? {_SURE}",
    "(MOMENT|CLOCK|CLOCKPM)",
    "NOON (?!WORD)",
    f"at (about|around)? NUM (sharp)? {_NO_NOUN}",
    needs="MOMENT CLOCK CLOCKPM NOON at",
)
def _point(match: Match, _: Context) -> tuple[str, Any] | None:
    value = match.get(*_NAMES)
    if any(_worded(token) for token in match.tokens[match.start : match.end]):
        return None
    return _time(*(Clock(time, time) for time in _times(value)))


@CLOCKS.rule("TIME (in the|at) (PART|PARTS)", needs="TIME")
def _point_in_part(match: Match, _: Context) -> tuple[str, Any] | None:
    part = part_clock(match.get("PART", "PARTS"))
    stated = match.get("TIME").clocks  # of a stretch, the words belong to its end
    clocks = tuple(c for c in stated if in_part(c if c.point or c.end is None else Clock(c.end, c.end), part))
    return _time(*(clocks or match.get("TIME").clocks))


@CLOCKS.rule("in the (early|late)? (PART|PARTS) (?!of)", "at PART", needs="PART PARTS")
def _part(match: Match, _: Context) -> tuple[str, Any] | None:
    part = match.get("PART", "PARTS")
    return None if match.has("at") and part != "night" else _time(part_clock(part))
