"""The straightforward way, for comparison: as one writes it first, and as the reference is built. Ours.

Every view is embedded by itself, BM25 comes from rank_bm25, FAISS is asked view by view, fusion and walk go through
dictionaries, the graph is a dictionary of lists, and every change builds everything again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss
from rank_bm25 import BM25Okapi

from pace_dspy.retrieval import tokenize
from pace_dspy.types import Fact, View

Ranking = list[tuple[str, float]]
Graph = dict[str, Ranking]


class PlainKb:
    """Indexes of one KB, rebuilt from nothing each time.

    Args:
        facts: The facts.
        vectors: ``(n, dim)`` float32, their vectors.
        graph_k: Neighbours a fact; ``None`` builds no graph.
    """

    def __init__(self, facts: Sequence[Fact], vectors: Any, graph_k: int | None = 10) -> None:
        self.doc_ids, self.texts = [fact.doc_id for fact in facts], [fact.text for fact in facts]
        self.bm25 = BM25Okapi([tokenize(fact.text) for fact in facts])
        self.index = faiss.IndexFlatIP(vectors.shape[1])
        self.index.add(vectors)
        self.graph = build_graph(self.doc_ids, vectors, graph_k) if graph_k is not None else {}

    def sparse(self, view: View, k: int = 10) -> Ranking:
        """Return the best facts of one view by BM25, equal scores in corpus order."""
        scores = self.bm25.get_scores(tokenize(view.text))
        order = sorted(range(len(scores)), key=lambda row: scores[row], reverse=True)
        return [(self.doc_ids[row], float(scores[row])) for row in order[:k] if scores[row] > 0]

    def dense(self, vector: Any, k: int = 10) -> Ranking:
        """Return the nearest facts of one view."""
        scores, rows = self.index.search(vector.reshape(1, -1), k)
        return [(self.doc_ids[row], float(score)) for score, row in zip(scores[0], rows[0], strict=True)]

    def fused(self, views: Sequence[View], vectors: Sequence[Any]) -> list[dict[str, Any]]:
        """Search every view with both retrievers, fuse the ranks and say where each fact came from."""
        by_id = dict(zip(self.doc_ids, self.texts, strict=True))
        totals: dict[str, dict[str, Any]] = {}
        for number, (view, vector) in enumerate(zip(views, vectors, strict=True)):
            weight = 1.0 if view.kind == "original" else 1.2
            for source, ranking in (("dense", self.dense(vector)), ("sparse", self.sparse(view))):
                for rank, (doc_id, _) in enumerate(ranking, start=1):
                    if doc_id not in totals:
                        origin = {"views": set(), "sources": set()}
                        totals[doc_id] = {"doc_id": doc_id, "text": by_id[doc_id], "score": 0.0, **origin}
                    totals[doc_id]["score"] += weight / (60 + rank)
                    totals[doc_id]["views"].add(number)
                    totals[doc_id]["sources"].add(source)
        return sorted(totals.values(), key=lambda found: -found["score"])[:20]

    def walk(self, seeds: Sequence[str], hops: int = 5, width: int = 3) -> list[tuple[str, int]]:
        """Walk breadth first, going through the whole collection in every hop; returns ids and hops."""
        collected = [(doc_id, 0) for doc_id in seeds]
        seen = set(seeds)
        for hop in range(1, hops + 1):
            new = []
            for doc_id, _ in collected:
                for neighbour, _ in self.graph[doc_id][:width]:
                    if neighbour not in seen:
                        seen.add(neighbour)
                        new.append((neighbour, hop))
            if not new:
                break
            collected += new
        return collected


def build_graph(doc_ids: Sequence[str], vectors: Any, k: int = 10) -> Graph:
    """Compare all pairs and return a dictionary of lists."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    scores, rows = index.search(vectors, k + 1)
    graph: Graph = {}
    for row, doc_id in enumerate(doc_ids):
        pairs = zip(rows[row], scores[row], strict=True)
        graph[doc_id] = [(doc_ids[other], float(score)) for other, score in pairs if other != row][:k]
    return graph
