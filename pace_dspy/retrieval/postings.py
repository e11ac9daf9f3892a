"""Which term occurs how often in which fact: arrays by term, with facts taken out and put in. Ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Postings(NamedTuple):
    """Term occurrences by columns, one a term.

    Attributes:
        indices: ``(n_postings,)`` int32, position of the fact; ascending within a term.
        counts: ``(n_postings,)`` int32, occurrences of the term in that fact, >= 1.
        indptr: ``(n_terms + 1,)`` int64, where each term's postings start; a term may have none.
        lengths: ``(n_docs,)`` int32, terms of each fact, repeats counted.
    """

    indices: NDArray[np.int32]
    counts: NDArray[np.int32]
    indptr: NDArray[np.int64]
    lengths: NDArray[np.int32]

    @property
    def doc_freqs(self) -> NDArray[np.int64]:
        """``(n_terms,)`` int64, facts that contain each term."""
        return np.diff(self.indptr)


class Vocabulary:
    """Terms and their columns; new terms get the next columns, none is ever taken out.

    Snapshots of one KB share a vocabulary: each knows how many of its columns it may use.

    Args:
        terms: Terms in column order, each once.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self.terms = list(terms)
        self.columns = {term: column for column, term in enumerate(self.terms)}

    def __len__(self) -> int:
        return len(self.terms)

    def column(self, term: str) -> int:
        """Return the column of a term, a new one when it is new. Called by one writer at a time."""
        found = self.columns.get(term)
        if found is None:
            found = len(self.terms)
            self.terms.append(term)
            self.columns[term] = found
        return found


def count_terms(tokens: Sequence[Sequence[str]], vocabulary: Vocabulary, first: int = 0) -> Postings:
    """Count the terms of facts.

    Args:
        tokens: Terms of each fact.
        vocabulary: Gets the new terms.
        first: Position of the first of these facts.
    """
    lengths = np.array([len(terms) for terms in tokens], dtype=np.int32)
    columns = np.array([vocabulary.column(term) for terms in tokens for term in terms], dtype=np.int64)
    positions = np.repeat(np.arange(len(tokens)), lengths)
    # One number a (term, fact), sorted by term, then fact.
    pairs, counts = np.unique(columns * max(1, len(tokens)) + positions, return_counts=True)
    term_of, position_of = np.divmod(pairs, max(1, len(tokens)))
    doc_freqs = np.bincount(term_of, minlength=len(vocabulary))
    return Postings(
        (position_of + first).astype(np.int32),
        counts.astype(np.int32),
        np.concatenate([[0], np.cumsum(doc_freqs)]).astype(np.int64),
        lengths,
    )


def changed(postings: Postings, kept: NDArray[np.bool_], new: Postings) -> Postings:
    """Return the postings after facts were taken out and others put at the end.

    Args:
        postings: Of all facts before.
        kept: ``(n_docs,)`` whether each fact stays.
        new: Of the facts put in, counted over the same vocabulary (or a longer one), from position ``kept.sum()``.
    """
    n_terms = len(new.indptr) - 1
    stays = kept[postings.indices]
    moved = (np.cumsum(kept) - 1).astype(np.int32)[postings.indices[stays]]
    before = np.concatenate([[0], np.cumsum(stays)])[postings.indptr]
    indptr = np.concatenate([before, np.full(n_terms + 1 - len(before), before[-1])])
    # New facts have the highest positions, so they go to the end of each term's postings.
    at = np.repeat(indptr[1:], new.doc_freqs)
    return Postings(
        np.insert(moved, at, new.indices),
        np.insert(postings.counts[stays], at, new.counts),
        (indptr + new.indptr).astype(np.int64),
        np.concatenate([postings.lengths[kept], new.lengths]),
    )
