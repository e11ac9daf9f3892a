"""Exact inner-product search on FAISS with scores and order that depend on nothing but the two vectors.

FAISS computes a score by one of several kernels, chosen by the number of queries, and leaves the order of equal
scores open. So it proposes candidates (a few more than asked), which are scored again pair by pair in a fixed
order of summation and sorted by (score descending, position ascending). A row whose cut falls into a group of
equal scores is searched deeper until the cut is certain. Equal facts thus always score equal, a view scores the
same alone and in a batch, and a graph is the same on each build. Ours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from pace_dspy.retrieval.base import FloatMatrix

_SPARE = 16
_ROUNDING = 1e-5
"""More than the difference between FAISS's float32 sum and ours for unit vectors."""
_BLOCK_FLOATS = 1 << 20


class TopK(NamedTuple):
    """Best first: ``positions`` (n_queries, m) int64, -1 where there is none; ``scores`` (n_queries, m) float32."""

    positions: NDArray[np.int64]
    scores: FloatMatrix


def flat_index(vectors: FloatMatrix) -> Any:
    """Return an ``IndexFlatIP`` holding ``vectors`` ``(n, dim)`` float32."""
    index = faiss.IndexFlatIP(max(1, vectors.shape[1]))
    if len(vectors):
        index.add(vectors)
    return index


def stored_vectors(index: Any) -> FloatMatrix:
    """Return the vectors of a flat index as a read-only view ``(n, dim)`` float32; valid while the index lives."""
    if index.ntotal == 0:
        return np.zeros((0, index.d), dtype=np.float32)
    view: FloatMatrix = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(index.ntotal, index.d)
    view.flags.writeable = False
    return view


def exact_top_k(index: Any, queries: FloatMatrix, k: int) -> TopK:
    """Search all queries in one FAISS call.

    Args:
        index: ``IndexFlatIP`` with n vectors.
        queries: ``(n_queries, dim)`` float32, finite.
        k: Hits a query, capped at n.

    Returns:
        ``m = min(k, n)`` hits a query; equal scores in corpus order.
    """
    m = min(k, index.ntotal)
    positions = np.full((len(queries), m), -1, dtype=np.int64)
    scores = np.full((len(queries), m), -np.inf, dtype=np.float32)
    vectors = stored_vectors(index)
    rows = np.arange(len(queries))
    fetch = m + _SPARE
    while m and len(rows):
        fetch = min(fetch, index.ntotal)
        proposed, candidates = index.search(queries[rows], fetch)
        candidates.sort(axis=1)
        rescored = _score(vectors, queries[rows], candidates)
        order = np.argsort(-rescored, axis=1, kind="stable")[:, :m]
        positions[rows] = np.take_along_axis(candidates, order, axis=1)
        scores[rows] = np.take_along_axis(rescored, order, axis=1)
        if fetch == index.ntotal:
            break
        rows = rows[proposed[:, -1] >= scores[rows, -1] - _ROUNDING]
        fetch *= 4
    return TopK(positions, scores)


def _score(vectors: FloatMatrix, queries: FloatMatrix, candidates: NDArray[np.int64]) -> FloatMatrix:
    n_queries, n_candidates = candidates.shape
    scores = np.empty((n_queries, n_candidates), dtype=np.float32)
    block = max(1, _BLOCK_FLOATS // max(1, n_candidates * vectors.shape[1]))
    for start in range(0, n_queries, block):
        part = slice(start, start + block)
        picked = vectors[candidates[part]].astype(np.float64)
        scores[part] = np.einsum("qd,qkd->qk", queries[part].astype(np.float64), picked)
    scores[candidates < 0] = -np.inf  # FAISS's padding: never a row
    return scores
