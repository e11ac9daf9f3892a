"""Sparse retrieval: BM25 Okapi, scored before the query comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pace_dspy.retrieval.ids import DocIds, check_k, check_lengths
from pace_dspy.retrieval.postings import Postings, Vocabulary, changed, count_terms
from pace_dspy.retrieval.tokenizer import tokenize

K1 = 1.5
B = 0.75
NEGATIVE_IDF_SHARE = 0.25


class ScoreMatrix(NamedTuple):
    """BM25 score of each term in each fact, by columns (one a term), laid out as in bm25s.

    Attributes:
        data: ``(n_postings,)`` float64, score of one occurrence of the term in a query.
        indices: ``(n_postings,)`` int32, position of the fact; ascending within a term.
        indptr: ``(n_terms + 1,)`` int64, where each term's postings start.
    """

    data: NDArray[np.float64]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]


class SparseIndex:
    """BM25 over the facts of one KB. Use `build`.

    Which BM25, and why: the paper's code scores with Okapi's idf ``ln(N-n+0.5) - ln(n+0.5)``, negative for a term
    in more than half of the facts, and then replaces it by 0.25 x the mean idf. In a personal KB the owner's name
    is such a term. No variant of bm25s does this, and none can take in or give up a fact, so we use its idea (all
    scores are computed before the query, one column a term; a query adds columns) with our own arrays: occurrences
    are kept, and after a change all scores are computed from them again by one function, in milliseconds. Scores
    thus equal those of a new index to the last bit. A query's terms are added in query order.

    A consequence kept on purpose: in corpora of one or two facts every idf is <= 0, so nothing is returned.

    Paper: hybrid retrieval, sparse side, k1 1.5 and b 0.75 as in the reference.

    Args:
        doc_ids: Ids in corpus order.
        vocabulary: Terms by column.
        postings: Occurrences.
        data: Scores when known (see `ScoreMatrix`), else computed.
    """

    def __init__(
        self,
        doc_ids: DocIds,
        vocabulary: Vocabulary,
        postings: Postings,
        data: NDArray[np.float64] | None = None,
    ) -> None:
        self.doc_ids = doc_ids
        self.postings = postings
        self._vocabulary = vocabulary
        self._n_terms = len(postings.indptr) - 1
        self._starts = postings.indptr.tolist()
        scores = bm25_scores(postings) if data is None else data
        self.matrix = ScoreMatrix(scores, postings.indices, postings.indptr)

    @classmethod
    def build(cls, doc_ids: DocIds | Iterable[str], texts: Sequence[str]) -> SparseIndex:
        """Index texts.

        Args:
            doc_ids: n unique ids, in corpus order.
            texts: n texts; one without terms is kept and never found.

        Raises:
            ValueError: Repeated ids or different lengths.
        """
        ids = DocIds.of(doc_ids)
        check_lengths(ids, texts, "texts")
        tokens = [tokenize(text) for text in texts]
        vocabulary = Vocabulary(sorted(set().union(*tokens)))
        return cls(ids, vocabulary, count_terms(tokens, vocabulary))

    def changed(self, doc_ids: DocIds, kept: NDArray[np.bool_], texts: Sequence[str]) -> SparseIndex:
        """Return the index after facts were taken out and others put at the end; one writer at a time.

        Args:
            doc_ids: Ids after the change.
            kept: ``(n,)`` whether each fact stays.
            texts: Texts of the new facts.
        """
        new = count_terms([tokenize(text) for text in texts], self._vocabulary, int(np.count_nonzero(kept)))
        return SparseIndex(doc_ids, self._vocabulary, changed(self.postings, kept, new))

    def __len__(self) -> int:
        return len(self.doc_ids)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Terms in column order; after changes some may be in no fact."""
        return tuple(self._vocabulary.terms[: self._n_terms])

    def search(self, query: str, k: int) -> list[tuple[str, float]]:
        """Return the best facts of one query.

        Args:
            query: Any text; a repeated term counts again, unknown terms count nothing.
            k: Hits, capped at the number of facts that match.

        Returns:
            ``(doc_id, score)`` with score > 0, best first, equal scores in corpus order.

        Raises:
            ValueError: ``k`` < 0.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[tuple[str, float]]]:
        """Return `search` of each query."""
        found = self.search_positions(queries, k)
        return [list(zip(self.doc_ids.take(positions), scores, strict=True)) for positions, scores in found]

    def search_positions(self, queries: Sequence[str], k: int) -> list[tuple[list[int], list[float]]]:
        """Like `search_many`, with the positions and scores of each query as two lists."""
        k = check_k(k)
        found = []
        for scores in self.scores(queries):
            best = top_k_positive(scores, k)
            found.append((best.tolist(), scores[best].tolist()))
        return found

    def scores(self, queries: Sequence[str]) -> NDArray[np.float64]:
        """Score every fact for every query.

        Returns:
            ``(n_queries, n_docs)`` float64, higher is better, 0 without a common term.
        """
        data, indices, _ = self.matrix
        n_docs, starts, columns = len(self), self._starts, self._vocabulary.columns
        n_terms = self._n_terms  # a later snapshot may know more
        scores = np.zeros((len(queries), n_docs))
        for row, query in zip(scores, queries, strict=True):
            known = [column for term in tokenize(query) if (column := columns.get(term, n_terms)) < n_terms]
            if known:
                postings = [slice(starts[column], starts[column + 1]) for column in known]
                # Added in the order given, as a loop over the terms would.
                row[:] = np.bincount(
                    np.concatenate([indices[part] for part in postings]),
                    np.concatenate([data[part] for part in postings]),
                    minlength=n_docs,
                )
        return scores


def bm25_scores(postings: Postings) -> NDArray[np.float64]:
    """Return idf x term part of every posting, ``(n_postings,)`` float64.

    The term part is ``tf*(k1+1)/(tf + k1*(1-b+b*len/avglen))``. The result does not depend on the order of terms.
    """
    if not len(postings.counts):
        return np.zeros(0)
    mean_length = postings.lengths.sum() / len(postings.lengths)
    length_part = K1 * (1 - B + B * postings.lengths / mean_length)
    doc_freqs = postings.doc_freqs
    idf = okapi_idf(doc_freqs, len(postings.lengths))
    scores: NDArray[np.float64] = np.repeat(idf, doc_freqs) * (postings.counts * (K1 + 1))
    scores /= postings.counts + length_part[postings.indices]
    return scores


def okapi_idf(doc_freqs: NDArray[np.int64], n_docs: int) -> NDArray[np.float64]:
    """Return ``ln(N-n+0.5) - ln(n+0.5)``; negative values become 0.25 x the mean, taken before the replacement.

    Args:
        doc_freqs: ``(n_terms,)`` int, facts that contain each term; a term in none has no part in the mean.
        n_docs: Facts, N.

    Returns:
        ``(n_terms,)`` float64.
    """
    n_terms_by_freq = np.bincount(doc_freqs, minlength=1)
    n_terms_by_freq[0] = 0
    freqs = np.arange(len(n_terms_by_freq))
    # One value a frequency, summed in one order: equal vocabularies have equal means to the last bit.
    by_freq: NDArray[np.float64] = np.log(n_docs - freqs + 0.5) - np.log(freqs + 0.5)
    mean = (by_freq * n_terms_by_freq).sum() / max(1, n_terms_by_freq.sum())
    by_freq[by_freq < 0] = NEGATIVE_IDF_SHARE * mean
    idf: NDArray[np.float64] = by_freq[doc_freqs]
    return idf


def top_k_positive(scores: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return positions of the ``k`` highest scores above 0, best first, equal scores in corpus order."""
    matched = np.flatnonzero(scores > 0)
    if k == 0:
        return matched[:0]
    found = scores[matched]
    if len(matched) > k:
        cut = np.partition(found, len(matched) - k)[len(matched) - k]
        best = np.flatnonzero(found >= cut)
        matched, found = matched[best], found[best]
    return matched[np.argsort(-found, kind="stable")[:k]]
