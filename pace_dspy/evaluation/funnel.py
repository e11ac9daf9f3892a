"""The evidence funnel: for every gold fact of a request, the stage at which it was lost. Ours; design section 6.

One rule decides: **a fact is lost at the first stage after the last one that had it.** So the fates partition the gold
facts, and a fact that no view found, or that fusion or the pre-hop filter dropped, but that the walk reached, is
recovered and goes on as if it had never been lost (`FactFate.recovered_from` keeps where it was missing before).

The other side of the rule: a fact that the walk never reached is lost where it was first missing (``no_view``,
``fusion`` or ``pre_filter``), since the walk cannot lose what it was not given. Fate ``walk`` means that the pool lacks
a fact of the stage before (a walk that keeps only its best facts). "Not reached by the walk" in the wider sense is
`StageCount.n_missed` of stage ``pool``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pace_dspy.evaluation.scores import Row, ratio
from pace_dspy.types import Stage, Trace

StageName = Literal["views", "fused", "seeds", "pool", "second_look", "prefilter", "evidence", "cited"]
Fate = Literal[
    "no_view",
    "fusion",
    "pre_filter",
    "walk",
    "second_look",
    "prefilter",
    "post_filter",
    "not_cited",
    "in_evidence",
    "cited",
]
TraceDict = Mapping[str, Any]


@dataclass(frozen=True)
class StageSpec:
    """One stage of the funnel.

    Attributes:
        name: The list of fact ids the stage gives out.
        loss: Fate of a fact that the stage did not give out although an earlier one had it.
        ids: The list from a trace dictionary, best first; ``None`` when the trace has no such stage.
        agent: The agent that chose the list, when a prompt's trimming can be the cause of a loss.
    """

    name: StageName
    loss: Fate
    ids: Callable[[TraceDict], Sequence[str] | None]
    agent: Stage | None = None


def _doc_ids(field: str) -> Callable[[TraceDict], Sequence[str] | None]:
    """Return a reader of a list of ids, or of records with ``doc_id``; an empty list means that the stage is absent."""

    def read(trace: TraceDict) -> Sequence[str] | None:
        items = trace.get(field) or ()
        return [item if isinstance(item, str) else item["doc_id"] for item in items] or None

    return read


def _found_by_views(trace: TraceDict) -> Sequence[str] | None:
    """Return what any view found; views that ran and found nothing are a stage, no views at all are not."""
    hits = trace.get("hits") or ()
    return [hit["doc_id"] for view in hits for side in ("dense", "sparse") for hit in view[side]] if hits else None


def _pool_after_looks(trace: TraceDict) -> Sequence[str] | None:
    """Return the pool after the last round of the second look; a look that changed nothing passes the pool on."""
    looks = trace.get("looks") or ()
    pools = [trace.get("pool") or (), *(look["pool"] for look in looks if look["pool"])]
    return [fact["doc_id"] for fact in pools[-1]] if looks else None


STAGES: tuple[StageSpec, ...] = (
    StageSpec("views", "no_view", _found_by_views),
    StageSpec("fused", "fusion", _doc_ids("fused")),
    StageSpec("seeds", "pre_filter", _doc_ids("seeds"), "pre_filter"),
    StageSpec("pool", "walk", _doc_ids("pool")),
    StageSpec("second_look", "second_look", _pool_after_looks, "second_look"),
    StageSpec("prefilter", "prefilter", _doc_ids("prefiltered")),
    StageSpec("evidence", "post_filter", lambda trace: trace["evidence"], "post_filter"),
    StageSpec("cited", "not_cited", lambda trace: trace["cited"], "answerer"),
)
"""The stages in order. A new stage is one entry here and its two names in the literals above; the rule does the rest.

In a baseline, ``post_filter`` stands for its final cut, whatever makes it.
"""

FATES: tuple[Fate, ...] = (*(stage.loss for stage in STAGES), "in_evidence", "cited")
"""All fates: the losses in order; ``in_evidence`` (kept by a method that decided nothing); ``cited``."""


@dataclass(frozen=True)
class FactFate:
    """What became of one gold fact.

    Attributes:
        doc_id: The fact.
        lost_at: Where it was lost, or ``in_evidence`` / ``cited``.
        hop: Hop of the walk that reached it: 0 a seed, ``None`` not in the pool (or no walk).
        views: Indices of the views that found it, ascending; empty when none did.
        recovered_from: Where it was missing before a later stage (the walk) found it again, else ``None``.
        recovered_by: The stage that found it again, else ``None``.
        trimmed: The agent that lost it never saw it, because its prompt had no room.
    """

    doc_id: str
    lost_at: Fate
    hop: int | None
    views: tuple[int, ...]
    recovered_from: Fate | None = None
    recovered_by: StageName | None = None
    trimmed: bool = False


@dataclass(frozen=True)
class StageCount:
    """Gold facts before and after one stage.

    Attributes:
        stage: The list the stage gives out.
        n_gold: Gold facts of the requests that have this stage.
        n_offered: Of these, in the list of the stage before (all of them for the first stage).
        n_kept: Of the offered, still there after.
        n_new: There after, not offered (reached by the walk).
    """

    stage: StageName
    n_gold: int
    n_offered: int
    n_kept: int
    n_new: int

    @property
    def n_missed(self) -> int:
        """Gold facts not offered and not newly reached. For stage ``pool``: not reached by the walk."""
        return self.n_gold - self.n_offered - self.n_new

    @property
    def recall(self) -> float | None:
        """Share of the gold facts in this list, in [0, 1], pooled over facts."""
        return ratio(self.n_kept + self.n_new, self.n_gold)

    @property
    def keep_rate(self) -> float | None:
        """Share of the offered gold facts that was kept, in [0, 1]: the filter's own recall."""
        return ratio(self.n_kept, self.n_offered)

    @property
    def recovery_rate(self) -> float | None:
        """Share of the gold facts not offered that was reached anew, in [0, 1]: the walk's own recall."""
        return ratio(self.n_new, self.n_new + self.n_missed)

    def to_dict(self) -> dict[str, Any]:
        """Return counts and rates, JSON-ready."""
        rates = ("n_missed", "recall", "keep_rate", "recovery_rate")
        return {**vars(self), **{name: getattr(self, name) for name in rates}}


