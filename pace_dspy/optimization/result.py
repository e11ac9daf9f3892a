"""What a compile run found out: per group, and as a whole. JSON-ready, for the manifest, MLflow and the screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pace_dspy.evaluation.answers import DecisionScores
from pace_dspy.optimization.calibration import Calibration
from pace_dspy.optimization.ledger import Candidate


@dataclass(frozen=True)
class GroupResult:
    """One group of stages.

    Attributes:
        name: The group.
        n_train: Training examples.
        n_dev: Dev examples.
        dropped: Examples left out, by reason.
        before: Mean dev score before, in [0, 1].
        after: Mean dev score of the program that was kept.
        by_rank: Mean dev score of keeping the first facts by rank (filters), ``None`` elsewhere.
        decisions_before: Decision metrics on dev before (answerer and end to end).
        decisions_after: And after.
        candidates: All candidates scored on the whole dev side; number 0 is the program as it was.
        chosen: Number of the candidate that was kept.
        changed: Whether the kept program differs from the one before.
        metric_calls: Examples scored.
        failed_proposals: Proposals of the prompt model that could not be used, by kind.
        uncalled: Predictors that no dev example reached; skipped.
        stopped: Why the optimizer ended early, ``None`` when it did not.
        skipped: Why it was not started at all, ``None`` when it was.
    """

    name: str
    n_train: int
    n_dev: int
    dropped: Mapping[str, int]
    before: float
    after: float
    by_rank: float | None
    decisions_before: DecisionScores
    decisions_after: DecisionScores
    candidates: tuple[Candidate, ...]
    chosen: int
    changed: bool
    metric_calls: int
    failed_proposals: Mapping[str, int]
    uncalled: tuple[str, ...]
    stopped: str | None
    skipped: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready; of the candidates only the scores (the kept state is the program itself)."""
        decided = {
            when: asdict(scores.rates) if scores.n else None
            for when, scores in (("before", self.decisions_before), ("after", self.decisions_after))
        }
        apart = {"dropped", "decisions_before", "decisions_after", "candidates", "failed_proposals", "uncalled"}
        plain = {name: value for name, value in vars(self).items() if name not in apart}
        return {
            **plain,
            "dropped": dict(self.dropped),
            "decisions": decided,
            "candidates": [{"number": one.number, "score": one.score} for one in self.candidates],
            "proposals_tried": max(0, len(self.candidates) - 1),
            "failed_proposals": dict(self.failed_proposals),
            "uncalled": list(self.uncalled),
        }

    def to_text(self) -> str:
        """Return one line."""
        kept = f"kept number {self.chosen}" if self.changed else "unchanged"
        rank = "" if self.by_rank is None else f"; the first by rank would score {self.by_rank:.3f}"
        end = self.skipped or self.stopped
        return (
            f"dev score {self.before:.3f} -> {self.after:.3f} ({self.n_dev} examples{rank}), "
            f"{max(0, len(self.candidates) - 1)} proposals tried, {kept}, {self.metric_calls} metric calls"
            + (f", {sum(self.failed_proposals.values())} proposals unusable" if self.failed_proposals else "")
            + (f"; never called: {', '.join(self.uncalled)}" if self.uncalled else "")
            + (f"; {end}" if end else "")
        )


@dataclass(frozen=True)
class CompileResult:
    """The whole run.

    Attributes:
        groups: By group of stages.
        calibration: The fitted threshold, ``None`` when none was asked for.
        spent: Calls, tokens, seconds and money of all starts.
        changed: Whether program or threshold differ from before.
        program: The state file.
        unreached: Groups left as they were, and the calibration left out, because the budget had ended.
    """

    groups: tuple[GroupResult, ...]
    calibration: Calibration | None
    spent: Mapping[str, float]
    changed: bool
    program: Path
    unreached: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {
            "unreached": list(self.unreached),
            "changed": self.changed,
            "program": str(self.program),
            "groups": [group.to_dict() for group in self.groups],
            "calibration": self.calibration.to_dict() if self.calibration else None,
            "spent": dict(self.spent),
        }

    def to_text(self) -> dict[str, str]:
        """Return label -> line, for the screen."""
        lines = {group.name: group.to_text() for group in self.groups}
        if self.calibration is not None:
            before, after = self.calibration.before, self.calibration.after
            lines["calibration"] = (
                f"threshold {self.calibration.threshold:.3f} on {self.calibration.n} dev requests: balanced accuracy "
                f"{before.balanced_accuracy:.3f} -> {after.balanced_accuracy:.3f}, conflict recall "
                f"{before.conflict_recall:.3f} -> {after.conflict_recall:.3f}, over-refusal "
                f"{before.over_refusal_rate:.3f} -> {after.over_refusal_rate:.3f} (fitted on these requests)"
            )
        if self.unreached:
            lines["not reached"] = f"{', '.join(self.unreached)}: the budget ended before; raise it and start again"
        lines["spent"] = (
            f"{self.spent['calls']:.0f} model calls, {self.spent['prompt_tokens']:,.0f} tokens read, "
            f"{self.spent['completion_tokens']:,.0f} written, {self.spent['seconds'] / 60:.1f} minutes, "
            f"${self.spent['usd']:.2f}"
        )
        lines["program"] = str(self.program) + ("" if self.changed else " (unchanged: nothing was better on dev)")
        return lines
