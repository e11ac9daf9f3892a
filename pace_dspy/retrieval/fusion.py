"""Weighted reciprocal rank fusion of all views and both retrievers."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence

from pace_dspy.retrieval.ids import check_k
from pace_dspy.types import FusedHit, Hit, Retriever, View, ViewHits

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
        _checked(weight)
        for rank, doc_id in enumerate(doc_ids, start=1):
            scores[doc_id] = scores.get(doc_id, 0.0) + weight / (k + rank)
    return _best_first(scores, top_k)


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
    check_k(k)
    found: dict[str, tuple[list[int], list[Retriever]]] = {}
    scores: dict[str, float] = {}
    for number, (view, view_hits) in enumerate(zip(views, hits, strict=True)):
        weight = _checked(weights.get(view.kind, 1.0))
        sides: tuple[tuple[Retriever, tuple[Hit, ...]], ...] = (
            ("dense", view_hits.dense),
            ("sparse", view_hits.sparse),
        )
        for source, side in sides:
            for rank, hit in enumerate(side, start=1):
                doc_id = hit.doc_id
                if doc_id not in scores:
                    scores[doc_id], found[doc_id] = 0.0, ([number], [source])
                scores[doc_id] += weight / (k + rank)
                in_views, sources = found[doc_id]
                if in_views[-1] != number:
                    in_views.append(number)
                if source not in sources:
                    sources.append(source)
    return [
        FusedHit(doc_id, score, tuple(found[doc_id][0]), tuple(found[doc_id][1]))
        for doc_id, score in _best_first(scores, top_k)
    ]


def _best_first(scores: Mapping[str, float], top_k: int | None) -> list[tuple[str, float]]:
    fused = sorted(scores.items(), key=operator.itemgetter(1), reverse=True)  # stable: ties keep their order
    return fused if top_k is None else fused[: check_k(top_k, "top_k")]


def _checked(weight: float) -> float:
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight of a ranking is {weight}; give a finite number >= 0, 0 to leave it out")
    return weight
