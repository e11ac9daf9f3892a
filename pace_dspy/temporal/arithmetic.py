"""The clash check: what follows from times, trips and opening hours stated in the evidence (ours, off in ``paper``).

Precision first. A clash is claimed only where every reading of the request clashes, the day is certain, the person is
bound to be elsewhere, and no other fact of the evidence speaks of a change. In all other cases nothing is said.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from pace_dspy.temporal.duties import changed, duties
from pace_dspy.temporal.find import find_times
from pace_dspy.temporal.hours import closed_note
from pace_dspy.temporal.lexicon import WEEKDAY_LABELS
from pace_dspy.temporal.records import Interval
from pace_dspy.temporal.statements import Statement, falls, read
from pace_dspy.temporal.trips import goals, paths


@dataclass(frozen=True, slots=True)
class Finding:
    """A note derived by arithmetic, for the answerer, marked as derived (ours).

    Attributes:
        note: One line, with the numbers it rests on.
        doc_ids: The facts it follows from.
        slack_minutes: Minutes left over; negative is a clash; ``None`` when the note is no subtraction.
    """

    note: str
    doc_ids: tuple[str, ...]
    slack_minutes: int | None = None

    @property
    def clash(self) -> bool:
        """Whether the note says that the request cannot be met in time."""
        return self.slack_minutes is not None and self.slack_minutes < 0


def derive_notes(
    request_text: str,
    reference_date: dt.date,
    facts: Sequence[tuple[str, str, dt.date | None]],
    *,
    persona: str | None = None,
) -> tuple[Finding, ...]:
    """Compare the request's time with what the evidence states.

    Args:
        request_text: The request.
        reference_date: The day it is made.
        facts: ``(doc_id, text, date)`` of the evidence; the date is ``None`` for an undated fact.
        persona: The user's name: it ties every fact to every other, so it is left out of the names that link facts.

    Returns:
        Findings, clashes first; none when the request has no single day or nothing can be said with certainty.
    """
    moments = _request_moments(request_text, reference_date)
    if not moments:
        return ()
    day = _start(moments[0]).date()
    ego = frozenset((persona or "").split())
    request = read("", request_text, reference_date, reference_date, ego)
    statements = [read(doc_id, text, date, reference_date, ego) for doc_id, text, date in facts]
    found = [*_calendar_notes(statements, day), *_opening_notes(request_text, request, moments, statements)]
    if moments[0].granularity == "minute":
        found.extend(_duty_notes(request, moments, statements))
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: not finding.clash))


def _request_moments(text: str, reference: dt.date) -> list[Interval]:
    """Return the readings of the request's one day (and time); none when it names several days or none."""
    dated = [x for x in find_times(text, reference, prefer="future") if x.intervals and not x.impossible]
    timed = [x for x in dated if any(clock.exact for clock in x.clocks)]
    if not dated or len(timed) > 1:
        return []
    readings = list((timed or dated)[0].intervals)
    days = {i.start.date() for x in dated for i in x.intervals if i.start is not None}
    usable = all(i.start is not None and i.granularity in ("minute", "day") for x in dated for i in x.intervals)
    return readings if usable and len(days) == 1 else []


def _start(interval: Interval) -> dt.datetime:
    return interval.start or dt.datetime.min


def _calendar_notes(statements: Sequence[Statement], day: dt.date) -> list[Finding]:
    """Say whether patterns that models miscount (every nth week, nth weekday) fall on the request's day."""
    found = []
    for statement in statements:
        for x in statement.times:
            pattern = x.recurrence
            if pattern is None or x.intervals or (pattern.weekdays and day.weekday() not in pattern.weekdays):
                continue
            if pattern.ordinals or (pattern.interval > 1 and pattern.anchor and pattern.frequency == "weekly"):
                verb = "falls" if falls(x, day) else "does not fall"
                counted = f", counted from {_shown(pattern.anchor)}," if pattern.anchor else ""
                found.append(Finding(f'"{x.text}"{counted} {verb} on {_shown(day)}', (statement.doc_id,)))
    return found


def _shown(day: dt.date) -> str:
    return f"{WEEKDAY_LABELS[day.weekday()]} {day.isoformat()}"


def _opening_notes(
    text: str, request: Statement, moments: Sequence[Interval], statements: Sequence[Statement]
) -> list[Finding]:
    """Return findings about opening hours of places that the request names."""
    found = []
    for statement in statements:
        note = closed_note(text, request, moments, statement)
        if note is not None and not changed(statement, statements):
            found.append(Finding(note.text, (statement.doc_id,), note.slack_minutes))
    return found


def _duty_notes(request: Statement, moments: Sequence[Interval], statements: Sequence[Statement]) -> list[Finding]:
    """Bound at the time asked for, or bound until a time and then under way: what is left?"""
    day = _start(moments[0]).date()
    ends = goals(request, statements)
    found = []
    for duty in duties(statements, day):
        if any(changed(fact, statements) for fact in duty.facts):
            continue
        if duty.start is not None and all(duty.start <= _start(moment) < duty.end for moment in moments):
            slack = -int((duty.end - min(_start(moment) for moment in moments)).total_seconds() // 60)
            note = f"{_shown(day)}: bound from {duty.start:%H:%M} to {duty.end:%H:%M}; asked for {_asked(moments)}"
            found.append(Finding(f"{note}: overlaps", tuple(fact.doc_id for fact in duty.facts), slack))
            continue
        later = [_start(moment) for moment in moments if _start(moment) >= duty.end]
        path = next(iter(paths(duty.places, ends, statements)), None) if later else None
        if path is None:
            continue
        legs = [int((step.trip or dt.timedelta()).total_seconds() // 60) for step in path]
        arrival = duty.end + dt.timedelta(minutes=sum(legs))
        slack = int((max(later) - arrival).total_seconds() // 60)  # the reading that leaves most time
        note = (
            f"{_shown(day)}: bound until {duty.end:%H:%M}; trip {' + '.join(f'{leg} min' for leg in legs)}; "
            f"earliest arrival {arrival:%H:%M}; asked for {_asked(moments)}: leaves {slack} min"
        )
        found.append(Finding(note, tuple(dict.fromkeys(s.doc_id for s in (*duty.facts, *path))), slack))
    return found


def _asked(moments: Sequence[Interval]) -> str:
    return " or ".join(f"{_start(moment):%H:%M}" for moment in moments)
