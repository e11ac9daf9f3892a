"""Rounds of the second look (ours): search the follow-ups, fuse with all earlier views, walk again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pace_dspy.config import PaceMakerConfig
from pace_dspy.modules.second_look import Looked, SecondLook
from pace_dspy.retrieval import KbIndex
from pace_dspy.steps.search import search
from pace_dspy.steps.walk import walk
from pace_dspy.types import Candidate, FusedHit, Look, Task, Trace, View

Show = Callable[[Trace], Sequence[Candidate]]
"""Gives the candidates of a trace's final pool."""

LookFor = Callable[[Task, Sequence[Candidate], Sequence[str]], Looked]
"""`SecondLook`, or anything with its interface."""


def look_again(
    task: Task, kb: KbIndex, reached: Trace, agent: SecondLook | LookFor, config: PaceMakerConfig, show: Show
) -> Trace:
    """Run up to ``config.agents.rounds`` rounds; stop early when nothing new is missing.

    Follow-ups are searched and fused like counter views; the walk starts again from what they found, from the facts
    that the agent selected, and from the seeds of before.

    Args:
        task: The request.
        kb: The knowledge base.
        reached: Trace of the first walk; its stages stay as they are.
        agent: The second look.
        config: Rounds, seeds and walk.
        show: Gives the candidates that the agent reads.

    Returns:
        ``reached`` with one `Look` a round.
    """
    asked = [view.text for view in reached.views]
    known = list(reached.fused)
    for _ in range(config.agents.rounds):
        looked = agent(task, show(reached), asked)
        if not looked.follow_ups:
            return replace(reached, looks=(*reached.looks, Look(looked.selected)))
        asked += looked.follow_ups
        views = [View("counter", query) for query in looked.follow_ups]
        found = search(task, kb, views, config.retrieval.without_channels())
        starts = [hit.doc_id for hit in found.fused[: config.agents.seeds]]
        seeds = tuple(dict.fromkeys([*looked.selected, *starts, *reached.seeds]))
        known = best_of(known, found.fused)
        again = walk(task, kb, replace(found, fused=tuple(known)), seeds, config.retrieval, favoured=looked.selected)
        look = Look(looked.selected, looked.follow_ups, found.hits, again.pool)
        reached = replace(reached, looks=(*reached.looks, look), retrieval_ms=reached.retrieval_ms + again.retrieval_ms)
    return reached


def best_of(first: Sequence[FusedHit], second: Sequence[FusedHit]) -> list[FusedHit]:
    """Return the facts of both lists, each with its higher score, best first.

    The second list is scaled so that its best fact weighs as much as the best of the first: what is missing was found
    by follow-ups alone, and the number of views before must not drown it.
    """
    top, other = (max((hit.score for hit in hits), default=0.0) for hits in (first, second))
    scale = top / other if top and other else 1.0
    best: dict[str, FusedHit] = {hit.doc_id: hit for hit in first}
    for hit in second:
        scaled = replace(hit, score=hit.score * scale)
        if hit.doc_id not in best or scaled.score > best[hit.doc_id].score:
            best[hit.doc_id] = scaled
    return sorted(best.values(), key=lambda hit: -hit.score)
