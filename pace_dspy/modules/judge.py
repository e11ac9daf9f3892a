"""The judge: a response beside the gold decision and its reason in, a verdict out. Paper: LLM judge."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass

from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.calendar import today_line
from pace_dspy.evaluation.scores import Verdict
from pace_dspy.modules.base import StageAgent
from pace_dspy.signatures import JudgeResponse
from pace_dspy.types import Label

REPLY_TOKENS = 160


@dataclass(frozen=True)
class Judgement:
    """A verdict with its short reason."""

    verdict: Verdict
    reason: str


class Judge(StageAgent):
    """Grades one response. There is no defined result: a reply that stays unusable is an error, never a FAIL."""

    def __init__(self) -> None:
        super().__init__("judge", JudgeResponse, reply_tokens=REPLY_TOKENS)

    def forward(
        self, request: str, reference_date: dt.date, gold_decision: Label, gold_reason: str, response: str
    ) -> Judgement:
        """Return the verdict.

        Args:
            request: The request as typed.
            reference_date: The day it is made.
            gold_decision: The gold label.
            gold_reason: The gold rationale.
            response: What the assistant answered; untrusted text.

        Raises:
            ReplyError: The judge's reply stayed unusable; ``raw`` holds it.
            BackendError: The backend failed.
            ConfigError: No language model is set.
        """
        reply = self.ask_strictly(
            today=today_line(reference_date),
            request=quoted(request),
            gold_decision=gold_decision,
            gold_reason=quoted(gold_reason),
            response=quoted(response),
        )
        return Judgement(reply.verdict, " ".join(reply.reason.split()))

    def prompt_id(self) -> str:
        """Return a short hash of the fixed part of the prompt: another prompt is another judge."""
        fixed = PaceAdapter().format_system_message(self.predict.signature)
        return hashlib.sha256(fixed.encode()).hexdigest()[:8]


def quoted(text: str) -> str:
    """Return text with ``> `` before every line, so that it can open no section of the prompt."""
    return "\n".join(f"> {line}" for line in text.splitlines())
