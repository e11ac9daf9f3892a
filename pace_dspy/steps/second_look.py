"""Rounds of the second look (ours): search the follow-ups, fuse with all earlier views, walk again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pace_dspy.config import PaceMakerConfig
from pace_dspy.modules.second_look import Looked, SecondLook
from pace_dspy.retrieval import KbIndex
from pace_dspy.steps.search import search
from pace_dspy.steps.walk import walk
from pace_dspy.types import Candidate, Look, Task, Trace, View

Show = Callable[[Trace], Sequence[Candidate]]
"""Gives the candidates of a trace's final pool."""

LookFor = Callable[[Task, Sequence[Candidate], Sequence[str]], Looked]
"""`SecondLook`, or anything with its interface."""


def look_again(
    task: Task, kb: KbIndex, reached: Trace, agent: SecondLook | LookFor, config: PaceMakerConfig, show: Show
) -> Trace:
    """Run up to ``config.agents.rounds`` rounds; stop early when nothing new is missing.

    Follow-ups are searched like counter views and fused with all views before; the walk starts again from the new
    fused list and from the selected facts.

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
    views = list(reached.views)
    for _ in range(config.agents.rounds):
        looked = agent(task, show(reached), [view.text for view in views])
        if not looked.follow_ups:
            return replace(reached, looks=(*reached.looks, Look(looked.selected)))
        views += [View("counter", query) for query in looked.follow_ups]
        found = search(task, kb, views, config.retrieval)
        seeds = dict.fromkeys([*looked.selected, *(hit.doc_id for hit in found.fused[: config.agents.seeds])])
        again = walk(task, kb, found, tuple(seeds), config.retrieval, favoured=looked.selected)
        look = Look(looked.selected, looked.follow_ups, found.hits[-len(looked.follow_ups) :], again.pool)
        reached = replace(reached, looks=(*reached.looks, look), retrieval_ms=reached.retrieval_ms + again.retrieval_ms)
    return reached
