"""Opening hours stated in a fact: "open 9:00 to 17:00", "closed on Mondays", "last entry 18:30" (ours)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pace_dspy.temporal.records import Clock, Interval, TimeExpression
from pace_dspy.temporal.statements import Statement

# What is ordered, sent or told need not happen at the place and time named, so only presence counts.
_PRESENCE = re.compile(
    r"\b(?:book|reserve|visit|meet\w*|see|appointment|table|go|take|bring|drop|pick|join)\b", re.IGNORECASE
)
_NEGATED = re.compile(
    r"\b(?:not|never|no longer|except|unless|n't|until|was|were|used to|had|usually|mostly)\b", re.IGNORECASE
)
_CLOSED = re.compile(r"\b(?:closed|shut|closes all day)\b(?: \w+){0,2}? on\s*$|\b(?:closed|shut)\s*$", re.IGNORECASE)
_GAP = r"(?:(?!\band\b)[^.,;\d]){0,25}"  # the words between "opens" and its time: no other time, no other verb
_OPEN = re.compile(rf"\bopen(?:s|ing hours)?\b{_GAP}$", re.IGNORECASE)
_CLOSES = re.compile(rf"\b(?:closes|shuts)\b{_GAP}$", re.IGNORECASE)
_LAST = re.compile(rf"\blast (?:entry|admission|orders?|seating)\b{_GAP}$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HoursNote:
    """A statement about opening hours that bears on the request."""

    text: str
    slack_minutes: int


def closed_note(
    request_text: str, request: Statement, moments: Sequence[Interval], fact: Statement
) -> HoursNote | None:
    """Return a note when a place that the request names is shut at every reading of the request's time.

    Args:
        request_text: The request; it must ask to be at the place.
        request: The request, read.
        moments: Readings of its one day or time.
        fact: The fact that may state hours.

    Returns:
        The note, with minutes outside the opening hours as negative slack, or ``None``.
    """
    if not _PRESENCE.search(request_text) or _NEGATED.search(fact.text) or not _same_place(request, fact):
        return None
    day = (moments[0].start or dt.datetime.min).date()
    weekdays = [x for x in fact.times if x.recurrence is not None and x.recurrence.weekdays]
    for x in fact.times:
        before = fact.text[: x.span[0]]
        if x.recurrence and _CLOSED.search(before) and not x.recurrence.clock and x.recurrence.interval == 1:
            if not x.recurrence.ordinals and day.weekday() in x.recurrence.weekdays and not x.recurrence.until:
                return HoursNote(f"{day.isoformat()} is a day on which the place is closed ({x.text})", -1440)
            continue
        clock = _hours(before, x)
        if clock is None or moments[0].granularity != "minute":
            continue
        if any(day.weekday() not in (y.recurrence.weekdays if y.recurrence else ()) for y in weekdays):
            continue
        slack = max(_inside(clock, (moment.start or dt.datetime.min).time()) for moment in moments)
        if slack < 0:
            return HoursNote(
                f"asked for {moments[0].start:%H:%M}, but the place states {_before(before)}{x.text}", slack
            )
    return None


def _same_place(request: Statement, fact: Statement) -> bool:
    """The fact is about a place the request names: the name stands first in the fact."""
    first = [name for name in fact.names & request.names if fact.text.find(name) <= 25]
    return bool(first)


def _hours(before: str, x: TimeExpression) -> Clock | None:
    """Return the opening hours an expression states, ``None`` when unsure."""
    if len(x.clocks) != 1 or not x.clocks[0].exact:
        return None
    clock = x.clocks[0]
    if _LAST.search(before) or _CLOSES.search(before):
        return Clock(None, clock.start or clock.end)
    if _OPEN.search(before):
        return Clock(clock.start, None) if clock.point else clock
    return None


def _inside(clock: Clock, time: dt.time) -> int:
    """Return 0 inside the hours, else minus the minutes outside."""
    at = time.hour * 60 + time.minute
    start = clock.start.hour * 60 + clock.start.minute if clock.start else 0
    end = clock.end.hour * 60 + clock.end.minute if clock.end else 1440
    if end <= start:
        return 0
    return -(start - at) if at < start else -(at - end) if at > end else 0


def _before(before: str) -> str:
    """Return the last two words before a time, for the note."""
    words = before.split()[-2:]
    return " ".join(words) + " " if words else ""
