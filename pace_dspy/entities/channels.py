"""Extra rankings for the fusion: facts whose time touches the request's, facts about people it describes (ours)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pace_dspy.entities.people import People
from pace_dspy.temporal import Interval, TimeExpression, touches

EXACT, RECURRING, OPEN, COARSE = 1.0, 0.8, 0.4, 0.2
"""Worth of a touching time: a day or hour, a pattern, an open end ("until 3 May"), a month or season (our choice)."""
_MAX_LINKED_DAYS = 7
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
Similarity = NDArray[np.float32]


class TimeIndex:
    """The times of every fact, as arrays.

    Args:
        times: Time expressions of each fact, in corpus order (`pace_dspy.temporal.find_times`).
    """

    def __init__(self, times: Sequence[Sequence[TimeExpression]]) -> None:
        self.n_facts = len(times)
        rows: list[tuple[int, int, int, float]] = []
        self._recurring: list[tuple[int, TimeExpression]] = []
        for position, found in enumerate(times):
            for time in found:
                if time.impossible:
                    continue
                if not time.intervals and time.recurrence is not None:
                    self._recurring.append((position, time))
                worth = _worth(time)
                rows.extend((position, _minute(i.start, _FIRST), _minute(i.end, _LAST), worth) for i in time.intervals)
        self._positions = np.array([row[0] for row in rows], dtype=np.int64)
        self._starts = np.array([row[1] for row in rows], dtype=np.int64)
        self._ends = np.array([row[2] for row in rows], dtype=np.int64)
        self._worths = np.array([row[3] for row in rows], dtype=np.float32)
        self.day_keys = tuple(frozenset(key for time in found for key in _days(time)) for found in times)

    def touching(self, intervals: Sequence[Interval]) -> Similarity:
        """Return how well each fact's time touches one of the intervals.

        Args:
            intervals: The request's (`pace_dspy.temporal.request_intervals`); coarse ones are left out, for "in
                October" touches half of the notes.

        Returns:
            ``(n_facts,)`` float32 in [0, 1], 0 for no touch.
        """
        worth = np.zeros(self.n_facts, dtype=np.float32)
        for interval in intervals:
            if interval.coarse or (interval.start is None and interval.end is None):
                continue
            start, end = _minute(interval.start, _FIRST), _minute(interval.end, _LAST)
            touched = (self._starts < end) & (start < self._ends)
            np.maximum.at(worth, self._positions[touched], self._worths[touched])
            for position, time in self._recurring:
                if worth[position] < RECURRING and touches(time, interval):
                    worth[position] = RECURRING
        return worth

    def channel(self, intervals: Sequence[Interval], similarity: Similarity, top: int = 10) -> list[int]:
        """Return positions of the facts that touch the intervals, best ``touching + similarity`` first.

        Args:
            intervals: See `touching`.
            similarity: ``(n_facts,)`` cosine similarity of each fact to the request.
            top: Positions at most.
        """
        worth = self.touching(intervals)
        return _best(np.flatnonzero(worth > 0), worth + similarity, top)


def people_channel(people: People, request: str, similarity: Similarity, top: int = 10) -> list[int]:
    """Return positions of the facts about people whom the request only describes ("our usual caterer").

    Named people are left out: their name finds them already.

    Args:
        people: The people of the knowledge base.
        request: The request.
        similarity: ``(n_facts,)`` cosine similarity of each fact to the request; orders the facts.
        top: Positions at most.
    """
    found: set[int] = set()
    for mention in people.mentions(request):
        if mention.kind == "relation":
            found.update(people.positions([*mention.doc_ids, *(d for n in mention.names for d in people.facts_of(n))]))
    return _best(np.array(sorted(found), dtype=np.int64), similarity, top)


def _best(positions: NDArray[np.int64], score: Similarity, top: int) -> list[int]:
    order = np.argsort(-score[positions], kind="stable")[:top]
    return [int(position) for position in positions[order]]


def _worth(time: TimeExpression) -> float:
    if time.recurrence is not None:
        return RECURRING
    if any(interval.coarse for interval in time.intervals):
        return COARSE
    return OPEN if any(interval.open_start or interval.open_end for interval in time.intervals) else EXACT


def _minute(moment: dt.datetime | None, default: int) -> int:
    return default if moment is None else moment.toordinal() * 1440 + moment.hour * 60 + moment.minute


def _days(time: TimeExpression) -> list[str]:
    """Return a key for every day of the closed, exact readings of at most a week."""
    keys = []
    for interval in time.intervals:
        if interval.start is None or interval.end is None or interval.coarse:
            continue
        last = (interval.end - dt.timedelta(microseconds=1)).date()
        count = (last - interval.start.date()).days + 1
        if count <= _MAX_LINKED_DAYS:
            keys += [(interval.start.date() + dt.timedelta(days=day)).isoformat() for day in range(count)]
    return keys
