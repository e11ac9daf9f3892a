"""Dense retrieval: exact inner product on FAISS ``IndexFlatIP``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import ArrayLike

from pace_dspy.retrieval.base import FloatMatrix
from pace_dspy.retrieval.exact import TopK, exact_top_k, flat_index, stored_vectors
from pace_dspy.retrieval.ids import DocIds, check_k, check_lengths
from pace_dspy.retrieval.vectors import as_matrix


class DenseIndex:
    """Exact nearest neighbours of one KB. Use `build`.

    Paper: hybrid retrieval, dense side. Scores are float32 inner products (cosine similarity in [-1, 1] for unit
    vectors, higher is closer); equal scores come in corpus order (ours: FAISS leaves it open).

    Args:
        doc_ids: Ids in corpus order.
        index: ``IndexFlatIP`` with one vector an id.
    """

    def __init__(self, doc_ids: DocIds, index: Any) -> None:
        if index.ntotal != len(doc_ids):
            raise ValueError(f"{len(doc_ids)} doc_ids but {index.ntotal} vectors; give one for each fact")
        self.doc_ids = doc_ids
        self.faiss_index = index

    @classmethod
    def build(cls, doc_ids: DocIds | Iterable[str], embeddings: ArrayLike) -> DenseIndex:
        """Index vectors.

        Args:
            doc_ids: n unique ids, in corpus order.
            embeddings: ``(n, dim)`` float32, rows of unit length; used as given.

        Raises:
            ValueError: Repeated ids, different lengths, or entries that are not finite.
        """
        ids = DocIds.of(doc_ids)
        matrix = as_matrix(embeddings, "embeddings")
        check_lengths(ids, matrix, "embeddings")
        return cls(ids, flat_index(matrix))

    def __len__(self) -> int:
        return len(self.doc_ids)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.faiss_index.d)

    @property
    def vectors(self) -> FloatMatrix:
        """The indexed vectors, read-only view ``(n, dim)`` float32 in corpus order."""
        return stored_vectors(self.faiss_index)

    def search(self, vectors: ArrayLike, k: int) -> list[list[tuple[str, float]]]:
        """Return the ``k`` nearest facts of every query vector, in one FAISS call.

        Args:
            vectors: ``(n_queries, dim)`` float32.
            k: Hits a query, capped at the number of facts.

        Returns:
            One list a query of ``(doc_id, inner product)``, best first.

        Raises:
            ValueError: Another dimension, entries that are not finite, or ``k`` < 0.
        """
        top = self.search_positions(vectors, k)
        return [
            [(self.doc_ids[p], s) for p, s in zip(positions, scores, strict=True) if p >= 0]
            for positions, scores in zip(top.positions.tolist(), top.scores.tolist(), strict=True)
        ]

    def search_positions(self, vectors: ArrayLike, k: int) -> TopK:
        """Like `search`, with positions and scores as arrays."""
        queries = as_matrix(vectors, "query vectors", dim=self.dim if len(self) else None)
        return exact_top_k(self.faiss_index, queries, check_k(k))
