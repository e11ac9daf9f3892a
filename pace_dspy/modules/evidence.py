"""The two evidence filters, before and after the walk. Paper: evidence selection; semantics: parity README, Filter."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from pace_dspy.backends.usage import record_fallback
from pace_dspy.calendar import today_line
from pace_dspy.modules.base import StageAgent, chosen_positions, numbered
from pace_dspy.signatures import SelectEvidence, SelectSeeds
from pace_dspy.types import Candidate, Stage, Task

REPLY_TOKENS = 120


class EvidenceFilter(StageAgent):
    """Candidates in (best first), at most ``keep`` of them out, in the model's order.

    A list of at most ``keep`` candidates comes back unchanged and the model is not asked. When the call fails or no
    valid number is left, the first ``keep`` by rank are used and the fallback is recorded.

    Args:
        stage: ``pre_filter`` or ``post_filter``.
        signature: The filter's own signature, whose one output field lists numbers.
        keep: Most candidates kept. Paper: 10.
    """

    def __init__(self, stage: Stage, signature: type[dspy.Signature], keep: int) -> None:
        super().__init__(stage, signature, reply_tokens=REPLY_TOKENS)
        self.keep = keep
        self.output = next(iter(signature.output_fields))

    def forward(self, task: Task, candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """Return the ids kept.

        Args:
            task: The request to check.
            candidates: Facts to choose from, best first.
        """
        ids = [candidate.doc_id for candidate in candidates]
        if len(ids) <= self.keep:
            return tuple(ids)
        lines = numbered([candidate.text for candidate in candidates])
        fixed = {"request": task.request, "today": today_line(task.reference_date)}
        shown = self.fit(lines, "candidates", **fixed)
        reply = self.ask(**fixed, candidates="\n".join(lines[:shown]))
        if reply is None:
            return tuple(ids[: self.keep])
        positions = chosen_positions(getattr(reply, self.output), shown, self.keep)
        if not positions:
            record_fallback(self.stage, "no valid candidate number in the reply")
            return tuple(ids[: self.keep])
        return tuple(ids[position] for position in positions)


class PreHopFilter(EvidenceFilter):
    """Choose the seeds of the walk from the fused list. Paper: filter before expansion."""

    def __init__(self, keep: int = 10) -> None:
        super().__init__("pre_filter", SelectSeeds, keep)


class PostHopFilter(EvidenceFilter):
    """Choose the evidence from the whole pool. Paper: filter after expansion."""

    def __init__(self, keep: int = 10) -> None:
        super().__init__("post_filter", SelectEvidence, keep)
