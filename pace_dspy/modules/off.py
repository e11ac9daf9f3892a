"""Agents switched off: the same interfaces, no model call. An ablation is one of these in place of an agent."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from pace_dspy.modules.answerer import Answer
from pace_dspy.types import Candidate, Cue, Note, Task, View


class NoPlanner(dspy.Module):
    """No cues. Paper: ablation without planning."""

    def forward(self, task: Task) -> tuple[Cue, ...]:
        """Return no cues."""
        return ()


class OriginalViewOnly(dspy.Module):
    """The request itself is the only view."""

    def forward(self, task: Task, cues: Sequence[Cue]) -> tuple[View, ...]:
        """Return the original view."""
        return (View("original", task.request),)


class KeepFirst(dspy.Module):
    """The first ``keep`` candidates by rank. Paper: ablation without evidence selection.

    Args:
        keep: Most candidates kept.
    """

    def __init__(self, keep: int) -> None:
        super().__init__()
        self.keep = keep

    def forward(self, task: Task, candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """Return the ids kept."""
        return tuple(candidate.doc_id for candidate in candidates[: self.keep])


class NoAnswerer(dspy.Module):
    """Evidence only: nothing is decided."""

    def forward(self, task: Task, evidence: Sequence[Candidate], notes: Sequence[Note] = ()) -> Answer:
        """Return an open answer."""
        return Answer(None, None, ())
