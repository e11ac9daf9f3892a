"""The clash check (ours): what follows from the times, durations and opening hours of request and evidence, by rule."""

from __future__ import annotations

from collections.abc import Sequence

from pace_dspy.retrieval import KbIndex
from pace_dspy.temporal import derive_notes
from pace_dspy.types import Note, Task


def clash_notes(task: Task, kb: KbIndex, evidence: Sequence[str]) -> tuple[Note, ...]:
    """Return short statements derived from the evidence, each with the facts it follows from; silent when unsure."""
    facts = [(doc_id, kb.text(doc_id), kb.date(doc_id)) for doc_id in evidence]
    found = derive_notes(task.request, task.reference_date, facts, persona=task.persona)
    return tuple(Note(finding.note, finding.doc_ids, finding.slack_minutes) for finding in found)
