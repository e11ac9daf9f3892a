"""The measured parts of `bench`: ours and the straightforward way, in turns."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from bench_facts import make_facts, make_views
from bench_plain import PlainKb, build_graph

from pace_dspy.backends import weights
from pace_dspy.retrieval import (
    CachedEmbedder,
    KbIndex,
    KnnGraph,
    LiveKb,
    MiniLMEmbedder,
    SparseIndex,
    fuse_views,
    save_index,
    tokenize,
)
from pace_dspy.retrieval.embedding_cache import CACHE_FOLDER
from pace_dspy.retrieval.neighbours import measured_recall
from pace_dspy.types import Fact, View

WEIGHTS = {"original": 1.0, "counter": 1.2}
EMBEDDED = 2000
"""Facts that are really embedded to measure embedding; more is scaled from them."""
REQUESTS, AT_A_TURN = 60, 5
_MAX_S = 8.0
Pair = tuple[Callable[[], Any], Callable[[], Any]]


class Side:
    """One size: facts, vectors, both KBs and fresh requests."""

    def __init__(self, size: int, threads: int, cache: Path) -> None:
        paths = weights.resolve("embedder_onnx"), weights.resolve("embedder_tokenizer")
        self.size = size
        self.embedder = MiniLMEmbedder(*paths, threads=threads)
        self.cached = CachedEmbedder(self.embedder, cache / CACHE_FOLDER)
        self.facts = make_facts(size)
        self.ours = KbIndex.build("bench", self.facts, self.cached)
        self.requests = make_views(REQUESTS)
        texts = [view.text for views in self.requests for view in views]
        self.all_vectors = self.embedder.embed_queries(texts).reshape(REQUESTS, -1, self.embedder.dim)
        self.take(0)

    def take(self, number: int) -> None:
        """Make one request the current one."""
        self.turn, self.vectors = self.requests[number % REQUESTS], self.all_vectors[number % REQUESTS]

    @cached_property
    def plain(self) -> PlainKb:
        """The straightforward KB; its graph is that of `ours`, so that walks compare."""
        built = PlainKb(self.facts, self.ours.dense.vectors, graph_k=None)
        built.graph = {doc_id: self.ours.graph.neighbors(doc_id) for doc_id in built.doc_ids}
        return built

    @cached_property
    def embed_ms(self) -> float:
        """Time to embed all facts, without any cache."""
        texts = [fact.text for fact in self.facts[:EMBEDDED]]
        started = time.perf_counter()
        self.embedder.embed_documents(texts)
        return (time.perf_counter() - started) * 1000 * self.size / len(texts)

    def embed_ours(self) -> Any:
        """Embed all views in one batch."""
        return self.ours.embed(self.turn)

    def embed_plain(self) -> list[Any]:
        """Embed view by view."""
        return [self.embedder.embed_queries([view.text])[0] for view in self.turn]

    def query_ours(self, vectors: Any) -> list[str]:
        """Search, fuse and walk our way."""
        hits = self.ours.search_embedded(self.turn, vectors, 10)
        fused = fuse_views(self.turn, hits, weights=WEIGHTS, k=60, top_k=20)
        return self.ours.graph.expand([hit.doc_id for hit in fused[:10]], 5, 3).doc_ids

    def query_plain(self, vectors: Sequence[Any]) -> list[str]:
        """Search, fuse and walk the straightforward way."""
        fused = self.plain.fused(self.turn, vectors)
        return [doc_id for doc_id, _ in self.plain.walk([found["doc_id"] for found in fused[:10]])]


def measure(sizes: Sequence[int], parts: Sequence[str], threads: int, cache: Path) -> Iterator[dict[str, Any]]:
    """Yield one row a size and part, as it is measured."""
    for size in sizes:
        side = Side(size, threads, cache)
        check_equal(side)
        for part in parts:
            row = PARTS[part](side)
            ratio = row["plain_ms"] / row["ours_ms"]
            yield {"size": size, "part": part, **row, "ratio": round(ratio, 2), "threads": threads}


def check_equal(side: Side) -> None:
    """Stop when the two sides find other scores: a fast wrong answer is worth nothing (ties may differ in order)."""
    for number in range(5):
        side.take(number)
        sparse = side.ours.sparse.search_many([view.text for view in side.turn], 10)
        dense = side.ours.dense.search(side.vectors, 10)
        for view, vector, found_sparse, found_dense in zip(side.turn, side.vectors, sparse, dense, strict=True):
            for found, expected in ((found_sparse, side.plain.sparse(view)), (found_dense, side.plain.dense(vector))):
                np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], atol=1e-5)


def in_turns(side: Side, pair: Pair) -> dict[str, float]:
    """Time both ways in turns, a few requests each, on the same requests; return the medians."""
    times: tuple[list[float], list[float]] = ([], [])
    started = time.perf_counter()
    for first in range(0, REQUESTS, AT_A_TURN):
        for act, spent in zip(pair, times, strict=True):
            side.take(first - 1)
            act()  # the other side has emptied the processor's caches
            for number in range(first, first + AT_A_TURN):
                side.take(number)
                spent.append(timed(act)[0])
        if time.perf_counter() - started > _MAX_S:
            break
    return {"ours_ms": round(statistics.median(times[0]), 4), "plain_ms": round(statistics.median(times[1]), 4)}


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    """Return milliseconds and result of one run."""
    before = time.perf_counter()
    result = act()
    return (time.perf_counter() - before) * 1000, result


def query_total(side: Side) -> dict[str, float]:
    """One request, its embedding included."""
    pair = (lambda: side.query_ours(side.embed_ours())), (lambda: side.query_plain(side.embed_plain()))
    return in_turns(side, pair)


def query_without_embedding(side: Side) -> dict[str, float]:
    """One request, its vectors given."""
    return in_turns(side, ((lambda: side.query_ours(side.vectors)), (lambda: side.query_plain(side.vectors))))


def embed_4_views(side: Side) -> dict[str, float]:
    """Embedding of the views."""
    return in_turns(side, (side.embed_ours, side.embed_plain))


def dense_4_views(side: Side) -> dict[str, float]:
    """FAISS, once for all views or view by view."""
    ours = lambda: side.ours.dense.search(side.vectors, 10)  # noqa: E731
    return in_turns(side, (ours, lambda: [side.plain.dense(vector) for vector in side.vectors]))


def sparse_4_views(side: Side) -> dict[str, float]:
    """BM25 of the views."""
    ours = lambda: side.ours.sparse.search_many([view.text for view in side.turn], 10)  # noqa: E731
    return in_turns(side, (ours, lambda: [side.plain.sparse(view) for view in side.turn]))


def walk(side: Side) -> dict[str, float]:
    """The walk from ten facts."""
    seeds = [found["doc_id"] for found in side.plain.fused(side.turn, side.vectors)[:10]]
    return in_turns(side, ((lambda: side.ours.graph.expand(seeds, 5, 3)), (lambda: side.plain.walk(seeds))))


def sparse_build(side: Side) -> dict[str, float]:
    """Building BM25."""
    from rank_bm25 import BM25Okapi

    texts = [fact.text for fact in side.facts]
    ours, plain = [], []
    for _ in range(3):
        ours.append(timed(lambda: SparseIndex.build(side.ours.doc_ids, texts))[0])
        plain.append(timed(lambda: BM25Okapi([tokenize(text) for text in texts]))[0])
    return {"ours_ms": round(statistics.median(ours), 3), "plain_ms": round(statistics.median(plain), 3)}


def graph_build(side: Side) -> dict[str, float]:
    """Building the neighbour graph; the recall is over all rows, against the straightforward graph."""
    vectors, doc_ids = side.ours.dense.vectors, list(side.ours.doc_ids)
    runs = 5 if side.size <= 5000 else 3 if side.size <= 50_000 else 1
    ours, plain, graph = [], [], None
    for _ in range(runs):
        spent, graph = timed(lambda: KnnGraph.build(side.ours.doc_ids, vectors, 10))
        ours.append(spent)
        plain.append(timed(lambda: build_graph(doc_ids, vectors, 10))[0])
    assert graph is not None
    rows = np.random.default_rng(0).choice(side.size, min(side.size, 2000), replace=False)
    recall = measured_recall(vectors, graph.neighbours[rows], rows)
    medians = {"ours_ms": statistics.median(ours), "plain_ms": statistics.median(plain)}
    return {**{name: round(value, 2) for name, value in medians.items()}, "recall": round(recall, 5)}


def add_one_fact(side: Side) -> dict[str, float]:
    """Put one fact in and search it, stored on disk; or build everything again and search."""
    times = []
    with tempfile.TemporaryDirectory() as root:
        save_index(side.ours, root)
        live = LiveKb(root, "bench", side.embedder)
        for number, fact in enumerate(make_facts(15, seed=99)):
            new = Fact(f"new-{number}", f"{fact.text} ({number})")

            def put_and_search(new: Fact = new) -> str:
                live.add([new])
                return live.snapshot.search([View("original", new.text)], 1)[0].dense[0].doc_id

            spent, found = timed(put_and_search)
            assert found == new.doc_id
            times.append(spent)
    spent, _ = timed(lambda: PlainKb(side.facts, np.array(side.ours.dense.vectors)).dense(side.vectors[0]))
    return {"ours_ms": round(statistics.median(times), 3), "plain_ms": round(side.embed_ms + spent, 1)}


def rebuild_unchanged(side: Side) -> dict[str, float]:
    """Build and store again with all vectors known; or the same with all facts to embed."""
    times = []
    with tempfile.TemporaryDirectory() as root:
        for _ in range(3):
            act = lambda: save_index(KbIndex.build("bench", side.facts, side.cached), root)  # noqa: E731
            times.append(timed(act)[0])
    again = statistics.median(times)
    return {"ours_ms": round(again, 1), "plain_ms": round(side.embed_ms + again, 1)}


PARTS: dict[str, Callable[[Side], dict[str, float]]] = {
    act.__name__: act
    for act in (
        query_total, query_without_embedding, embed_4_views, dense_4_views, sparse_4_views, walk,
        sparse_build, graph_build, add_one_fact, rebuild_unchanged,
    )
}  # fmt: skip
