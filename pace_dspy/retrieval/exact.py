"""Exact inner-product search with FAISS, with scores and order that depend on nothing but the two vectors.

FAISS computes a score by one of several kernels, chosen by the number of queries, and leaves the order of equal
scores open. So it proposes candidates (a few more than asked), which are scored again pair by pair in a fixed
order of summation and sorted by (score descending, row ascending). A query whose cut falls into a group of
equal scores is searched deeper until the cut is certain. Equal facts thus always score equal, a view scores the
same alone and in a batch, and a graph is the same on each build. Ours.
"""

from __future__ import annotations

from typing import NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from pace_dspy.retrieval.base import FloatMatrix

ROUNDING = 1e-5
"""More than the difference between FAISS's float32 sum and ours for unit vectors."""
_SPARE = 6
_BLOCK_FLOATS = 1 << 20


class TopK(NamedTuple):
    """Best first: ``positions`` (n_queries, m) int64, -1 where there is none; ``scores`` (n_queries, m) float32."""

    positions: NDArray[np.int64]
    scores: FloatMatrix


def exact_top_k(matrix: FloatMatrix, queries: FloatMatrix, k: int, alive: NDArray[np.bool_] | None = None) -> TopK:
    """Search all queries in one FAISS call.

    Args:
        matrix: ``(n_rows, dim)`` float32, C-contiguous; may be a view of a mapped file.
        queries: ``(n_queries, dim)`` float32, finite.
        k: Hits a query, capped at the number of rows that count.
        alive: ``(n_rows,)`` bool, rows that count; ``None`` for all.

    Returns:
        Row numbers and scores, ``min(k, rows that count)`` a query; equal scores in row order.
    """
    n_rows = len(matrix)
    m = min(k, n_rows if alive is None else int(np.count_nonzero(alive)))
    if not m or not len(queries):
        shape = (len(queries), m)
        return TopK(np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32))
    fetch = min(m + _SPARE, n_rows)
    top, undecided = _best_of(matrix, queries, m, fetch, alive)
    while len(undecided) and fetch < n_rows:
        fetch = min(4 * fetch, n_rows)
        deeper, still = _best_of(matrix, queries[undecided], m, fetch, alive)
        top.positions[undecided], top.scores[undecided] = deeper
        undecided = undecided[still]
    return top


def _best_of(
    matrix: FloatMatrix, queries: FloatMatrix, m: int, fetch: int, alive: NDArray[np.bool_] | None
) -> tuple[TopK, NDArray[np.int64]]:
    """Return the best ``m`` of ``fetch`` candidates a query, and the queries for which others may be as good."""
    proposed, candidates = faiss.knn(queries, matrix, fetch, metric=faiss.METRIC_INNER_PRODUCT)
    candidates.sort(axis=1)
    rescored = score_pairs(matrix, queries, candidates)
    if alive is not None:
        rescored[~alive[candidates]] = -np.inf
    order = np.argsort(-rescored, axis=1, kind="stable")[:, :m]
    rows = np.arange(len(queries))[:, None]
    top = TopK(candidates[rows, order], rescored[rows, order])
    return top, np.flatnonzero(proposed[:, -1] >= top.scores[:, -1] - ROUNDING)


def score_pairs(matrix: FloatMatrix, queries: FloatMatrix, rows: NDArray[np.int64]) -> FloatMatrix:
    """Score given pairs.

    Args:
        matrix: ``(n_rows, dim)`` float32.
        queries: ``(n_queries, dim)`` float32.
        rows: ``(n_queries, m)`` rows of ``matrix``; a negative one (FAISS's padding) scores minus infinity.

    Returns:
        ``(n_queries, m)`` float32 inner products, summed in float64.
    """
    n_queries, n_candidates = rows.shape
    scores = np.empty((n_queries, n_candidates), dtype=np.float32)
    block = max(1, _BLOCK_FLOATS // max(1, n_candidates * matrix.shape[1]))
    for start in range(0, n_queries, block):
        part = slice(start, start + block)
        picked = matrix[rows[part]].astype(np.float64)
        scores[part] = np.einsum("qd,qkd->qk", queries[part].astype(np.float64), picked)
    scores[rows < 0] = -np.inf
    return scores
