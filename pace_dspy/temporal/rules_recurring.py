"""Rules for what repeats: "every other Tuesday", "Mondays and Thursdays", "the 25th of each month" (ours)."""

from __future__ import annotations

import dataclasses
from typing import Any

from pace_dspy.temporal.context import Context
from pace_dspy.temporal.grammar import Grammar, Match
from pace_dspy.temporal.records import Frequency, Meaning, Recurrence
from pace_dspy.temporal.times import part_clock

RECURRING = Grammar()
_EVERY_DAY = (0, 1, 2, 3, 4)
_FREQUENCIES: dict[str, tuple[Frequency, int]] = {
    "days": ("daily", 1),
    "weeks": ("weekly", 1),
    "fortnights": ("weekly", 2),
    "months": ("monthly", 1),
    "years": ("yearly", 1),
}


def _every(pattern: Recurrence, *, ambiguous: bool = False) -> tuple[str, Any]:
    return "EVERY", Meaning(kind="recurrence", recurrence=pattern, ambiguous=ambiguous)


def _step(match: Match) -> int:
    if match.has("other", "alternate"):
        return 2
    return int(match.get("ORD", "NUM") or 1)


@RECURRING.rule(
    "(every|each|on|the|on the)? (ORD|last) ((COMMA|and|or)+ (ORD|last))* (WEEKDAY|WEEKDAYS)"
    " (of|in) (the|each|every|most|a|any) UNIT",
    needs="UNIT",
)  # fmt: skip
def _nth_of_month(match: Match, _: Context) -> tuple[str, Any] | None:
    if match.get("UNIT") != "months":
        return None
    return _every(_monthly(match))


@RECURRING.rule(
    "(every|each|on|the)? the? (ORD|last) ((COMMA|and|or)+ (ORD|last))+ (WEEKDAY|WEEKDAYS) (in MONTH)?",
    "(every|each) last (WEEKDAY|WEEKDAYS)",
    needs="WEEKDAY WEEKDAYS",
)
def _nth_weekdays(match: Match, _: Context) -> tuple[str, Any]:
    return _every(_monthly(match))


def _monthly(match: Match) -> Recurrence:
    ordinals = tuple(sorted({-1 if value == "last" else value for value in match.all("ORD", "last")}))
    months = (match.get("MONTH"),) if match.has("MONTH") else ()
    weekdays = tuple(sorted(set(match.all("WEEKDAY", "WEEKDAYS"))))
    usable = tuple(n for n in ordinals if n == -1 or n <= 5)
    return Recurrence("monthly", weekdays=weekdays, ordinals=usable, months=months)


@RECURRING.rule("the? (ORD|last) UNIT? of (each|every|the) UNIT", needs="UNIT")
def _day_of_every_month(match: Match, _: Context) -> tuple[str, Any] | None:
    units = match.all("UNIT")
    if units[-1] != "months" or (len(units) == 2 and units[0] != "days"):
        return None
    if match.has("the") and len(units) == 1 and not match.has("each", "every"):
        return None
    day = match.get("ORD") or -1
    return _every(Recurrence("monthly", month_days=(day,))) if day <= 31 else None


@RECURRING.rule(
    "(every|each) (other|alternate|ORD|NUM)? (WEEKDAY|WEEKDAYS) ((COMMA|and|or)+ (WEEKDAY|WEEKDAYS))*",
    "alternate (WEEKDAY|WEEKDAYS)",
    needs="WEEKDAY WEEKDAYS",
)
def _every_weekday(match: Match, _: Context) -> tuple[str, Any]:
    """Read "every first Tuesday" by months, "every second Tuesday" by weeks."""
    weekdays, ordinal = tuple(sorted(set(match.all("WEEKDAY", "WEEKDAYS")))), match.get("ORD")
    if ordinal is not None and ordinal not in (2, 3, 4):
        return _every(Recurrence("monthly", weekdays=weekdays, ordinals=(min(ordinal, 5),)))
    return _every(Recurrence("weekly", max(_step(match), 1), weekdays=weekdays))