@dataclass(frozen=True)
class RequestFunnel:
    """The funnel of one request.

    Attributes:
        fates: One entry a gold fact, in gold order.
        stages: One entry a stage the method has, in order.
    """

    fates: tuple[FactFate, ...]
    stages: tuple[StageCount, ...]

    def at(self, fate: Fate) -> tuple[FactFate, ...]:
        """Return the facts of one fate."""
        return tuple(fact for fact in self.fates if fact.lost_at == fate)

    def stage(self, name: StageName) -> StageCount | None:
        """Return the counts of one stage, ``None`` when the method has no such stage."""
        return next((count for count in self.stages if count.stage == name), None)


def funnel_of(
    trace: Trace | TraceDict | None,
    gold: Iterable[str],
    cited: Sequence[str] | None,
    *,
    evidence: Sequence[str] | None = None,
    ran: Collection[StageName] = (),
    specs: Sequence[StageSpec] = STAGES,
) -> RequestFunnel:
    """Follow every gold fact of one request through the stages.

    Args:
        trace: The typed trace, its dictionary, or ``None`` for a method that records none.
        gold: The decisive facts; repeats are dropped.
        cited: Facts the decision rests on; ``None`` when nothing was decided (the stage is then absent).
        evidence: The evidence, when it is not that of the trace.
        ran: Stages known to have run although their list is empty (from other requests of the same run).
        specs: The stages.

    Returns:
        Fates and counts. A stage whose list is empty is taken as absent and skipped, never counted as a loss, unless
        ``ran`` names it.
    """
    raw: TraceDict = trace.to_dict() if isinstance(trace, Trace) else trace or {}
    shown = raw.get("evidence") or () if evidence is None else evidence
    full = {**raw, "evidence": list(shown), "cited": None if cited is None else list(cited)}
    found = [(spec, spec.ids(full)) for spec in specs]
    lists = [(spec, list(ids or ())) for spec, ids in found if ids is not None or spec.name in ran]
    views, hops = _views(full), {fact["doc_id"]: int(fact["hop"]) for fact in full.get("pool") or ()}
    shown_counts = {trim["stage"]: int(trim["shown"]) for trim in full.get("trims") or ()}
    facts = list(dict.fromkeys(gold))
    fates = tuple(_fate(doc_id, lists, shown_counts, hops.get(doc_id), views.get(doc_id, ())) for doc_id in facts)
    return RequestFunnel(fates, tuple(_counts(set(facts), lists)))


def funnel_of_row(row: Row, ran: Collection[StageName] = ()) -> RequestFunnel:
    """Return the funnel of one finished result row; facts cited count only where something was decided."""
    cited = None if row.get("decision") is None else row["cited"]
    return funnel_of(row.get("trace"), row["gold_doc_ids"], cited, evidence=row["evidence"], ran=ran)


def _fate(
    doc_id: str,
    lists: Sequence[tuple[StageSpec, list[str]]],
    shown_counts: Mapping[str, int],
    hop: int | None,
    views: tuple[int, ...],
) -> FactFate:
    lost: StageSpec | None = None
    before: list[str] = []
    back: tuple[Fate | None, StageName | None] = (None, None)
    trimmed = False
    for spec, ids in lists:
        if doc_id in ids:
            back = (lost.loss, spec.name) if lost is not None else back
            lost, trimmed = None, False
        elif lost is None:
            lost = spec
            trimmed = doc_id in before and before.index(doc_id) >= shown_counts.get(spec.agent or "", len(before))
        before = ids
    kept: Fate = "cited" if any(spec.name == "cited" for spec, _ in lists) else "in_evidence"
    return FactFate(doc_id, kept if lost is None else lost.loss, hop, views, *back, trimmed=trimmed)


def _counts(gold: set[str], lists: Sequence[tuple[StageSpec, list[str]]]) -> Iterable[StageCount]:
    offered = gold
    for spec, ids in lists:
        after = gold & set(ids)
        yield StageCount(spec.name, len(gold), len(offered), len(offered & after), len(after - offered))
        offered = after


def _views(trace: TraceDict) -> dict[str, tuple[int, ...]]:
    """Return which views found a fact: from the hits, or from the fused list where a trace has no hits."""
    found: dict[str, dict[int, None]] = {}
    for number, view in enumerate(trace.get("hits") or ()):
        for hit in (*view["dense"], *view["sparse"]):
            found.setdefault(hit["doc_id"], {})[number] = None
    if not found:
        return {hit["doc_id"]: tuple(hit.get("views", ())) for hit in trace.get("fused") or ()}
    return {doc_id: tuple(numbers) for doc_id, numbers in found.items()}
