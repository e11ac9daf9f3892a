"""Sparse retrieval: BM25 Okapi on bm25s."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import bm25s
import numpy as np
from numpy.typing import NDArray

from pace_dspy.retrieval.ids import DocIds, check_k, check_lengths
from pace_dspy.retrieval.tokenizer import tokenize

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG on import

K1 = 1.5
B = 0.75
NEGATIVE_IDF_SHARE = 0.25


class ScoreMatrix(NamedTuple):
    """BM25 score of each term in each fact, by columns (one a term) as bm25s lays it out.

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
    is such a term. None of bm25s's own variants does this: "lucene" gives it almost no weight, "robertson" and
    "atire" none or nearly none, and each changes the ratio between all other terms. So bm25s builds the
    score matrix with its "atire" term part, which is Okapi's ``tf*(k1+1)/(tf + k1*(1-b+b*len/avglen))``, in
    float64, and its always positive "lucene" idf; every term's column of the public ``scores`` is then multiplied
    by okapi idf / lucene idf. The result equals the reference for every term, frequent ones included, to about
    1e-15. Scoring adds the postings of each query term as arrays, in query order.

    A consequence kept on purpose: in corpora of one or two facts every idf is <= 0, so nothing is returned.

    Paper: hybrid retrieval, sparse side, k1 1.5 and b 0.75 as in the reference.

    Args:
        doc_ids: Ids in corpus order.
        vocabulary: Terms, in column order.
        matrix: Score matrix.
    """

    def __init__(self, doc_ids: DocIds, vocabulary: Sequence[str], matrix: ScoreMatrix) -> None:
        self.doc_ids = doc_ids
        self.vocabulary = tuple(vocabulary)
        self.matrix = matrix
        self._columns = {term: column for column, term in enumerate(self.vocabulary)}

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
        vocabulary = sorted(set().union(*tokens))
        if not vocabulary:
            empty = ScoreMatrix(np.zeros(0), np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
            return cls(ids, vocabulary, empty)
        columns = {term: column for column, term in enumerate(vocabulary)}
        model = bm25s.BM25(k1=K1, b=B, method="atire", idf_method="lucene", dtype="float64", backend="numpy")
        token_ids = [[columns[term] for term in terms] for terms in tokens]
        model.index((token_ids, columns), create_empty_token=False, show_progress=False)
        indptr = np.asarray(model.scores["indptr"], dtype=np.int64)
        doc_freqs = np.diff(indptr)
        ratio = okapi_idf(doc_freqs, len(ids)) / _lucene_idf(doc_freqs, len(ids))
        data = np.asarray(model.scores["data"], dtype=np.float64) * np.repeat(ratio, doc_freqs)
        return cls(ids, vocabulary, ScoreMatrix(data, np.asarray(model.scores["indices"], dtype=np.int32), indptr))

    def __len__(self) -> int:
        return len(self.doc_ids)

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
        k = check_k(k)
        results = []
        for scores in self.scores(queries):
            best = top_k_positive(scores, k)
            results.append(list(zip(self.doc_ids.take(best.tolist()), scores[best].tolist(), strict=True)))
        return results

    def scores(self, queries: Sequence[str]) -> NDArray[np.float64]:
        """Score every fact for every query.

        Returns:
            ``(n_queries, n_docs)`` float64, higher is better, 0 without a common term.
        """
        data, indices, indptr = self.matrix
        scores = np.zeros((len(queries), len(self)))
        for row, query in zip(scores, queries, strict=True):
            for column in (self._columns[term] for term in tokenize(query) if term in self._columns):
                postings = slice(indptr[column], indptr[column + 1])
                row[indices[postings]] += data[postings]  # a term's postings name each fact once
        return scores


def okapi_idf(doc_freqs: NDArray[np.int64], n_docs: int) -> NDArray[np.float64]:
    """Return ``ln(N-n+0.5) - ln(n+0.5)``; negative values become 0.25 x the mean, taken before the replacement.

    Args:
        doc_freqs: ``(n_terms,)`` int, facts that contain each term, >= 1.
        n_docs: Facts, N.

    Returns:
        ``(n_terms,)`` float64.
    """
    idf: NDArray[np.float64] = np.log(n_docs - doc_freqs + 0.5) - np.log(doc_freqs + 0.5)
    idf[idf < 0] = NEGATIVE_IDF_SHARE * idf.mean()
    return idf


def top_k_positive(scores: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return positions of the ``k`` highest scores above 0, best first, equal scores in corpus order."""
    matched = np.flatnonzero(scores > 0)
    if k == 0:
        return matched[:0]
    if len(matched) > k:
        cut = np.partition(scores[matched], len(matched) - k)[len(matched) - k]
        matched = matched[scores[matched] >= cut]
    return matched[np.argsort(-scores[matched], kind="stable")[:k]]


def _lucene_idf(doc_freqs: NDArray[np.int64], n_docs: int) -> NDArray[np.float64]:
    idf: NDArray[np.float64] = np.log(1 + (n_docs - doc_freqs + 0.5) / (doc_freqs + 0.5))
    return idf
