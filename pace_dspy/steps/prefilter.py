"""The prefilter (ours): a cut of the pool by rank, so that the post-hop filter reads fewer facts. Off in `paper`."""

from __future__ import annotations

from dataclasses import replace

from pace_dspy.types import Trace


def prefilter(reached: Trace, keep: int) -> Trace:
    """Keep the best facts of the last pool, in the pool's order.

    A PageRank pool is ranked already. A breadth-first pool is ranked by hop and fused score: the seeds, then facts of
    the fused list by their score, then the others by hop. Ranking by similarity to the nearest view instead keeps no
    more gold facts on PACE-mini, so there is no such choice.

    Args:
        reached: Trace with the pool.
        keep: Most facts kept; 0 switches the prefilter off.

    Returns:
        ``reached``, with the ids kept as ``prefiltered`` unless it is off.
    """
    if not keep:
        return reached
    pool, scores = reached.final_pool, {hit.doc_id: hit.score for hit in reached.fused}
    ranked = any(fact.score for fact in pool)
    best = pool if ranked else sorted(pool, key=lambda fact: (fact.hop > 0, -scores.get(fact.doc_id, 0.0), fact.hop))
    kept = frozenset(fact.doc_id for fact in best[:keep])
    return replace(reached, prefiltered=tuple(fact.doc_id for fact in pool if fact.doc_id in kept))
