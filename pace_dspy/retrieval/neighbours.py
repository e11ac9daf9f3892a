"""Nearest others of every row: exact below a size, through short codes above it, with the recall measured. Ours.

An exact search compares all pairs of vectors. Above `EXACT_LIMIT` rows every vector is also written as a short code
(its directions of largest variance, turned at random, then FAISS product quantisation, 4 bits for 4 numbers), all
pairs of codes are compared, which is some ten times cheaper, and the best few candidates of each row are scored
exactly. The recall is measured first, on rows drawn with a fixed seed and against their true neighbours: where it
would stay below `MIN_RECALL`, more candidates are taken, and in the end the exact search. The same rows give the same
result on each build.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from pace_dspy.retrieval.base import FloatMatrix, IntMatrix
from pace_dspy.retrieval.exact import ROUNDING, TopK, exact_top_k, score_pairs

EXACT_LIMIT = 12_000
MIN_RECALL = 0.99
_TARGET = 0.9925
"""Wanted on the sample, so that chance does not hide a recall below `MIN_RECALL`."""
_SAMPLE = 512
"""Enough rows for FAISS to compare them by matrix products, seven times faster than row by row."""
_CANDIDATES = (4, 6, 8, 12, 16)
"""Candidates scored exactly for each neighbour kept: tried in this order."""
_NUMBERS_PER_CODE = 4
_MIN_DIM = 16
_LONGER_CODES_LIMIT = 75_000
"""Up to here codes keep two thirds of the numbers; above, where neighbours are nearer, fewer are enough."""
_TRAINING_ROWS = 2048
_CHUNK = 4096
_AT_ONCE = 16
_SPARE = 2
_SEED = 7
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Neighbours:
    """Nearest others of each row.

    Attributes:
        positions: ``(n, width)`` int32, best first, equal similarity in row order.
        similarities: ``(n, width)`` float32 inner products.
        recall: Share of the true neighbours found, measured on a sample; 1.0 for the exact search.
    """

    positions: IntMatrix
    similarities: FloatMatrix
    recall: float


def nearest_others(matrix: FloatMatrix, k: int, exact_limit: int = EXACT_LIMIT) -> Neighbours:
    """Find the nearest other rows of every row.

    Args:
        matrix: ``(n, dim)`` float32, rows of unit length.
        k: Others a row, capped at n - 1.
        exact_limit: Largest n that is searched exactly.
    """
    n = len(matrix)
    width = max(0, min(k, n - 1))
    if width == 0:
        return Neighbours(np.zeros((n, 0), dtype=np.int32), np.zeros((n, 0), dtype=np.float32), 1.0)
    if n > exact_limit and matrix.shape[1] >= _MIN_DIM:
        codes = Codes(matrix)
        sample = np.sort(np.random.default_rng(_SEED).choice(n, min(n, _SAMPLE), replace=False))
        last_true = _last_true(matrix, sample, width)
        for factor in _CANDIDATES:
            n_candidates = min(n, factor * (width + 1) + _SPARE)
            found = _by_codes(codes, matrix, sample, width, n_candidates)
            recall = float((found.scores >= last_true - ROUNDING).mean())
            if recall >= _TARGET:
                top = _by_codes(codes, matrix, np.arange(n), width, n_candidates)
                return Neighbours(top.positions.astype(np.int32), top.scores, recall)
        _logger.warning("neighbour recall is only %.3f on %d facts: all pairs are compared instead", recall, n)
    top = without_self(exact_top_k(matrix, matrix, width + 1), np.arange(n), width)
    return Neighbours(top.positions.astype(np.int32), top.scores, 1.0)


def without_self(top: TopK, own: NDArray[np.int64], width: int) -> TopK:
    """Drop each row's own number, wherever it is; where it is not among the best, drop the worst instead.

    Args:
        top: At least ``width + 1`` hits a row.
        own: ``(n,)`` the number to drop from each row.
        width: Columns to keep.
    """
    order = np.argsort(top.positions == own[:, None], axis=1, kind="stable")[:, :width]
    return TopK(np.take_along_axis(top.positions, order, axis=1), np.take_along_axis(top.scores, order, axis=1))


def measured_recall(matrix: FloatMatrix, found: NDArray[Any], rows: NDArray[np.int64]) -> float:
    """Return the share of true neighbours among those found.

    A found one counts when it is as similar as the last true one, so that equal facts may stand for each other.

    Args:
        matrix: ``(n, dim)`` float32, rows of unit length.
        found: ``(len(rows), width)`` neighbours found for these rows, themselves left out.
        rows: Rows to measure.
    """
    scores = score_pairs(matrix, matrix[rows], found.astype(np.int64))
    return float((scores >= _last_true(matrix, rows, found.shape[1]) - ROUNDING).mean())


def _last_true(matrix: FloatMatrix, rows: NDArray[np.int64], width: int) -> FloatMatrix:
    """Return the similarity of the last of ``width`` true neighbours, ``(len(rows), 1)``; the first hit is the row."""
    scores, _ = faiss.knn(matrix[rows], matrix, width + 1, metric=faiss.METRIC_INNER_PRODUCT)
    last: FloatMatrix = scores[:, -1:]
    return last


class Codes:
    """Short codes of all rows.

    Args:
        matrix: ``(n, dim)`` float32.
    """

    def __init__(self, matrix: FloatMatrix) -> None:
        sample = matrix[:: max(1, len(matrix) // _TRAINING_ROWS)]
        share = 2 / 3 if len(matrix) <= _LONGER_CODES_LIMIT else 7 / 12
        n_codes = int(matrix.shape[1] * share) // _NUMBERS_PER_CODE
        kept = n_codes * _NUMBERS_PER_CODE
        _, directions = np.linalg.eigh(sample.astype(np.float64).T @ sample.astype(np.float64))
        turn, _ = np.linalg.qr(np.random.default_rng(_SEED).standard_normal((kept, kept)))
        self._projection: FloatMatrix = np.ascontiguousarray(directions[:, -kept:] @ turn, dtype=np.float32)
        self._index: Any = faiss.IndexPQFastScan(kept, n_codes, 4, faiss.METRIC_INNER_PRODUCT)
        clustering = self._index.pq.cp
        clustering.niter, clustering.max_points_per_centroid, clustering.min_points_per_centroid = 8, 128, 1
        self._index.train(sample @ self._projection)
        for start in range(0, len(matrix), _CHUNK):
            self._index.add(matrix[start : start + _CHUNK] @ self._projection)

    def nearest(self, queries: FloatMatrix, k: int) -> NDArray[np.int64]:
        """Return ``(len(queries), k)`` rows by the inner product of their codes, best first, -1 for none."""
        rows: NDArray[np.int64] = self._index.search(queries @ self._projection, k)[1]
        return rows


def _by_codes(codes: Codes, matrix: FloatMatrix, rows: NDArray[np.int64], width: int, n_candidates: int) -> TopK:
    positions = np.empty((len(rows), width), dtype=np.int64)
    scores = np.empty((len(rows), width), dtype=np.float32)
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        queries = matrix[rows[part]]
        candidates = codes.nearest(queries, n_candidates)
        candidates[candidates == rows[part, None]] = -1
        candidates = _likely(matrix, queries, candidates, width + _SPARE)
        candidates.sort(axis=1)
        exact = score_pairs(matrix, queries, candidates)
        order = np.argsort(-exact, axis=1, kind="stable")[:, :width]
        positions[part] = np.take_along_axis(candidates, order, axis=1)
        scores[part] = np.take_along_axis(exact, order, axis=1)
    return TopK(positions, scores)


def _likely(matrix: FloatMatrix, queries: FloatMatrix, candidates: NDArray[np.int64], m: int) -> NDArray[np.int64]:
    """Return the ``m`` best candidates of each query by a float32 product."""
    if candidates.shape[1] <= m:
        return candidates
    n_queries, n_candidates = candidates.shape
    scores = np.empty(candidates.shape, dtype=np.float32)
    room = np.empty((_AT_ONCE * n_candidates, matrix.shape[1]), dtype=np.float32)
    for start in range(0, n_queries, _AT_ONCE):
        part = candidates[start : start + _AT_ONCE]
        # One buffer, filled again and again, stays in the processor's cache.
        picked = matrix.take(part.ravel(), axis=0, out=room[: part.size], mode="clip")
        vectors = picked.reshape(len(part), n_candidates, -1)
        scores[start : start + _AT_ONCE] = np.matmul(vectors, queries[start : start + _AT_ONCE, :, None])[:, :, 0]
    scores[candidates < 0] = -np.inf
    best = np.argpartition(-scores, m - 1, axis=1)[:, :m]
    return np.take_along_axis(candidates, best, axis=1)
