"""Personalised PageRank over neighbours and term links: which facts lie near the seeds, and why (ours).

Takes the place of the paper's breadth-first walk: instead of all facts within five hops, the ``pool`` facts where a
random walker that keeps returning to the seeds is found most often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pace_dspy.entities.links import TermLinks
from pace_dspy.retrieval import KnnGraph

GraphKind = Literal["knn", "terms", "hybrid"]
LinkKind = Literal["seed", "knn", "term"]
Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reached:
    """A fact the walk reached.

    Attributes:
        position: The fact, by row.
        score: Share of the walker's time in [0, 1], higher is nearer to the seeds.
        restart: Part of the score that is only there because the walker restarts at the fact; what is left is how much
            the facts around speak for it. With one walk it is 0 for all but the seeds, and it is always 0 for a fact
            that shares no term with any other, because none can speak for it.
        kind: What gives most of the score: being a ``seed``, a ``knn`` neighbour or a ``term`` link.
        neighbour: The fact at the other end of the strongest link, ``None`` for a seed.
        term: The strongest shared term of a ``term`` link.
    """

    position: int
    score: float
    restart: float
    kind: LinkKind
    neighbour: int | None = None
    term: str | None = None


class FactGraph:
    """Neighbours and term links as one transition matrix. Use `build`.

    Args:
        knn: ``(n, n)`` CSR, column j holds the chances to step from j to its neighbours (columns sum to <= 1).
        terms: The same for term links.
        links: Names the terms behind a link; ``None`` in a graph of neighbours only.
    """

    def __init__(self, knn: sp.csr_matrix, terms: sp.csr_matrix, links: TermLinks | None) -> None:
        self.knn, self.terms, self.links = knn, terms, links
        self.transition = (knn + terms).tocsr()
        self.alone = np.diff(terms.indptr) == 0 if links is not None else np.zeros(terms.shape[0], dtype=np.bool_)

    @classmethod
    def build(
        cls, graph: GraphKind, knn: KnnGraph, links: TermLinks | None = None, *, knn_share: float = 0.2
    ) -> FactGraph:
        """Join the two graphs.

        The kNN graph is made undirected (an edge where either side names the other), weighted by cosine, negative
        ones dropped. A fact with links of one kind only uses that kind alone.

        Args:
            graph: ``knn``, ``terms`` or ``hybrid``.
            knn: Neighbours of every fact.
            links: Term links over the same facts; needed unless ``graph`` is ``knn``.
            knn_share: Chance of a step along a neighbour in ``hybrid`` (our choice).

        Raises:
            ValueError: Unknown ``graph``, ``links`` missing or of another size, or a share outside [0, 1].
        """
        shares = {"knn": 1.0, "terms": 0.0, "hybrid": knn_share}
        if graph not in shares or not 0.0 <= knn_share <= 1.0:
            raise ValueError(f"graph {graph!r}, knn_share {knn_share}: use one of {', '.join(shares)} and 0 to 1")
        if graph != "knn" and (links is None or len(links) != len(knn)):
            raise ValueError(
                f"graph {graph!r} needs term links over the same {len(knn)} facts, "
                f"received {'none' if links is None else len(links)}; build them with TermLinks.build"
            )
        size = (len(knn), len(knn))
        empty = sp.csr_matrix(size, dtype=np.float32)
        near = _by_column(_undirected(knn)) if graph != "terms" else empty
        term = _by_column(links.matrix) if links is not None and graph != "knn" else empty
        share = np.full(len(knn), shares[graph], dtype=np.float32)
        has_near, has_term = np.diff(near.tocsc().indptr) > 0, np.diff(term.tocsc().indptr) > 0
        if graph == "hybrid":
            share[has_near & ~has_term] = 1.0
            share[has_term & ~has_near] = 0.0
        return cls(
            (near @ sp.diags(share)).tocsr(), (term @ sp.diags(1 - share)).tocsr(), None if graph == "knn" else links
        )

    def __len__(self) -> int:
        return int(self.transition.shape[0])

    def pagerank(self, seeds: Mapping[int, float], *, damping: float = 0.5, iterations: int = 15) -> Scores:
        """Return where a walker that restarts at the seeds is found.

        Args:
            seeds: Weight > 0 by position; only their ratios matter.
            damping: Chance to go on instead of restarting, in [0, 1).
            iterations: Steps of the power iteration; the error shrinks by ``damping`` each.

        Returns:
            ``(n,)`` float32 summing to 1 (all 0 without seeds), higher is nearer.

        Raises:
            ValueError: A position or weight that is not allowed, or numbers out of range.
        """
        if not 0.0 <= damping < 1.0 or iterations < 0:
            raise ValueError(f"damping {damping} must be in [0, 1) and iterations {iterations} at least 0")
        restart = self.restart(seeds)
        score = restart.copy()
        for _ in range(iterations):
            step = self.transition @ score
            step += restart * (1 - step.sum(dtype=np.float32))  # what a fact without links would lose
            score = ((1 - damping) * restart + damping * step).astype(np.float32)
        return score

    def restart(self, seeds: Mapping[int, float]) -> Scores:
        """Return the seed weights as ``(n,)`` float32 that sum to 1, all 0 without seeds.

        Raises:
            ValueError: A position outside the graph or a weight that is not a positive number.
        """
        vector = np.zeros(len(self), dtype=np.float32)
        for position, weight in seeds.items():
            if not 0 <= position < len(self) or not 0.0 < weight < float("inf"):
                raise ValueError(
                    f"seed {position} with weight {weight}: use positions 0 to {len(self) - 1}, weights > 0"
                )
            vector[position] = weight
        total = vector.sum()
        return vector / total if total > 0 else vector

    def walk(
        self,
        seeds: Mapping[int, float],
        pool: int,
        *,
        prior: Scores | None = None,
        damping: float = 0.5,
        iterations: int = 15,
        second: float = 0.0,
    ) -> tuple[Reached, ...]:
        """Return the ``pool`` facts nearest to the seeds, best first (ties in corpus order), each with its reason.

        A second walk, when asked for, restarts from the ``pool`` facts that the first one found by their surroundings:
        weighted by ``(score - restart) * prior``. A chain of facts that speak for each other rises, a fact that only
        resembles the request does not.

        Args:
            seeds: Weight > 0 by position.
            pool: Facts wanted, >= 0; fewer come back when no more have a score.
            prior: ``(n,)`` factors > 0 that the ranking multiplies the scores by (see `constraints`); the scores of
                the result are without it. ``None``: all 1.
            damping: See `pagerank`.
            iterations: See `pagerank`.
            second: Share of the second walk in scores and restarts, in [0, 1); 0 is one walk.

        Raises:
            ValueError: See `pagerank`; or ``pool`` < 0, ``prior`` of another length, or ``second`` out of range.
        """
        if pool < 0 or (prior is not None and prior.shape != (len(self),)):
            raise ValueError(
                f"pool must be at least 0, received {pool}; prior needs shape ({len(self)},), "
                f"received {None if prior is None else prior.shape}"
            )
        if not 0.0 <= second < 1.0:
            raise ValueError(f"second must be in [0, 1), received {second}; 0 is one walk")
        score = self.pagerank(seeds, damping=damping, iterations=iterations)
        seeded = (1 - damping) * self.restart(seeds)
        restart = np.where(self.alone, 0, seeded)
        worth = np.maximum(score - restart, 0) * (1.0 if prior is None else prior)
        starts = {at: float(worth[at]) for at in np.argsort(-worth, kind="stable")[:pool].tolist() if worth[at] > 0}
        if second and starts:
            again = self.pagerank(starts, damping=damping, iterations=iterations)
            score = (1 - second) * score + second * again
            seeded = (1 - second) * seeded
            restart = np.where(self.alone, 0, seeded + second * (1 - damping) * self.restart(starts))
        best = np.argsort(-(score if prior is None else score * prior), kind="stable")[:pool]
        best = best[score[best] > 0]
        near, near_from = _strongest(self.knn[best], score)
        term, term_from = _strongest(self.terms[best], score)
        reached = []
        for rank, position in enumerate(best.tolist()):
            value, seed, own = float(score[position]), float(seeded[position]), float(restart[position])
            if seed > damping * max(near[rank], term[rank]) or max(near[rank], term[rank]) <= 0:
                reached.append(Reached(position, value, own, "seed"))
            elif term[rank] >= near[rank]:
                other = int(term_from[rank])
                shared = self.links.shared(position, other) if self.links is not None else ()
                reached.append(Reached(position, value, own, "term", other, shared[0].key if shared else None))
            else:
                reached.append(Reached(position, value, own, "knn", int(near_from[rank])))
        return tuple(reached)


def _undirected(knn: KnnGraph) -> sp.csr_matrix:
    n = len(knn)
    width = knn.neighbours.shape[1]
    rows = np.repeat(np.arange(n), width)
    columns, cosines = knn.neighbours.ravel(), knn.similarities.ravel()
    kept = (columns >= 0) & (cosines > 0)
    directed = sp.csr_matrix((cosines[kept].astype(np.float32), (rows[kept], columns[kept])), shape=(n, n))
    return directed.maximum(directed.T).tocsr()


def _by_column(matrix: sp.csr_matrix) -> sp.csr_matrix:
    totals = np.asarray(matrix.sum(axis=0), dtype=np.float32).ravel()
    inverse = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    return (matrix @ sp.diags(inverse)).tocsr().astype(np.float32)


def _strongest(rows: sp.csr_matrix, score: Scores) -> tuple[Scores, NDArray[np.int64]]:
    """Return each row's largest ``entry * score[column]`` and its column; 0 and -1 for an empty row."""
    values = rows.data * score[rows.indices]
    best, column = np.zeros(rows.shape[0], dtype=np.float32), np.full(rows.shape[0], -1, dtype=np.int64)
    for row in np.flatnonzero(np.diff(rows.indptr)).tolist():
        start, end = rows.indptr[row], rows.indptr[row + 1]
        at = start + int(np.argmax(values[start:end]))
        best[row], column[row] = values[at], rows.indices[at]
    return best, column
