"""Frozen records passed between steps: the data, and the typed trace of one request.

Everything here is plain data: no index, embedder or client is ever held by one of these.
``doc_id`` is our string id of a fact; ranks count from 1; hops count from 0 (a seed).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Label = Literal["conflict", "non_conflict"]
SituationType = Literal["temporal", "personal", "state"]
ViewKind = Literal["original", "counter"]
Retriever = Literal["dense", "sparse", "graph", "time", "people"]
Stage = Literal["planner", "views", "pre_filter", "second_look", "post_filter", "answerer", "judge", "react"]

LABELS: tuple[Label, ...] = ("conflict", "non_conflict")
SITUATION_TYPES: tuple[SituationType, ...] = ("temporal", "personal", "state")


@dataclass(frozen=True)
class Fact:
    """One atomic fact of a knowledge base.

    Attributes:
        doc_id: Unique inside its knowledge base.
        text: One sentence, never empty.
        date: The date the fact was recorded, ``None`` when undated (it then stays undated).
        metadata: Columns we do not interpret, kept as they came.
    """

    doc_id: str
    text: str
    date: dt.date | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One user request with its gold annotation (``None`` / empty for a user's own request).

    Attributes:
        case_id: The persona whose knowledge base is asked.
        query_id: Unique inside its case.
        query: The request as typed.
        reference_date: The day the request is made; relative dates are resolved against it.
        label: Gold label, or ``None`` when unknown.
        situation_type: temporal / personal / state, or ``None`` when the data does not say.
        gold_doc_ids: The decisive facts, in the data's order, without repeats.
        judgment: The gold rationale.
        metadata: Columns we do not interpret.
    """

    case_id: str
    query_id: str
    query: str
    reference_date: dt.date
    label: Label | None = None
    situation_type: SituationType | None = None
    gold_doc_ids: tuple[str, ...] = ()
    judgment: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One persona: its knowledge base and its requests."""

    case_id: str
    persona: str | None
    window_start: dt.date | None
    reference_date: dt.date | None
    window_end: dt.date | None
    facts: tuple[Fact, ...]
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """Cases in data order.

    Attributes:
        name: Short name for runs and reports.
        cases: One entry a persona.
        content_hash: SHA-256 (hex) over all facts and requests; the same records give the same hash from any format.
    """

    name: str
    cases: tuple[Case, ...]
    content_hash: str

    def case(self, case_id: str) -> Case:
        """Return one case.

        Raises:
            KeyError: ``case_id`` is not in the data; the message lists what is.
        """
        for case in self.cases:
            if case.case_id == case_id:
                return case
        raise KeyError(f"no case {case_id!r}; cases: {', '.join(c.case_id for c in self.cases)}")

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests of all cases, in data order."""
        return tuple(request for case in self.cases for request in case.requests)


@dataclass(frozen=True)
class Task:
    """One request to check, as every agent sees it: a light handle, never an index or texts.

    Attributes:
        request: The request as typed.
        reference_date: The day it is made; relative dates are resolved against it, never against the clock.
        kb_id: The registered knowledge base.
        persona: The user's name, if known.
    """

    request: str
    reference_date: dt.date
    kb_id: str
    persona: str | None = None


@dataclass(frozen=True)
class Candidate:
    """A fact offered to a filter or to the answerer, best first.

    Attributes:
        doc_id: The fact.
        text: Its sentence.
        score: Fused score (0.0 for a fact that only the breadth-first walk reached), or the score of a PageRank walk.
        hop: Hop that reached it; 0 for a seed or a fact of the fused list.
        restart: Part of a PageRank score that is only there because a walk restarts at the fact.
    """

    doc_id: str
    text: str
    score: float = 0.0
    hop: int = 0
    restart: float = 0.0


@dataclass(frozen=True)
class Cue:
    """A probing cue of the planner: where a conflict could hide. Paper: planner agent."""

    direction: str
    why: str
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """One query text sent to every retriever. The original request is always the first view."""

    kind: ViewKind
    text: str


@dataclass(frozen=True)
class Hit:
    """One retrieved fact: inner product for dense (higher is closer), BM25 score > 0 for sparse."""

    doc_id: str
    score: float


@dataclass(frozen=True)
class ViewHits:
    """What each retriever returned for one view, best first."""

    dense: tuple[Hit, ...]
    sparse: tuple[Hit, ...]


@dataclass(frozen=True)
class FusedHit:
    """A fact of the fused list with its provenance.

    Attributes:
        doc_id: The fact.
        score: Weighted reciprocal rank fusion score, higher is better; 0.0 for a fact only the graph reached.
        views: Indices into the list of views that found it, ascending.
        sources: Retrievers that found it, in order of first appearance.
    """

    doc_id: str
    score: float
    views: tuple[int, ...] = ()
    sources: tuple[Retriever, ...] = ()


