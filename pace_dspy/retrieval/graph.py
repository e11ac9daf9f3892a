"""The kNN graph over facts, stored as arrays, and the breadth-first walk on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pace_dspy.retrieval.base import Expansion, FloatMatrix, IntMatrix
from pace_dspy.retrieval.ids import DocIds, check_k, check_lengths
from pace_dspy.retrieval.neighbours import nearest_others
from pace_dspy.retrieval.vectors import as_matrix


class KnnGraph:
    """Directed graph from each fact to its nearest other facts. Use `build`.

    A fact is never its own neighbour: it is left out by position, not by rank, so duplicates are safe. Neighbours
    are sorted by similarity, descending, then corpus order. Paper: context graph, k = 10, cosine.

    Args:
        doc_ids: Ids in corpus order.
        neighbours: ``(n, width)`` int32 positions, best first, -1 where a fact has fewer; ``width <= k``.
        similarities: ``(n, width)`` float32, parallel; cosine similarity in [-1, 1], higher is closer.
        k: Neighbours asked for when the graph was built.
    """

    def __init__(self, doc_ids: DocIds, neighbours: IntMatrix, similarities: FloatMatrix, k: int) -> None:
        if neighbours.shape != similarities.shape or neighbours.shape[0] != len(doc_ids):
            raise ValueError(
                f"{len(doc_ids)} doc_ids, neighbours {neighbours.shape} and similarities {similarities.shape} "
                "do not fit; give one row for each fact"
            )
        self.doc_ids = doc_ids
        self.neighbours = neighbours
        self.similarities = similarities
        self.k = k
        self._followed: dict[int, NDArray[np.int64]] = {}

    @classmethod
    def build(cls, doc_ids: DocIds | Iterable[str], embeddings: ArrayLike, k: int) -> KnnGraph:
        """Find each fact's neighbours: exactly in KBs of ordinary size, see `pace_dspy.retrieval.neighbours`.

        Args:
            doc_ids: n unique ids, in corpus order.
            embeddings: ``(n, dim)`` float32, rows of unit length.
            k: Neighbours kept a fact, capped at n - 1.

        Raises:
            ValueError: Repeated ids, different lengths, ``k`` < 0, or entries that are not finite.
        """
        ids = DocIds.of(doc_ids)
        matrix = as_matrix(embeddings, "embeddings")
        check_lengths(ids, matrix, "embeddings")
        found = nearest_others(matrix, check_k(k))
        return cls(ids, found.positions, found.similarities, k)

    def __len__(self) -> int:
        return len(self.doc_ids)

    def neighbors(self, doc_id: str) -> list[tuple[str, float]]:
        """Return the neighbours of a fact, best first, with their cosine similarity.

        Raises:
            KeyError: Not a fact of this graph.
        """
        row = self.doc_ids.position(doc_id)
        pairs = zip(self.neighbours[row].tolist(), self.similarities[row].tolist(), strict=True)
        return [(self.doc_ids[position], similarity) for position, similarity in pairs if position >= 0]

    def expand(self, seeds: Sequence[str], max_hops: int, neighbors_per_hop: int) -> Expansion:
        """Walk breadth first from the seeds.

        Each hop takes the first neighbours of every collected fact, in collection order, and appends the unseen
        ones. (Facts of earlier hops have nothing unseen left, so only the last hop's facts are looked at.)
        The walk ends after ``max_hops`` or when a hop adds nothing.

        Args:
            seeds: Fact ids; of a repeat the first is kept.
            max_hops: Hops at most; 0 returns the seeds.
            neighbors_per_hop: Neighbours followed a fact; 0 means none, more than stored means all stored.

        Returns:
            Seeds (hop 0), then the reached facts with their hop.

        Raises:
            KeyError: A seed is not in this graph.
            ValueError: A negative number.

        Paper: traversal, 5 hops and 3 neighbours.
        """
        check_k(max_hops, "max_hops")
        width = check_k(neighbors_per_hop, "neighbors_per_hop")
        frontier = np.array([self.doc_ids.position(seed) for seed in dict.fromkeys(seeds)], dtype=np.int64)
        followed = self._first_neighbours(width)
        seen = np.zeros(len(self) + 1, dtype=bool)
        seen[frontier] = seen[-1] = True  # -1, no neighbour, reads the last place: never new
        place = np.empty(len(self), dtype=np.int64)
        waves = [frontier]
        for _ in range(max_hops):
            reached = followed.take(frontier, axis=0).ravel()
            frontier = _first_of_each(reached[~seen[reached]], place)
            if not len(frontier):
                break
            seen[frontier] = True
            waves.append(frontier)
        hops = np.repeat(np.arange(len(waves)), [len(wave) for wave in waves])
        return Expansion(self.doc_ids.take(np.concatenate(waves).tolist()), hops.tolist())

    def _first_neighbours(self, width: int) -> NDArray[np.int64]:
        """Return ``(n, width)`` int64 neighbours of each fact, kept for the next walk of the same width."""
        width = min(width, self.neighbours.shape[1])
        kept = self._followed.get(width)
        if kept is None:
            kept = self._followed[width] = np.ascontiguousarray(self.neighbours[:, :width], dtype=np.int64)
        return kept


def _first_of_each(positions: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop repeats, order kept; ``place`` is room for one number a fact, of any content."""
    order = np.arange(len(positions))
    place[positions[::-1]] = order[::-1]  # what is written last, the first occurrence, stays
    kept: NDArray[np.int64] = positions[place[positions] == order]
    return kept