@RECURRING.rule(
    "(every|each) (other|alternate|ORD|NUM)? (UNIT|DUR)", "alternate UNIT", "once ADUR", "once every DUR",
    needs="UNIT DUR ADUR",
)  # fmt: skip
def _every_unit(match: Match, _: Context) -> tuple[str, Any] | None:
    span = match.get("DUR", "ADUR")
    unit = span.unit if span else match.get("UNIT")
    if unit not in _FREQUENCIES:
        return None
    if match.has("once") and match.has("ADUR") and unit != "fortnights":
        return None
    frequency, count = _FREQUENCIES[unit]
    step = _step(match) * count
    if span and match.has("DUR"):
        step = max(span.length.days // {"days": 1, "weeks": 7, "fortnights": 7, "months": 30, "years": 365}[unit], 1)
    return _every(Recurrence(frequency, max(step, 1)))


@RECURRING.rule("(fortnightly|biweekly)", needs="fortnightly biweekly")
def _fortnightly(_: Match, __: Context) -> tuple[str, Any]:
    return _every(Recurrence("weekly", 2))


@RECURRING.rule("EVERY on? a? (WEEKDAY|WEEKDAYS) (?!PARTS)", needs="WEEKDAY WEEKDAYS")
def _on_weekday(match: Match, _: Context) -> tuple[str, Any] | None:
    """Read "fortnightly on Mondays"."""
    pattern = match.get("EVERY").recurrence
    if pattern.frequency != "weekly" or pattern.weekdays:
        return None
    return _every(dataclasses.replace(pattern, weekdays=(match.get("WEEKDAY", "WEEKDAYS"),)))


@RECURRING.rule("(daily|nightly)", needs="daily nightly")
def _daily(match: Match, _: Context) -> tuple[str, Any]:
    return _every(Recurrence("daily", clock=part_clock("night") if match.has("nightly") else None))


@RECURRING.rule(
    "(on|every|each)? (weekdays|weekday) (?=PARTS)", "on? weekdays", "(every|each) weekday", needs="weekdays weekday"
)
def _weekdays(_: Match, __: Context) -> tuple[str, Any]:
    return _every(Recurrence("weekly", weekdays=_EVERY_DAY))


@RECURRING.rule(
    "(on|at|over)? weekends", "(every|each) (other|ORD)? weekend", "at the weekend", needs="weekends weekend"
)
def _weekends(match: Match, context: Context) -> tuple[str, Any] | None:
    if match.has("the") and context.reference is not None:
        return None
    return _every(Recurrence("weekly", _step(match), weekdays=(5, 6)), ambiguous=match.has("the"))


@RECURRING.rule(
    "on? WEEKDAYS (to|through|DASH) WEEKDAYS",
    "(WEEKDAY (COMMA|and|or)+)* WEEKDAYS ((COMMA|and|or)+ WEEKDAYS)*",
    needs="WEEKDAYS",
)
def _plural_weekdays(match: Match, _: Context) -> tuple[str, Any]:
    found = match.all("WEEKDAY", "WEEKDAYS")
    if match.has("to", "through", "DASH"):
        found = [(found[0] + n) % 7 for n in range((found[1] - found[0]) % 7 + 1)]
    return _every(Recurrence("weekly", weekdays=tuple(sorted(set(found)))))


@RECURRING.rule("(every|each) (PART|PARTS)", needs="PART PARTS")
def _every_part(match: Match, _: Context) -> tuple[str, Any]:
    return _every(Recurrence("daily", clock=part_clock(match.get("PART", "PARTS"))))


@RECURRING.rule("(WEEKDAY (COMMA|and|or)+)* WEEKDAY (?=PARTS)", needs="PARTS")
def _weekday_of_parts(match: Match, _: Context) -> tuple[str, Any]:
    """The "Sunday" of "on Sunday evenings"."""
    return _every(Recurrence("weekly", weekdays=tuple(sorted(set(match.all("WEEKDAY"))))))


@RECURRING.rule("(every|each) (MONTH|SEASON)", needs="MONTH SEASON")
def _yearly(match: Match, _: Context) -> tuple[str, Any]:
    first = match.get("MONTH", "SEASON")
    months = (first,) if match.has("MONTH") else tuple(sorted((first + n - 1) % 12 + 1 for n in range(3)))
    return _every(Recurrence("yearly", months=months))


@RECURRING.rule("from? WEEKDAY (to|until|through|DASH) WEEKDAY", needs="WEEKDAY")
def _weekday_range(match: Match, context: Context) -> tuple[str, Any] | None:
    """Read "Tuesday to Saturday" as weekly when there is no date to count from (else see the relative rules)."""
    if context.reference is not None:
        return None
    first, last = match.all("WEEKDAY")
    days = sorted((first + n) % 7 for n in range((last - first) % 7 + 1))
    return _every(Recurrence("weekly", weekdays=tuple(days)), ambiguous=True)