@dataclass(frozen=True)
class PoolFact:
    """A fact of the pool that the post-hop filter reads, and why it is there.

    Attributes:
        doc_id: The fact.
        hop: Hop of the breadth-first walk that reached it (0 = seed); for a PageRank walk 0 = seed, 1 = reached.
        score: Score of a PageRank walk, higher is nearer to the seeds; 0.0 for the breadth-first walk.
        restart: Part of ``score`` that is only there because a walk restarts at the fact.
        via: For a PageRank walk, its strongest link: ``seed``, ``neighbour of ID`` or ``shares 'TERM' with ID``.
    """

    doc_id: str
    hop: int
    score: float = 0.0
    restart: float = 0.0
    via: str = ""


@dataclass(frozen=True)
class ChannelHits:
    """A ranking beside the views: facts whose time touches the request's, facts about people it describes (ours)."""

    channel: Retriever
    doc_ids: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """One round of the second look (ours).

    Attributes:
        selected: Facts the agent found most useful, in its order.
        follow_ups: Queries for what is still missing; empty when nothing is, and then the round ends the look.
        hits: What each retriever returned for each follow-up.
        pool: The pool after the round; empty without follow-ups.
    """

    selected: tuple[str, ...]
    follow_ups: tuple[str, ...] = ()
    hits: tuple[ViewHits, ...] = ()
    pool: tuple[PoolFact, ...] = ()


@dataclass(frozen=True)
class Note:
    """A statement derived from facts by rule, shown to the answerer as derived (ours).

    Attributes:
        text: The statement.
        doc_ids: The facts it follows from.
        slack_minutes: Minutes to spare, negative for a clash, ``None`` for a calendar note.
    """

    text: str
    doc_ids: tuple[str, ...]
    slack_minutes: int | None = None


@dataclass(frozen=True)
class Fallback:
    """A stage's model call failed for good and the defined result was used instead."""

    stage: Stage
    reason: str


@dataclass(frozen=True)
class Trim:
    """Candidates left out of a prompt (lowest rank first) because the backend's window is too small."""

    stage: Stage
    offered: int
    shown: int


@dataclass(frozen=True)
class StageUsage:
    """Model calls of one stage of one request.

    Attributes:
        stage: The stage.
        calls: Calls that reached the backend (repair turns included).
        cached_calls: Calls answered by our own reply cache; their tokens are not counted.
        repairs: Calls that were second attempts after an unusable reply.
        prompt_tokens: Tokens read, as the backend reported them.
        prompt_cached_tokens: Part of ``prompt_tokens`` the backend took from its prefix cache.
        completion_tokens: Tokens written.
        latency_ms: Wall time of the calls.
        cost_usd: Price by the profile's table, ``None`` when the profile has no price.
        retries: Attempts made again after a failure that can pass (rate limit, timeout, server error).
    """

    stage: Stage
    calls: int = 0
    cached_calls: int = 0
    repairs: int = 0
    prompt_tokens: int = 0
    prompt_cached_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: float = 0.0
    cost_usd: float | None = None
    retries: int = 0


@dataclass(frozen=True)
class Trace:
    """What every stage took in and gave out, for one request, in the order of the paper's main figure."""

    kb_id: str
    reference_date: dt.date
    cues: tuple[Cue, ...] = ()
    views: tuple[View, ...] = ()
    hits: tuple[ViewHits, ...] = ()
    fused: tuple[FusedHit, ...] = ()
    seeds: tuple[str, ...] = ()
    pool: tuple[PoolFact, ...] = ()
    evidence: tuple[str, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    trims: tuple[Trim, ...] = ()
    usage: tuple[StageUsage, ...] = ()
    retrieval_ms: float = 0.0
    total_ms: float = 0.0
    channels: tuple[ChannelHits, ...] = ()
    looks: tuple[Look, ...] = ()
    notes: tuple[Note, ...] = ()
    prefiltered: tuple[str, ...] = ()

    @property
    def final_pool(self) -> tuple[PoolFact, ...]:
        """The last pool: after the last round of the second look, else of the walk."""
        return next((look.pool for look in reversed(self.looks) if look.pool), self.pool)

    @property
    def offered(self) -> tuple[PoolFact, ...]:
        """What the post-hop filter reads: the last pool, or what the prefilter kept of it."""
        kept = frozenset(self.prefiltered)
        return tuple(fact for fact in self.final_pool if not kept or fact.doc_id in kept)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary (dates as ISO text, tuples as lists)."""
        plain: dict[str, Any] = _jsonable(dataclasses.asdict(self))
        return plain


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, dt.date):
        return value.isoformat()
    return value
