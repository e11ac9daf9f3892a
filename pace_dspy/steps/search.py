"""Hybrid search of every view, extra channels, weighted fusion. Paper: hybrid retrieval; the channels are ours."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pace_dspy.config import RetrievalConfig
from pace_dspy.entities import people_channel
from pace_dspy.kb_context import context_of
from pace_dspy.retrieval import KbIndex, fuse_views, weighted_rrf
from pace_dspy.temporal import request_intervals
from pace_dspy.types import ChannelHits, FusedHit, Task, Trace, View, ViewHits

CHANNEL_TOP = 10


def search(task: Task, kb: KbIndex, views: Sequence[View], settings: RetrievalConfig) -> Trace:
    """Search every view with every retriever, add the channels that are switched on, and fuse.

    Args:
        task: The request; its date and persona matter to the channels only.
        kb: The knowledge base.
        views: The original view first.
        settings: Depths, weights and channels.

    Returns:
        A trace with views, hits, channels and the fused list.
    """
    started = time.perf_counter()
    vectors = kb.embed(views)
    hits = tuple(kb.search_embedded(views, vectors, settings.top_k_per_view))
    weights = {"original": settings.weight_original, "counter": settings.weight_counter}
    channels = find_channels(task, kb, vectors[0], settings) if settings.time_channel or settings.people_channel else ()
    top = None if channels else settings.fused_top_k
    fused = tuple(fuse_views(views, hits, weights=weights, k=settings.rrf_k, top_k=top))
    if channels:
        fused = add_channels(fused, views, hits, channels, settings)
    return Trace(
        kb_id=kb.kb_id,
        reference_date=task.reference_date,
        views=tuple(views),
        hits=hits,
        fused=fused,
        channels=channels,
        retrieval_ms=(time.perf_counter() - started) * 1000,
    )


def find_channels(
    task: Task, kb: KbIndex, vector: NDArray[np.float32], settings: RetrievalConfig
) -> tuple[ChannelHits, ...]:
    """Return facts whose time touches the request's, and facts about people the request only describes.

    Args:
        task: The request.
        kb: The knowledge base.
        vector: ``(dim,)`` float32, the request's own vector; nearer facts come first in a channel.
        settings: Which channels are on.
    """
    if not len(kb):
        return ()
    context = context_of(kb, task.reference_date, task.persona)
    similarity = np.asarray(kb.dense.vectors) @ vector
    found: list[ChannelHits] = []
    if settings.time_channel:
        intervals = request_intervals(task.request, task.reference_date)
        rows = context.times.channel(intervals, similarity, CHANNEL_TOP) if intervals else []
        found.append(ChannelHits("time", tuple(kb.doc_ids[row] for row in rows)))
    if settings.people_channel:
        rows = people_channel(context.people, task.request, similarity, CHANNEL_TOP)
        found.append(ChannelHits("people", tuple(kb.doc_ids[row] for row in rows)))
    return tuple(found)


def add_channels(
    fused: Sequence[FusedHit],
    views: Sequence[View],
    hits: Sequence[ViewHits],
    channels: Sequence[ChannelHits],
    settings: RetrievalConfig,
) -> tuple[FusedHit, ...]:
    """Fuse the rankings of views and channels anew; every hit keeps where it came from."""
    kinds = {"original": settings.weight_original, "counter": settings.weight_counter}
    of_channel = {"time": settings.time_channel, "people": settings.people_channel}
    rankings = [
        (kinds[view.kind], [hit.doc_id for hit in side])
        for view, found in zip(views, hits, strict=True)
        for side in (found.dense, found.sparse)
    ]
    rankings += [(of_channel[channel.channel], list(channel.doc_ids)) for channel in channels]
    known = {hit.doc_id: hit for hit in fused}
    merged = weighted_rrf(rankings, settings.rrf_k, settings.fused_top_k)
    return tuple(
        FusedHit(
            doc_id,
            score,
            known[doc_id].views if doc_id in known else (),
            (
                *(known[doc_id].sources if doc_id in known else ()),
                *(channel.channel for channel in channels if doc_id in channel.doc_ids),
            ),
        )
        for doc_id, score in merged
    )
