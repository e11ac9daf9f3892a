"""From seeds to the pool: breadth first (paper) or personalised PageRank over neighbours and shared terms (ours)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pace_dspy.config import RetrievalConfig
from pace_dspy.entities import Reached
from pace_dspy.kb_context import context_of
from pace_dspy.retrieval import KbIndex
from pace_dspy.types import PoolFact, Task, Trace


def walk(
    task: Task,
    kb: KbIndex,
    found: Trace,
    seeds: Sequence[str],
    settings: RetrievalConfig,
    *,
    favoured: Sequence[str] = (),
) -> Trace:
    """Walk from the seeds.

    Args:
        task: The request.
        kb: The knowledge base.
        found: Trace with the fused list, whose scores weigh the seeds of a PageRank walk.
        seeds: Where the walk starts, best first.
        settings: Kind and limits of the walk.
        favoured: Seeds that an agent chose; in a PageRank walk they weigh as much as the best fused fact.

    Returns:
        ``found`` with seeds and pool (breadth first: seeds, then facts in the order they were reached; PageRank: best
        first).
    """
    started = time.perf_counter()
    if settings.walk == "bfs":
        reached = kb.graph.expand(list(seeds), settings.max_hops, settings.neighbors_per_hop)
        pool = tuple(PoolFact(doc_id, hop) for doc_id, hop in zip(reached.doc_ids, reached.hops, strict=True))
    else:
        pool = pagerank_pool(task, kb, {hit.doc_id: hit.score for hit in found.fused}, seeds, settings, favoured)
    spent_ms = found.retrieval_ms + (time.perf_counter() - started) * 1000
    return replace(found, seeds=tuple(seeds), pool=pool, retrieval_ms=spent_ms)


def pagerank_pool(
    task: Task,
    kb: KbIndex,
    scores: Mapping[str, float],
    seeds: Sequence[str],
    settings: RetrievalConfig,
    favoured: Sequence[str] = (),
) -> tuple[PoolFact, ...]:
    """Return the ``pool`` facts nearest to the seeds, best first, each with its strongest link."""
    context = context_of(kb, task.reference_date, task.persona)
    best = max((scores.get(doc_id, 0.0) for doc_id in seeds), default=0.0) or 1.0
    weights = {doc_id: best if doc_id in favoured else scores.get(doc_id, 0.0) or best for doc_id in seeds}
    rows = {kb.doc_ids.position(doc_id): weight for doc_id, weight in weights.items()}
    lifted = {row: weight * float(np.exp(settings.seed_prior * context.strengths[row])) for row, weight in rows.items()}
    graph = context.graph(settings.graph, kb, settings.knn_share)
    prior = np.exp(settings.pool_prior * context.strengths).astype(np.float32) if settings.pool_prior else None
    reached = graph.walk(lifted, settings.pool, prior=prior, damping=settings.damping, second=settings.second_walk)
    return tuple(_pool_fact(kb, fact, int(fact.position not in rows)) for fact in reached)


def _pool_fact(kb: KbIndex, fact: Reached, hop: int) -> PoolFact:
    other = None if fact.neighbour is None else kb.doc_ids[fact.neighbour]
    via = {"seed": "seed", "knn": f"neighbour of {other}", "term": f"shares {fact.term!r} with {other}"}[fact.kind]
    return PoolFact(kb.doc_ids[fact.position], hop, fact.score, fact.restart, via)
