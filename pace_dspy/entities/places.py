"""Places and things: capitalised names, rare words and word pairs of one knowledge base (ours)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pace_dspy.entities.names import NameFinder, Reading
from pace_dspy.entities.words import STOP_WORDS, Word, split_words

TermKind = Literal["name", "word", "pair"]


@dataclass(frozen=True, slots=True)
class Term:
    """A word, name or pair of adjacent words that can tell one fact from another.

    Attributes:
        key: Folded form, words joined by a space; equal keys are the same term.
        kind: ``name`` (capitalised span of two words or more, or one capitalised word), ``word`` or ``pair``.
        doc_freq: Facts of the knowledge base that contain it; 0 for one that no fact contains.
        idf: ``ln((n + 1) / (doc_freq + 1))``, >= 0, higher is rarer.
    """

    key: str
    kind: TermKind
    doc_freq: int
    idf: float


class Vocabulary:
    """Document frequencies of the terms of a knowledge base. Use `build`.

    Args:
        rows: Term keys of each fact, in corpus order.
        name_keys: Keys that stand as a name in any fact.
        names: Tells capitalised names from sentence starts.
    """

    def __init__(self, rows: Sequence[frozenset[str]], name_keys: frozenset[str], names: NameFinder) -> None:
        self.rows, self.name_keys, self.names = tuple(rows), name_keys, names
        self.n_docs = len(self.rows)
        self.doc_freqs: Mapping[str, int] = dict(Counter(key for row in self.rows for key in row))

    @classmethod
    def build(cls, texts: Sequence[str], *, reading: Reading | None = None) -> Vocabulary:
        """Count the terms of all facts.

        Args:
            texts: Facts in corpus order, none included.
            reading: The same facts, read already.
        """
        reading = reading or Reading.of(texts)
        rows: list[frozenset[str]] = []
        name_keys: set[str] = set()
        for words in reading.words:
            found = _keys(words, reading.names)
            rows.append(frozenset(found))
            name_keys.update(key for key, kind in found.items() if kind == "name")
        return cls(rows, frozenset(name_keys), reading.names)

    def idf(self, key: str) -> float:
        """Return ``ln((n + 1) / (doc_freq + 1))`` of a folded key; ``ln(n + 1)`` for an unknown one."""
        return math.log((self.n_docs + 1) / (self.doc_freqs.get(key, 0) + 1))

    def keys(self, text: str) -> dict[str, TermKind]:
        """Return every term key of a text with its kind, in text order, however frequent."""
        return _keys(split_words(text), self.names)

    def salient_terms(self, text: str, *, max_share: float = 1.0) -> tuple[Term, ...]:
        """Return the terms of a text, rarest first (ties in text order); stop words and dates are none.

        Args:
            text: A request or a fact.
            max_share: Leave out terms in more than this share of the facts.
        """
        limit = max_share * self.n_docs
        terms = [Term(key, kind, self.doc_freqs.get(key, 0), self.idf(key)) for key, kind in self.keys(text).items()]
        return tuple(sorted((t for t in terms if t.doc_freq <= max(limit, 1.0)), key=lambda term: -term.idf))


def _keys(words: Sequence[Word], names: NameFinder) -> dict[str, TermKind]:
    found: dict[str, TermKind] = {}
    for span in names.spans(words):
        if " " in span.key:
            found[span.key] = "name"
        for part in span.words:
            if part not in STOP_WORDS and len(part) > 1:
                found[part] = "name"
    previous: str | None = None
    for word in words:
        content = word.kind == "word" and word.key not in STOP_WORDS and len(word.key) > 1
        if content:
            found.setdefault(word.key, "word")
            if previous is not None:
                found.setdefault(f"{previous} {word.key}", "pair")
        previous = word.key if content else None
    return found
