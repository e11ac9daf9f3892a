"""Dense retrieval: exact inner product by FAISS over one matrix, which may be a mapped file."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pace_dspy.retrieval.base import FloatMatrix
from pace_dspy.retrieval.exact import TopK, exact_top_k
from pace_dspy.retrieval.ids import DocIds, check_k, check_lengths
from pace_dspy.retrieval.vectors import as_matrix


class DenseIndex:
    """Exact nearest neighbours of one KB. Use `build`.

    Paper: hybrid retrieval, dense side. Scores are float32 inner products (cosine similarity in [-1, 1] for unit
    vectors, higher is closer); equal scores come in corpus order (ours: FAISS leaves it open).

    Facts that come and go share one matrix: a new fact is a row at its end, a removed one a row that no longer counts.

    Args:
        doc_ids: n ids in corpus order.
        matrix: ``(n_rows, dim)`` float32, C-contiguous; never written to.
        rows: ``(n,)`` int64, ascending: the row of each fact; ``None`` when row i is fact i.
    """

    def __init__(self, doc_ids: DocIds, matrix: FloatMatrix, rows: NDArray[np.int64] | None = None) -> None:
        check_lengths(doc_ids, matrix if rows is None else rows, "vectors")
        self.doc_ids = doc_ids
        self.matrix = _frozen(matrix)
        self.rows = rows
        self._alive: NDArray[np.bool_] | None = None
        if rows is not None and len(rows) < len(matrix):
            self._alive = np.zeros(len(matrix), dtype=bool)
            self._alive[rows] = True

    @classmethod
    def build(cls, doc_ids: DocIds | Iterable[str], embeddings: ArrayLike) -> DenseIndex:
        """Index vectors.

        Args:
            doc_ids: n unique ids, in corpus order.
            embeddings: ``(n, dim)`` float32, rows of unit length; used as given.

        Raises:
            ValueError: Repeated ids, different lengths, or entries that are not real, finite and of ordinary size.
        """
        ids = DocIds.of(doc_ids)
        matrix = as_matrix(embeddings, "embeddings")
        check_lengths(ids, matrix, "embeddings")
        return cls(ids, matrix)

    def __len__(self) -> int:
        return len(self.doc_ids)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.matrix.shape[1])

    @cached_property
    def vectors(self) -> FloatMatrix:
        """The vectors in corpus order, read-only ``(n, dim)`` float32; a copy once facts were removed."""
        return self.matrix if self._alive is None else _frozen(self.matrix[self.rows])

    def vectors_at(self, positions: NDArray[np.int64]) -> FloatMatrix:
        """Return the vectors of facts, ``(len(positions), dim)`` float32."""
        picked: FloatMatrix = self.matrix[self.rows_at(positions)]
        return picked

    def rows_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of the matrix that hold facts."""
        return positions if self.rows is None else self.rows[positions]

    def search(self, vectors: ArrayLike, k: int) -> list[list[tuple[str, float]]]:
        """Return the ``k`` nearest facts of every query vector, in one FAISS call.

        Args:
            vectors: ``(n_queries, dim)`` float32.
            k: Hits a query, capped at the number of facts.

        Returns:
            One list a query of ``(doc_id, inner product)``, best first.

        Raises:
            ValueError: Another dimension, entries that are not real, finite and of ordinary size, or ``k`` < 0.
        """
        top = self.search_positions(vectors, k)
        return [
            list(zip(self.doc_ids.take(positions), scores, strict=True))
            for positions, scores in zip(top.positions.tolist(), top.scores.tolist(), strict=True)
        ]

    def search_positions(self, vectors: ArrayLike, k: int) -> TopK:
        """Like `search`, with positions and scores as arrays ``(n_queries, min(k, n))``."""
        queries = as_matrix(vectors, "query vectors", dim=self.dim if len(self) else None)
        top = exact_top_k(self.matrix, queries, check_k(k), self._alive)
        if self.rows is None or self._alive is None:
            return top
        return TopK(np.searchsorted(self.rows, top.positions), top.scores)


def _frozen(matrix: FloatMatrix) -> FloatMatrix:
    view = matrix.view()
    view.flags.writeable = False
    return view
