"""Nearest others of every row: exact below a size, through short codes above it, with the recall measured. Ours.

An exact search compares all pairs of vectors. Above `EXACT_LIMIT` rows every vector is also written as a short code
(FAISS product quantisation, 4 bits for 4 numbers), all pairs of codes are compared, which is some ten times cheaper,
and the best few candidates of each row are scored exactly. The recall is measured first, on rows drawn with a fixed
seed and against their true neighbours: where it would stay below `MIN_RECALL`, more candidates are taken, and in
the end the exact search. The same rows give the same result on each build.
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
_SAMPLE = 300
_CANDIDATES = (3, 4, 5, 6, 8, 16)
"""Candidates scored exactly for each neighbour kept: tried in this order."""
_NUMBERS_PER_CODE = 4
_TRAINING_ROWS = 2048
_CHUNK = 4096
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
    if n > exact_limit and matrix.shape[1] % _NUMBERS_PER_CODE == 0:
        codes = _codes(matrix)
        sample = np.sort(np.random.default_rng(_SEED).choice(n, min(n, _SAMPLE), replace=False))
        truth = _exact(matrix, sample, width)
        for factor in _CANDIDATES:
            n_candidates = min(n, factor * (width + 1) + _SPARE)
            recall = recall_of(_by_codes(codes, matrix, sample, width, n_candidates), truth)
            if recall >= _TARGET:
                top = _by_codes(codes, matrix, np.arange(n), width, n_candidates)
                return Neighbours(top.positions.astype(np.int32), top.scores, recall)
        _logger.warning("neighbour recall is only %.3f on %d facts: all pairs are compared instead", recall, n)
    top = _exact(matrix, np.arange(n), width)
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
    """Return the share of true neighbours among those found; see `recall_of`.

    Args:
        matrix: ``(n, dim)`` float32.
        found: ``(len(rows), width)`` neighbours found for these rows, themselves left out.
        rows: Rows to measure.
    """
    positions = found.astype(np.int64)
    scores = score_pairs(matrix, matrix[rows], positions)
    return recall_of(TopK(positions, scores), _exact(matrix, rows, found.shape[1]))


def recall_of(found: TopK, truth: TopK) -> float:
    """Return the share of those found that are as similar as the last true neighbour: equal facts stand for each other.

    Args:
        found: ``(n, width)`` neighbours found.
        truth: ``(n, width)`` true neighbours of the same rows, best first.
    """
    return float((found.scores >= truth.scores[:, -1:] - ROUNDING).mean())


def _exact(matrix: FloatMatrix, rows: NDArray[np.int64], width: int) -> TopK:
    return without_self(exact_top_k(matrix, matrix[rows], width + 1), rows, width)


def _codes(matrix: FloatMatrix) -> Any:
    dim = matrix.shape[1]
    index = faiss.IndexPQFastScan(dim, dim // _NUMBERS_PER_CODE, 4, faiss.METRIC_INNER_PRODUCT)
    index.pq.cp.niter, index.pq.cp.max_points_per_centroid, index.pq.cp.min_points_per_centroid = 8, 128, 1
    index.train(np.ascontiguousarray(matrix[:: max(1, len(matrix) // _TRAINING_ROWS)]))
    index.add(matrix)
    return index


def _by_codes(codes: Any, matrix: FloatMatrix, rows: NDArray[np.int64], width: int, n_candidates: int) -> TopK:
    positions = np.empty((len(rows), width), dtype=np.int64)
    scores = np.empty((len(rows), width), dtype=np.float32)
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        queries = matrix[rows[part]]
        _, candidates = codes.search(queries, n_candidates)
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
    scores = np.empty(candidates.shape, dtype=np.float32)
    step = 64
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        scores[part] = np.matmul(matrix[candidates[part]], queries[part, :, None])[:, :, 0]
    scores[candidates < 0] = -np.inf
    best = np.argpartition(-scores, m - 1, axis=1)[:, :m]
    return np.take_along_axis(candidates, best, axis=1)
