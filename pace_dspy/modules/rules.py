"""Agents made of rules (ours): the interfaces of the model agents, in milliseconds and at no cost."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from pace_dspy.entities import evidence_scores, spread
from pace_dspy.entities.ppr import Reached
from pace_dspy.entities.words import split_words
from pace_dspy.kb_context import context_of
from pace_dspy.retrieval import get_kb
from pace_dspy.temporal import find_times
from pace_dspy.types import Candidate, Cue, Task, View

MAX_PEOPLE = 3
MAX_THINGS = 4


class RulePlanner(dspy.Module):
    """Cues from the times, the people and the rare words of a request. Never more than one a direction.

    Args:
        cues_max: Most cues.
    """

    def __init__(self, cues_max: int = 3) -> None:
        super().__init__()
        self.cues_max = cues_max

    def forward(self, task: Task) -> tuple[Cue, ...]:
        """Return the cues, fewer when the request names no time, person or thing."""
        context = context_of(get_kb(task.kb_id), task.reference_date, task.persona)
        times = [time.text for time in find_times(task.request, task.reference_date, prefer="future")]
        mentions = [mention for mention in context.people.mentions(task.request) if not mention.is_owner][:MAX_PEOPLE]
        things = [term for term in context.vocabulary.salient_terms(task.request, max_share=0.1) if term.doc_freq]
        cues = []
        if times:
            cues.append(Cue("time", f"what else touches {', '.join(times)}", tuple(times)))
        if mentions:
            names = dict.fromkeys(name for mention in mentions for name in (mention.names or (mention.text,)))
            why = f"what binds {', '.join(names)}"
            cues.append(Cue("people", why, tuple(mention.text for mention in mentions)))
        if things:
            keys = [term.key for term in things if " " not in term.key][:MAX_THINGS]
            words = tuple(dict.fromkeys(word.raw for word in split_words(task.request) if word.key in keys))
            cues.append(Cue("places and things", f"rules and present state of {', '.join(words)}", words))
        return tuple(cues[: self.cues_max])


class TemplateViews(dspy.Module):
    """Counter views from templates around the cues' anchors.

    Measured on the train and dev personas of PACE-mini, such views lower Recall@10 (0.434 to 0.371 on train), so no
    named config uses them; they are here for knowledge bases of another kind.

    Args:
        counter_views_max: Most counter views.
    """

    TEMPLATES = (
        "{anchors} not allowed or only under a condition",
        "{anchors} closed, broken or not ready",
        "{anchors}",
    )

    def __init__(self, counter_views_max: int = 3) -> None:
        super().__init__()
        self.counter_views_max = counter_views_max

    def forward(self, task: Task, cues: Sequence[Cue]) -> tuple[View, ...]:
        """Return the original view and one counter view a template; only the original without any anchor."""
        original = View("original", task.request)
        anchors = " ".join(dict.fromkeys(anchor for cue in cues for anchor in cue.anchors))
        if not anchors:
            return (original,)
        views = [View("counter", template.format(anchors=anchors)) for template in self.TEMPLATES]
        return (original, *views[: self.counter_views_max])


class EmbeddingFilter(dspy.Module):
    """Choose facts by what the facts around say for them, and by binding wording.

    The score is the fused score (which ranks by similarity to any view) or that of the PageRank walk, less what a
    fact owes to being a seed: the ten facts most like a request are many versions of one, and say little about what
    stands against it. ``penalty`` discounts a fact about a word of the request that chosen facts are about already;
    it helps where seeds keep a part of their own mass.

    Args:
        keep: Most facts kept.
        penalty: What a further fact about the same thing still counts, in (0, 1]; 1 is no discount.
        restart_discount: Part of a seed's own mass that is taken off, in [0, 1].
        wording: What each kind of binding words adds to the logarithm of a score, >= 0.
    """

    def __init__(
        self, keep: int = 10, *, penalty: float = 1.0, restart_discount: float = 1.0, wording: float = 0.4
    ) -> None:
        super().__init__()
        self.keep, self.penalty, self.restart_discount, self.wording = keep, penalty, restart_discount, wording

    def forward(self, task: Task, candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """Return the ids kept, best first."""
        kb = get_kb(task.kb_id)
        context = context_of(kb, task.reference_date, task.persona)
        anchors = context.anchors(task.request)
        rows = [kb.doc_ids.position(candidate.doc_id) for candidate in candidates]
        reached = [
            Reached(row, candidate.score, candidate.restart, "seed")
            for row, candidate in zip(rows, candidates, strict=True)
        ]
        strengths = [int(context.strengths[row]) for row in rows]
        scores = evidence_scores(reached, strengths, restart_discount=self.restart_discount, weight=self.wording)
        about = [anchors & context.keys[row] for row in rows]
        return tuple(candidates[at].doc_id for at in spread(scores, about, self.keep, penalty=self.penalty))
