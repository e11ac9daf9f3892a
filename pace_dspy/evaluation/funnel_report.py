"""The evidence funnel of a run: fates and stage recalls, overall, by label and by situation type. Ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pace_dspy.evaluation.funnel import FATES, STAGES, Fate, StageCount, StageName, funnel_of_row
from pace_dspy.evaluation.scores import Grouped, Row, finished, grouped, ratio


@dataclass(frozen=True)
class Funnel:
    """The funnel of a group of requests; all numbers count gold facts unless said.

    Attributes:
        n: Requests counted: ended without error, with gold facts.
        n_failed: Requests that failed; nothing of theirs is counted as lost.
        n_no_gold: Requests without gold facts.
        reasons: Failures by the kind of their error.
        n_gold: Gold facts of the requests counted.
        fates: By fate, all of `FATES`; they sum up to ``n_gold``.
        recovered: Found again by a later stage, by where they were missing before.
        n_trimmed: Lost because the agent's prompt had no room for them.
        stages: Counts by stage, in order; only stages that occur.
    """

    n: int
    n_failed: int
    n_no_gold: int
    reasons: Mapping[str, int]
    n_gold: int
    fates: Mapping[Fate, int]
    recovered: Mapping[Fate, int]
    n_trimmed: int
    stages: tuple[StageCount, ...]

    @property
    def shares(self) -> dict[Fate, float | None]:
        """Fates as shares of the gold facts, in [0, 1]; they sum up to 1."""
        return {fate: ratio(count, self.n_gold) for fate, count in self.fates.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return counts, shares and stages, JSON-ready."""
        return {**vars(self), "shares": self.shares, "stages": [stage.to_dict() for stage in self.stages]}


def funnel_metrics(rows: Sequence[Row], ran: Collection[StageName] | None = None) -> Funnel:
    """Add up the funnels of the rows of one run.

    Args:
        rows: Result rows of one method.
        ran: Stages the method has; taken from the rows when ``None``.

    Raises:
        ValueError: Rows that do not record failures.
    """
    ended = finished(rows)
    stages = stages_of(ended.rows) if ran is None else ran
    funnels = [funnel_of_row(row, stages) for row in ended.rows if row["gold_doc_ids"]]
    facts = [fact for funnel in funnels for fact in funnel.fates]
    fates = Counter(fact.lost_at for fact in facts)
    back = Counter(fact.recovered_from for fact in facts)
    return Funnel(
        n=len(funnels),
        n_failed=ended.n_failed,
        n_no_gold=len(ended.rows) - len(funnels),
        reasons=ended.reasons,
        n_gold=len(facts),
        fates={fate: fates[fate] for fate in FATES},
        recovered={fate: back[fate] for fate in FATES if back[fate]},
        n_trimmed=sum(fact.trimmed for fact in facts),
        stages=_sum_stages([count for funnel in funnels for count in funnel.stages]),
    )


def funnel_report(rows: Sequence[Row]) -> Grouped[Funnel]:
    """Return the funnel of a run, overall, by label and by situation type."""
    ran = stages_of(finished(rows).rows)
    return grouped(rows, lambda group: funnel_metrics(group, ran))


def stages_of(rows: Iterable[Row]) -> frozenset[StageName]:
    """Return the retrieval stages that any of these rows of one run has."""
    names = {
        spec.name
        for row in rows
        for spec in STAGES[:-2]  # evidence is always there; citing is a matter of each request
        if spec.ids(row.get("trace") or {}) is not None
    }
    return frozenset(names)


def _sum_stages(counts: Sequence[StageCount]) -> tuple[StageCount, ...]:
    def total(name: StageName) -> StageCount:
        own = [count for count in counts if count.stage == name]
        return StageCount(
            name,
            sum(count.n_gold for count in own),
            sum(count.n_offered for count in own),
            sum(count.n_kept for count in own),
            sum(count.n_new for count in own),
        )

    present = {count.stage for count in counts}
    return tuple(total(spec.name) for spec in STAGES if spec.name in present)
