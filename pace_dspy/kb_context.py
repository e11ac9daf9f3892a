"""What structure a knowledge base has beside its texts: people, rare terms, times, links (ours). Built once, in memory.

A context belongs to one index (its content hash) and one month of reference dates: dates without a year in the facts
are read near that month. It is found through the index, never held by a module.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pace_dspy.entities import (
    FactGraph,
    GraphKind,
    People,
    TermLinks,
    TimeIndex,
    Vocabulary,
    constraint_strength,
)
from pace_dspy.retrieval import KbIndex
from pace_dspy.temporal import find_times

ANCHOR_MAX_SHARE = 0.1
"""A word of the request that more than this share of the facts has says nothing about what a fact is about (ours)."""

MAX_OPEN = 64
_open: OrderedDict[tuple[str, dt.date, str | None], KbContext] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class KbContext:
    """People, terms, times and links of one knowledge base; rows are those of the index.

    Attributes:
        people: Names and roles.
        vocabulary: Document frequencies of terms.
        keys: Term keys of each fact.
        times: Times of each fact, as arrays.
        links: Links between facts that share rare terms, people or days.
        strengths: ``(n_facts,)`` float32, number of kinds of binding words in each fact, 0 to 3.
    """

    people: People
    vocabulary: Vocabulary
    keys: tuple[frozenset[str], ...]
    times: TimeIndex
    links: TermLinks
    strengths: NDArray[np.float32]
    _graphs: dict[tuple[str, float], FactGraph] = field(default_factory=dict, repr=False)

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
    key = (kb.content_hash, reference_date.replace(day=1), persona)
    with _lock:
        if key in _open:
            _open.move_to_end(key)
            return _open[key]
    made = build_context(kb, reference_date, persona)
    with _lock:
        _open[key] = made
        while len(_open) > MAX_OPEN:
            _open.popitem(last=False)
    return made


def build_context(kb: KbIndex, reference_date: dt.date, persona: str | None) -> KbContext:
    """Build the context of a knowledge base; well under a second for 2,000 facts."""
    times = TimeIndex(
        [find_times(text, date, near=reference_date) for text, date in zip(kb.texts, kb.dates, strict=True)]
    )
    vocabulary = Vocabulary.build(kb.texts)
    return KbContext(
        people=People.build(list(zip(kb.doc_ids, kb.texts, strict=True)), persona),
        vocabulary=vocabulary,
        keys=tuple(frozenset(vocabulary.keys(text)) for text in kb.texts),
        times=times,
        links=TermLinks.build(vocabulary, kb.texts, date_keys=times.day_keys),
        strengths=np.array([constraint_strength(text) for text in kb.texts], dtype=np.float32),
    )
