"""The answerer: evidence in, a decision with its reason and cited facts out. Paper: answer generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dspy

from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.logprobs import CHOICES_KEY, TOP_TOKENS
from pace_dspy.backends.usage import record_fallback
from pace_dspy.calendar import today_line
from pace_dspy.modules.base import StageAgent, chosen_positions, numbered
from pace_dspy.signatures import DecideRequest
from pace_dspy.types import Candidate, Label, Note, Task

REPLY_TOKENS = 320


@dataclass(frozen=True)
class Answer:
    """What the answerer decided.

    Attributes:
        decision: ``conflict`` / ``non_conflict``, or ``None`` when the reply stayed unusable.
        response: Two to four sentences for the user, ``None`` likewise.
        cited: Ids the answer rests on, each one shown to the model.
        p_conflict: Probability of ``conflict`` by the model's token probabilities, ``None`` when not measured.
    """

    decision: Label | None
    response: str | None
    cited: tuple[str, ...]
    p_conflict: float | None = None


class Answerer(StageAgent):
    """Task and evidence in; an `Answer` out. A failed reply decides nothing (ours).

    Attributes:
        threshold: Probability of ``conflict`` from which the decision is ``conflict`` (calibration, ours); ``None``
            keeps the model's own decision. The response is not changed.
        measure: Ask for token probabilities although there is no threshold (to fit one).
    """

    def __init__(self) -> None:
        super().__init__("answerer", DecideRequest, reply_tokens=REPLY_TOKENS)
        self.threshold: float | None = None
        self.measure = False

    def forward(self, task: Task, evidence: Sequence[Candidate], notes: Sequence[Note] = ()) -> Answer:
        """Return the answer.

        Args:
            task: The request to check.
            evidence: Facts to decide from, most decisive first.
            notes: Statements derived from the evidence by rule; shown behind it, marked as derived.
        """
        lines = [*numbered([fact.text for fact in evidence]), *derived_lines(notes, evidence)]
        fixed = {
            "persona": task.persona or "the user",
            "today": today_line(task.reference_date),
            "request": task.request,
        }
        shown = self.fit(lines, "evidence", **fixed) if lines else 0
        wanted = {"config": {"logprobs": TOP_TOKENS}} if self._measures() else {}
        reply = self.ask(**fixed, **wanted, evidence="\n".join(lines[:shown]) or "no notes were found")
        if reply is None:
            return Answer(None, None, ())
        if not reply.response.strip():
            record_fallback(self.stage, "the response is empty")
            return Answer(None, None, ())
        cited = chosen_positions(reply.cited, min(shown, len(evidence)), len(evidence))
        p_conflict = reply.get(CHOICES_KEY, {}).get("decision", {}).get("conflict")
        return Answer(
            self._calibrated(reply.decision, p_conflict),
            reply.response.strip(),
            tuple(evidence[position].doc_id for position in cited),
            p_conflict,
        )

    def _measures(self) -> bool:
        lm = self.predict.lm or dspy.settings.lm
        wanted = self.measure or self.threshold is not None
        return wanted and isinstance(lm, BackendLM) and lm.profile.supports_logprobs

    def _calibrated(self, decision: Label, p_conflict: float | None) -> Label:
        if self.threshold is None:
            return decision
        if p_conflict is None:
            record_fallback(self.stage, "no token probabilities in the reply; the calibrated threshold was not used")
            return decision
        return "conflict" if p_conflict >= self.threshold else "non_conflict"


def derived_lines(notes: Sequence[Note], evidence: Sequence[Candidate]) -> list[str]:
    """Return derived notes as prompt lines that name the facts they follow from; a note about others is left out."""
    numbers = {fact.doc_id: number for number, fact in enumerate(evidence, start=1)}
    return [
        f"(derived from {', '.join(f'[{numbers[doc_id]}]' for doc_id in note.doc_ids)}) {' '.join(note.text.split())}"
        for note in notes
        if note.doc_ids and all(doc_id in numbers for doc_id in note.doc_ids)
    ]
