"""What structure a knowledge base has beside its texts: people, rare terms, times, links (ours). Built once, in memory.

A context belongs to one index (its content hash) and one month of reference dates: dates without a year in the facts
are read near that month. It is found through the index, never held by a module.

After a change of a living knowledge base the times and binding words of the facts that stayed are taken over; names,
terms and links depend on all facts together and are made anew. The result is that of a build from nothing.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pace_dspy.entities import (
    FactGraph,
    GraphKind,
    People,
    Reading,
    TermLinks,
    TimeIndex,
    Vocabulary,
    constraint_strength,
)
from pace_dspy.retrieval import KbIndex
from pace_dspy.temporal import TimeExpression, find_times

ANCHOR_MAX_SHARE = 0.1
"""A word of the request that more than this share of the facts has says nothing about what a fact is about (ours)."""

MAX_OPEN = 64
VERSIONS = 2
"""Contexts kept of one knowledge base: the newest facts, and those that a running request may still hold (ours)."""


MIDDLE = 15
"""Day of the month near which dates without a year are read, so that no request of a month decides it (ours)."""


class _Key(NamedTuple):
    kb_id: str
    month: dt.date
    persona: str | None
    content_hash: str


class FactRead(NamedTuple):
    """What one fact says by itself: its times, and how many kinds of binding words it has."""

    times: tuple[TimeExpression, ...]
    strength: int


FactKey = tuple[str, dt.date | None]
"""Text and date of a fact."""

_open: OrderedDict[_Key, KbContext] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class KbContext:
    """People, terms, times and links of one knowledge base; rows are those of the index.

    Attributes:
        people: Names and roles.
        vocabulary: Document frequencies of terms.
        times: Times of each fact, as arrays.
        links: Links between facts that share rare terms, people or days.
        strengths: ``(n_facts,)`` float32, number of kinds of binding words in each fact, 0 to 3.
        read: What each fact says by itself.
    """

    people: People
    vocabulary: Vocabulary
    times: TimeIndex
    links: TermLinks
    strengths: NDArray[np.float32]
    read: Mapping[FactKey, FactRead] = field(repr=False)
    _graphs: dict[tuple[str, float], FactGraph] = field(default_factory=dict, repr=False)

    @property
    def keys(self) -> tuple[frozenset[str], ...]:
        """Term keys of each fact."""
        return self.vocabulary.rows

    def anchors(self, text: str) -> frozenset[str]:
        """Return the words of a request that the facts know and that few of them have."""
        terms = self.vocabulary.salient_terms(text, max_share=ANCHOR_MAX_SHARE)
        return frozenset(term.key for term in terms if term.doc_freq and " " not in term.key)

    def graph(self, kind: GraphKind, kb: KbIndex, knn_share: float) -> FactGraph:
        """Return the walk's graph, built once a kind and share."""
        key = (kind, knn_share)
        if key not in self._graphs:
            self._graphs[key] = FactGraph.build(kind, kb.graph, self.links, knn_share=knn_share)
        return self._graphs[key]


def context_of(kb: KbIndex, reference_date: dt.date, persona: str | None) -> KbContext:
    """Return the context of a knowledge base, built at first use.

    Args:
        kb: The index.
        reference_date: Its month says how dates without a year are read.
        persona: The owner's name, which tells nothing and links nothing.
    """
    key = _Key(kb.kb_id, reference_date.replace(day=1), persona, kb.content_hash)
    with _lock:
        if key in _open:
            _open.move_to_end(key)
            return _open[key]
        before = [_open[other] for other in _versions(key)]
    made = build_context(kb, reference_date, persona, read=before[-1].read if before else {})
    with _lock:
        _open[key] = made
        for other in _versions(key)[:-VERSIONS]:
            del _open[other]
        while len(_open) > MAX_OPEN:
            _open.popitem(last=False)
    return made


def build_context(
    kb: KbIndex, reference_date: dt.date, persona: str | None, *, read: Mapping[FactKey, FactRead] | None = None
) -> KbContext:
    """Build the context of a knowledge base; well under a second for 2,000 facts.

    Args:
        kb: The index.
        reference_date: See `context_of`.
        persona: See `context_of`.
        read: Facts read before, near the same month.
    """
    known = read or {}
    facts: list[FactKey] = list(zip(kb.texts, kb.dates, strict=True))
    near = reference_date.replace(day=MIDDLE)
    now = {fact: known.get(fact) or _read(fact, near) for fact in facts}
    reading = Reading.of(kb.texts)
    times = TimeIndex([now[fact].times for fact in facts])
    vocabulary = Vocabulary.build(kb.texts, reading=reading)
    return KbContext(
        people=People.build(list(zip(kb.doc_ids, kb.texts, strict=True)), persona, reading=reading),
        vocabulary=vocabulary,
        times=times,
        links=TermLinks.build(vocabulary, date_keys=times.day_keys),
        strengths=np.array([now[fact].strength for fact in facts], dtype=np.float32),
        read=now,
    )


def _read(fact: FactKey, near: dt.date) -> FactRead:
    text, date = fact
    return FactRead(find_times(text, date, near=near), constraint_strength(text))


def _versions(key: _Key) -> list[_Key]:
    """Return the keys of all contexts of the same knowledge base, month and owner, least recently used first."""
    return [other for other in _open if other[:3] == key[:3]]
