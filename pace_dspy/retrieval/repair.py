"""The neighbour graph after a change: only the rows that a change touches are searched again. Ours.

Touched are new facts, facts that lost a neighbour, and facts to which a new one is nearer than their last neighbour.
The result is what an exact build gives, similarities included, to the last bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pace_dspy.retrieval.base import FloatMatrix
from pace_dspy.retrieval.dense import DenseIndex
from pace_dspy.retrieval.exact import ROUNDING, score_pairs
from pace_dspy.retrieval.graph import KnnGraph
from pace_dspy.retrieval.neighbours import without_self

_REBUILD_SHARE = 4
_BLOCK = 64


def repaired(graph: KnnGraph, dense: DenseIndex, kept: NDArray[np.bool_]) -> KnnGraph:
    """Return the graph after facts were taken out and others put at the end.

    Args:
        graph: Graph before the change.
        dense: Dense index after the change.
        kept: ``(n before,)`` whether each fact stays.
    """
    n, n_kept, width = len(dense), int(np.count_nonzero(kept)), graph.neighbours.shape[1]
    n_changed = len(kept) - n_kept + n - n_kept
    if width < graph.k or n_kept <= graph.k + 1 or n_changed * _REBUILD_SHARE > n:
        return KnnGraph.build(dense.doc_ids, dense.vectors, graph.k)
    moved = np.append(np.cumsum(kept) - 1, -1)
    moved[:-1][~kept] = -1
    new_rows = (n - n_kept, width)
    neighbours = np.concatenate([moved[graph.neighbours[kept]], np.full(new_rows, -1, dtype=np.int64)])
    similarities = np.concatenate([graph.similarities[kept], np.zeros(new_rows, dtype=np.float32)])
    broken = np.flatnonzero((neighbours < 0).any(axis=1))
    if len(broken):
        top = dense.search_positions(dense.vectors_at(broken), width + 1)
        neighbours[broken], similarities[broken] = without_self(top, broken, width)
    whole = np.ones(n, dtype=bool)
    whole[broken] = False
    for start in range(n_kept, n, _BLOCK):
        _offer(np.arange(start, min(n, start + _BLOCK)), dense, whole, neighbours, similarities)
    return KnnGraph(dense.doc_ids, neighbours.astype(np.int32), similarities, graph.k)


def _offer(
    new: NDArray[np.int64],
    dense: DenseIndex,
    whole: NDArray[np.bool_],
    neighbours: NDArray[np.int64],
    similarities: FloatMatrix,
) -> None:
    """Put new facts, which have the highest positions, into the rows where they belong."""
    likely = dense.matrix @ dense.vectors_at(new).T
    likely = likely if dense.rows is None else likely[dense.rows]
    rows, columns = np.nonzero((likely >= similarities[:, -1:] - ROUNDING) & whole[:, None])
    if not len(rows):
        return
    pairs = dense.rows_at(new)[columns][:, None]
    exact = score_pairs(dense.matrix, dense.vectors_at(rows), pairs)[:, 0]
    touched, first, counts = np.unique(rows, return_index=True, return_counts=True)
    of_touched = np.repeat(np.arange(len(touched)), counts)
    place = np.arange(len(rows)) - np.repeat(first, counts)
    names = np.full((len(touched), counts.max()), -1, dtype=np.int64)
    offered = np.full(names.shape, -np.inf, dtype=np.float32)
    names[of_touched, place], offered[of_touched, place] = new[columns], exact
    # New facts come after all others, so a stable sort leaves them behind on equal similarity.
    both = np.concatenate([similarities[touched], offered], axis=1)
    order = np.argsort(-both, axis=1, kind="stable")[:, : neighbours.shape[1]]
    similarities[touched] = np.take_along_axis(both, order, axis=1)
    neighbours[touched] = np.take_along_axis(np.concatenate([neighbours[touched], names], axis=1), order, axis=1)
