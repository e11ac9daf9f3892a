"""Rules for lengths of time: "45 minutes", "an hour and a half", "three full working days" (ours)."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from dateutil.relativedelta import relativedelta

from pace_dspy.temporal.context import Context
from pace_dspy.temporal.grammar import Grammar, Match

DURATIONS = Grammar()
_DAYS = {"days": 1, "weeks": 7, "fortnights": 14, "months": 30, "years": 365}


@dataclass(frozen=True, slots=True)
class Length:
    """A duration both as calendar steps and as a fixed length (a month counts 30 days, a year 365).

    Attributes:
        steps: To move a date by.
        length: To compare with.
        unit: The largest unit named.
        working: Counted in working days.
    """

    steps: relativedelta
    length: dt.timedelta
    unit: str
    working: bool = False

    @property
    def clock(self) -> bool:
        """Whether it is given in hours or minutes."""
        return self.unit in ("hours", "minutes")


def length(amount: float, unit: str, *, working: bool = False) -> Length:
    """Return the duration of an amount of a unit; half units become the next smaller ones."""
    if unit in ("hours", "minutes"):
        fixed = dt.timedelta(minutes=amount * (60 if unit == "hours" else 1))
        return Length(relativedelta(minutes=int(fixed.total_seconds() // 60)), fixed, unit)
    fixed = dt.timedelta(days=amount * _DAYS[unit])
    if unit in ("months", "years"):
        months = amount * (12 if unit == "years" else 1)
        return Length(relativedelta(months=int(months), days=int(months % 1 * 30)), fixed, unit)
    return Length(relativedelta(days=int(fixed.days)), fixed, unit, working)


def _plus(first: Length, second: Length) -> Length:
    return Length(first.steps + second.steps, first.length + second.length, first.unit)


@DURATIONS.rule("(NUM|DECIMAL) full? (working)? DASH? UNIT (?!DASH?old)", needs="UNIT")
def _counted(match: Match, _: Context) -> tuple[str, Any]:
    return "DUR", length(match.get("NUM", "DECIMAL"), match.get("UNIT"), working=match.has("working"))


@DURATIONS.rule("NUM (PARTS|PART)", needs="PARTS PART")
def _nights(match: Match, _: Context) -> tuple[str, Any] | None:
    return ("DUR", length(match.get("NUM"), "days")) if match.get("PARTS", "PART") == "night" else None


@DURATIONS.rule("NUM and (a|an) half UNIT", "(a|an) UNIT and (a|an) half", needs="half")
def _and_half(match: Match, _: Context) -> tuple[str, Any]:
    return "DUR", length((match.get("NUM") or 1) + 0.5, match.get("UNIT"))


@DURATIONS.rule("(a|the)? half (a|an) UNIT", "half DASH UNIT", needs="half")
def _half(match: Match, _: Context) -> tuple[str, Any]:
    return "DUR", length(0.5, match.get("UNIT"))


@DURATIONS.rule("(a|NUM) (quarter|quarters) of (a|an) UNIT", needs="quarter quarters")
def _quarters(match: Match, _: Context) -> tuple[str, Any]:
    return "DUR", length((match.get("NUM") or 1) / 4, match.get("UNIT"))


@DURATIONS.rule("(a|an) couple of UNIT", needs="couple")
def _couple(match: Match, _: Context) -> tuple[str, Any]:
    return "DUR", length(2, match.get("UNIT"))


@DURATIONS.rule("(a|an) UNIT", needs="UNIT")
def _article(match: Match, _: Context) -> tuple[str, Any] | None:
    """Keep "a week" for other rules: alone it says little ("once a week")."""
    before = match.tokens[match.start - 1].value if match.start else None
    unit = match.get("UNIT")
    return "DUR" if unit in ("hours", "minutes") and before not in ("times", "twice", "once") else "ADUR", length(
        1, unit
    )


@DURATIONS.rule("DUR (and|COMMA)? DUR", needs="DUR")
def _joined(match: Match, _: Context) -> tuple[str, Any] | None:
    first, second = match.all("DUR")
    return ("DUR", _plus(first, second)) if first.unit == "hours" and second.unit == "minutes" else None


@DURATIONS.rule("DUR NUM", needs="DUR")
def _hours_and_number(match: Match, _: Context) -> tuple[str, Any] | None:
    """Read "1 h 25"."""
    value, minutes = match.get("DUR"), match.get("NUM")
    whole = value.unit == "hours" and minutes < 60 and match.later("MONTH") is None
    return ("DUR", _plus(value, length(minutes, "minutes"))) if whole else None
