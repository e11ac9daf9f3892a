"""Find every time expression of a text, resolved against a given date and never the clock (ours)."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterator

from pace_dspy.temporal.context import Context
from pace_dspy.temporal.lexer import Token, kind, tokenize
from pace_dspy.temporal.lexicon import HOLIDAYS, SHORT_WEEKDAYS, VOCABULARY
from pace_dspy.temporal.records import Clock, Interval, Meaning, Prefer, TimeExpression
from pace_dspy.temporal.rules_clock import CLOCKS
from pace_dspy.temporal.rules_coarse import COARSE_DATES
from pace_dspy.temporal.rules_combine import COMBINED
from pace_dspy.temporal.rules_dates import DATES
from pace_dspy.temporal.rules_durations import DURATIONS, Length
from pace_dspy.temporal.rules_recurring import RECURRING
from pace_dspy.temporal.rules_relative import RELATIVE
from pace_dspy.temporal.times import combine

FIRST_YEAR, LAST_YEAR = 1800, 2300
_GRAMMARS = (DURATIONS, DATES, COARSE_DATES, RECURRING, RELATIVE, CLOCKS, COMBINED)
_WORDS = {
    word
    for word, (name, _) in VOCABULARY.items()
    if name in ("MONTH", "WEEKDAY", "WEEKDAYS", "UNIT", "PART", "PARTS", "SEASON", "NOON", "REL")
    or word in ("weekend", "weekends", "weekdays", "tonight", "daily", "nightly", "fortnightly", "biweekly", "at",
                "before", "after", "until", "till", "past", "o'clock")
}  # fmt: skip
_TRIGGER = re.compile(
    r"\d|\b(?:" + "|".join(map(re.escape, sorted(_WORDS | set(SHORT_WEEKDAYS) | set(HOLIDAYS)))) + r")\b", re.IGNORECASE
)


def find_times(
    text: str, reference: dt.date | None, *, near: dt.date | None = None, prefer: Prefer = "nearest"
) -> tuple[TimeExpression, ...]:
    """Return the time expressions of a text in order of appearance.

    Args:
        text: Any text; it is never refused.
        reference: The day the text was written; ``None`` leaves relative words ("tomorrow") unresolved, and so does
            a day outside the years 1800 to 2300 (9999-12-31 and the like stand for "unknown").
        near: A day that dates without a year lie near (a knowledge base's window); the reference by default. With
            neither, "7 March" becomes a yearly pattern.
        prefer: Which year or week a date without one means: the coming one (requests) or the nearest (facts).

    Returns:
        Expressions whose spans do not overlap. A time without a date takes the date of its sentence when there is
        exactly one.

    Raises:
        ValueError: ``near`` lies outside the years 1800 to 2300.
    """
    if near is not None and not readable(near):
        raise ValueError(f"near {near.isoformat()} must lie in {FIRST_YEAR} to {LAST_YEAR}: pass a real date")
    if reference is not None and not readable(reference):
        reference = None
    if not _TRIGGER.search(text):
        return ()
    context = Context(_day(reference), _day(near) or _day(reference), prefer)
    tokens = tokenize(text)
    for grammar in _GRAMMARS:
        tokens = grammar.apply(tokens, context)
    found: list[TimeExpression] = []
    for sentence in _sentences(tokens):
        found.extend(_joined([_expression(text, token) for token in sentence]))
    return tuple(found)


def readable(day: dt.date) -> bool:
    """Tell whether times can be read against a day: it lies in the years 1800 to 2300."""
    return FIRST_YEAR <= day.year <= LAST_YEAR


def request_intervals(text: str, reference_date: dt.date) -> tuple[Interval, ...]:
    """Return every dated reading of a request, in order and without repeats.

    Args:
        text: The request.
        reference_date: The day it is made.

    Returns:
        Intervals; empty when the request names no date.
    """
    expressions = find_times(text, reference_date, prefer="future")
    return tuple(dict.fromkeys(interval for found in expressions for interval in found.intervals))


def _day(value: dt.date | None) -> dt.date | None:
    return value.date() if isinstance(value, dt.datetime) else value


def _sentences(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the understood tokens of each sentence."""
    current: list[Token] = []
    for token in tokens:
        if token.kind == kind("STOP"):
            yield current
            current = []
        elif isinstance(token.value, Meaning | Length) and token.kind != kind("ADUR"):
            current.append(token)
    yield current


def _expression(text: str, token: Token) -> TimeExpression:
    value = token.value
    if isinstance(value, Length):
        value = Meaning(kind="duration", duration=value.length)
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(Meaning)}
    return TimeExpression(text=text[token.start : token.end], span=(token.start, token.end), **fields)


def _joined(found: list[TimeExpression]) -> list[TimeExpression]:
    """Give times the sentence's only date, and patterns that skip weeks the date they are counted from."""
    dates = [x for x in found if x.kind == "date" and not x.impossible and (x.intervals or x.recurrence)]
    patterns = [x for x in found if x.kind == "recurrence" and x.recurrence]
    out = []
    for x in found:
        if x.kind == "time":
            hosts = dates if len(dates) == 1 and not any(y.kind in ("datetime", "range") for y in found) else []
            hosts = hosts or (patterns if not dates and len(patterns) == 1 and patterns[0].recurrence else [])
            hosts = [host for host in hosts if host.recurrence is None or not _exact(host.recurrence.clock)]
            if hosts and all(not i.coarse and i.granularity == "day" for i in hosts[0].intervals):
                joined = combine(hosts[0], x.clocks)
                x = dataclasses.replace(
                    x, intervals=joined.intervals, recurrence=joined.recurrence, ambiguous=joined.ambiguous
                )
        elif x.recurrence and x.recurrence.interval > 1 and x.recurrence.anchor is None:
            x = _anchored(x, found)
        out.append(x)
    return out


def _exact(clock: Clock | None) -> bool:
    return clock is not None and clock.exact


def _anchored(pattern: TimeExpression, found: list[TimeExpression]) -> TimeExpression:
    """Fix which weeks are meant: "every second Tuesday, most recently on 7 July"."""
    assert pattern.recurrence is not None
    weekdays = pattern.recurrence.weekdays
    starts = [
        x.intervals[0].start.date()
        for x in found
        if x.kind in ("date", "datetime", "range") and len(x.intervals) == 1 and x.intervals[0].start
        and x.intervals[0].granularity in ("day", "minute", "daypart")
    ]  # fmt: skip
    fitting = [day for day in starts if not weekdays or day.weekday() in weekdays]
    if len(fitting) != 1:
        return pattern
    anchored = dataclasses.replace(pattern.recurrence, anchor=fitting[0])
    if pattern.recurrence.frequency == "weekly" and not weekdays:
        anchored = dataclasses.replace(anchored, weekdays=(fitting[0].weekday(),))
    return dataclasses.replace(pattern, recurrence=anchored)
