"""What a run says in a dozen numbers: counts and failures first, then scores with their n, then cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pace_dspy.evaluation.metrics import DecisionScores, RetrievalScores, decision_metrics, retrieval_metrics
from pace_dspy.evaluation.scores import Row


@dataclass(frozen=True)
class StageCost:
    """Sums of one stage over all requests of a run; see `pace_dspy.types.StageUsage` for the fields."""

    calls: int
    cached_calls: int
    repairs: int
    prompt_tokens: int
    prompt_cached_tokens: int
    completion_tokens: int
    latency_ms: float
    cost_usd: float


@dataclass(frozen=True)
class RunSummary:
    """Summary of the rows of one run.

    Attributes:
        n_requests: Rows, failed ones included.
        retrieval: Retrieval scores with their n and failures.
        decision: Decision scores with their n and failures.
        fallbacks: Stage -> how often it used its defined result.
        trims: Stage -> how often candidates were trimmed to the window.
        stages: Stage -> cost.
        seconds_per_request: Mean wall time of the finished requests, ``None`` without any.
        retrieval_ms_per_request: Mean time of search, fusion and walk.
    """

    n_requests: int
    retrieval: RetrievalScores
    decision: DecisionScores
    fallbacks: dict[str, int]
    trims: dict[str, int]
    stages: dict[str, StageCost]
    seconds_per_request: float | None
    retrieval_ms_per_request: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return asdict(self)

    def to_text(self) -> dict[str, str]:
        """Return printable name-value pairs; a score that cannot be computed is shown as ``-``."""
        retrieval, rates = self.retrieval, self.decision.rates
        macro = retrieval.macro
        recalls = ", ".join(_share(macro[name]) for name in ("recall@5", "recall@10"))
        failed = f"{retrieval.n_failed} {_counts(dict(retrieval.reasons))} (failed requests are in no score)"
        text = {
            "requests": f"{self.n_requests}, failed {failed if retrieval.n_failed else 0}",
            "Recall@5, Recall@10": f"{recalls} (macro, n={retrieval.n})",
            "Hit@10, Gold@10, MRR": ", ".join(_share(macro[name]) for name in ("hit@10", "gold@10", "mrr")),
        }
        if self.decision.n or (self.decision.n_undecided and self.stages):
            text["decision accuracy"] = f"{_share(rates.accuracy)} (n={self.decision.n})"
            text["conflict recall"] = f"{_share(rates.conflict_recall)} (n={self.decision.n_conflict})"
            text["over-refusal"] = f"{_share(rates.over_refusal_rate)} (n={self.decision.n_non_conflict})"
            text["undecided"] = str(self.decision.n_undecided)
        text["fallbacks"] = _counts(self.fallbacks) or "none"
        if self.trims:
            text["trimmed to the window"] = _counts(self.trims)
        read = sum(stage.prompt_tokens for stage in self.stages.values())
        if read:
            cached = sum(stage.prompt_cached_tokens for stage in self.stages.values())
            wrote = sum(stage.completion_tokens for stage in self.stages.values())
            n = max(retrieval.n, 1)
            text["tokens a request"] = f"{read / n:,.0f} read ({cached / read:.0%} cached), {wrote / n:,.0f} written"
        if self.seconds_per_request is not None:
            text["seconds a request"] = f"{self.seconds_per_request:.2f}, of which retrieval {_ms(self)} ms"
        return text


def summarise(rows: Sequence[Row]) -> RunSummary:
    """Summarise result rows.

    Raises:
        ConfigError: Rows that do not record failures.
    """
    traces = [row["trace"] for row in rows if row["error"] is None and row["trace"]]
    n = len(traces)
    return RunSummary(
        n_requests=len(rows),
        retrieval=retrieval_metrics(rows),
        decision=decision_metrics(rows),
        fallbacks=_by_stage(traces, "fallbacks"),
        trims=_by_stage(traces, "trims"),
        stages=_stage_costs(traces),
        seconds_per_request=sum(trace["total_ms"] for trace in traces) / 1000 / n if n else None,
        retrieval_ms_per_request=sum(trace["retrieval_ms"] for trace in traces) / n if n else None,
    )


def _by_stage(traces: Sequence[dict[str, Any]], field: str) -> dict[str, int]:
    return dict(sorted(Counter(item["stage"] for trace in traces for item in trace[field]).items()))


def _stage_costs(traces: Sequence[dict[str, Any]]) -> dict[str, StageCost]:
    stages: dict[str, list[dict[str, Any]]] = {}
    for trace in traces:
        for usage in trace["usage"]:
            stages.setdefault(usage["stage"], []).append(usage)
    fields = list(StageCost.__dataclass_fields__)
    return {
        stage: StageCost(**{field: sum(usage[field] or 0 for usage in usages) for field in fields})
        for stage, usages in stages.items()
    }


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _ms(summary: RunSummary) -> str:
    return f"{summary.retrieval_ms_per_request or 0:.1f}"
