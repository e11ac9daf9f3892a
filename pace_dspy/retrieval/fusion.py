"""Weighted reciprocal rank fusion of all views and both retrievers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pace_dspy.retrieval.ids import check_k
from pace_dspy.types import FusedHit, Retriever, View, ViewHits

RRF_K = 60


def weighted_rrf(
    rankings: Iterable[tuple[float, Sequence[str]]], k: int = RRF_K, top_k: int | None = None
) -> list[tuple[str, float]]:
    """Fuse rankings: a fact scores the sum of ``weight / (k + rank)`` over its ranks, which count from 1.

    Args:
        rankings: ``(weight, doc_ids best first)``, weights finite and >= 0; their order decides ties.
        k: Smoothing constant, >= 0. The paper's: 60.
        top_k: Length of the result, ``None`` for all.

    Returns:
        ``(doc_id, score)``, higher is better; equal scores in order of first appearance.

    Raises:
        ValueError: ``k`` or ``top_k`` is negative, or a weight is negative or not finite.

    Paper: hybrid retrieval, weighted RRF.
    """
    check_k(k)
    scores: dict[str, float] = {}
    for weight, doc_ids in rankings:
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"the weight of a ranking is {weight}; give a finite number >= 0, 0 to leave it out")
        for rank, doc_id in enumerate(doc_ids, start=1):
            scores[doc_id] = scores.get(doc_id, 0.0) + weight / (k + rank)
    fused = sorted(scores.items(), key=lambda item: -item[1])
    return fused if top_k is None else fused[: check_k(top_k, "top_k")]


def fuse_views(
    views: Sequence[View],
    hits: Sequence[ViewHits],
    *,
    weights: Mapping[str, float],
    k: int = RRF_K,
    top_k: int | None = None,
) -> list[FusedHit]:
    """Fuse the hits of all views and keep where each fact came from.

    Args:
        views: Views of the request, the original first.
        hits: Hits of each view, parallel to ``views``; fed view by view, dense before sparse.
        weights: Weight by view kind; a kind that is not listed weighs 1. The paper's: original 1.0, counter 1.2.
        k: Smoothing constant. The paper's: 60.
        top_k: Length of the result, ``None`` for all. The paper's: 20.

    Returns:
        Fused facts, best first, with the views (ascending) and retrievers (by first appearance) that found them.

    Raises:
        ValueError: Different lengths, a negative number, or a weight that is not finite.

    Paper: hybrid retrieval, weighted RRF; the provenance is ours.
    """
    if len(views) != len(hits):
        raise ValueError(f"{len(views)} views but {len(hits)} hit lists; give one for each view")
    rankings: list[tuple[float, list[str]]] = []
    found: dict[str, tuple[dict[int, None], dict[Retriever, None]]] = {}
    for number, (view, view_hits) in enumerate(zip(views, hits, strict=True)):
        sides: tuple[tuple[Retriever, Sequence[str]], ...] = (
            ("dense", [hit.doc_id for hit in view_hits.dense]),
            ("sparse", [hit.doc_id for hit in view_hits.sparse]),
        )
        for source, doc_ids in sides:
            rankings.append((weights.get(view.kind, 1.0), list(doc_ids)))
            for doc_id in doc_ids:
                in_views, in_sources = found.setdefault(doc_id, ({}, {}))
                in_views[number] = None
                in_sources[source] = None
    return [
        FusedHit(doc_id, score, tuple(found[doc_id][0]), tuple(found[doc_id][1]))
        for doc_id, score in weighted_rrf(rankings, k=k, top_k=top_k)
    ]
