"""Chains of trips stated in facts, from where somebody is bound to where the request leads (ours)."""

from __future__ import annotations

from collections.abc import Sequence

from pace_dspy.temporal.cues import CHANGED
from pace_dspy.temporal.statements import Statement

Path = tuple[Statement, ...]


def goals(request: Statement, statements: Sequence[Statement]) -> frozenset[str]:
    """Return the places a request may mean: names in it, and places of facts that share two of its words."""
    found = set(request.names)
    for statement in statements:
        shared = request.words & statement.words
        if statement.trip is None and len(shared) >= 2:
            found |= statement.places
    return frozenset(found)


def paths(starts: frozenset[str], ends: frozenset[str], statements: Sequence[Statement]) -> list[Path]:
    """Return chains of one or two trips from a start to an end, shortest first; a trip works both ways."""
    trips = [s for s in statements if s.trip is not None and len(s.names) >= 2 and not CHANGED.search(s.text)]
    single: list[Path] = [(trip,) for trip in trips if _joins(starts, trip, ends)]
    double: list[Path] = [
        (first, second)
        for first in trips
        for second in trips
        if first is not second and _leads(starts, first, second, ends)
    ]
    return [*single, *double]


def _joins(starts: frozenset[str], trip: Statement, ends: frozenset[str]) -> bool:
    return any(start != end for start in starts & trip.names for end in ends & trip.names)


def _leads(starts: frozenset[str], first: Statement, second: Statement, ends: frozenset[str]) -> bool:
    via = (first.names & second.names) - starts - ends
    return any(_joins(starts, first, frozenset({v})) and _joins(frozenset({v}), second, ends) for v in via)
