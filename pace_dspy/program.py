"""PaceMaker as one DSPy program: each step of the paper's main figure, in its order."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy

from pace_dspy.backends.usage import RequestLog, request_log
from pace_dspy.config import PaceMakerConfig, RetrievalConfig
from pace_dspy.errors import ConfigError, NoFactsError
from pace_dspy.modules.answerer import Answer
from pace_dspy.modules.choice import make_answerer, make_planner, make_post_filter, make_pre_filter, make_views
from pace_dspy.retrieval import KbIndex, fuse_views, get_kb
from pace_dspy.types import Candidate, FusedHit, PoolFact, Task, Trace, View


class PaceMakerProgram(dspy.Module):
    """Plan, write counter views, retrieve, filter, walk, filter again, answer. Paper: main figure.

    Knowledge bases live in the registry (`pace_dspy.retrieval`) and are looked up by ``kb_id``: copying, saving or
    tracing the program never touches an index or a whole knowledge base.

    Args:
        config: Limits and switches; the paper's by default.
    """

    def __init__(self, config: PaceMakerConfig | None = None) -> None:
        super().__init__()
        self.config = config or PaceMakerConfig()
        agents = self.config.agents
        self.planner = make_planner(agents)
        self.views = make_views(agents)
        self.pre_filter = make_pre_filter(agents)
        self.post_filter = make_post_filter(agents)
        self.answerer = make_answerer(agents)

    def forward(self, request: str, reference_date: dt.date, kb_id: str, persona: str | None = None) -> dspy.Prediction:
        """Check one request against one knowledge base.

        Args:
            request: The request as typed.
            reference_date: The day it is made; relative dates are resolved against it, never against the clock.
            kb_id: A registered knowledge base.
            persona: The user's name.

        Returns:
            A prediction with ``decision`` (``conflict`` / ``non_conflict``, ``None`` when the answerer is off or its
            reply stayed unusable), ``response``, ``evidence`` (ordered ids), ``cited`` (ids, all in the evidence)
            and ``trace`` (`pace_dspy.types.Trace`).

        Raises:
            NoFactsError: The knowledge base is empty.
            ConfigError: Empty request, unknown ``kb_id``, or no language model for a stage that needs one.
            BackendError: The backend failed.
        """
        task, kb = Task(checked(request), reference_date, kb_id, persona), facts_of(kb_id)
        started = time.perf_counter()
        with request_log() as log:
            cues = self.planner(task)
            views = self.views(task, cues)
            found = retrieve(kb, views, self.config.retrieval)
            seeds = self.pre_filter(task, candidates(kb, found.fused))
            reached = walk(kb, found, seeds, self.config.retrieval)
            evidence = self.post_filter(task, candidates(kb, found.fused, reached.pool))
            answer = self.answerer(task, candidates(kb, found.fused, [PoolFact(doc_id, 0) for doc_id in evidence]))
        trace = replace(reached, reference_date=reference_date, cues=cues, evidence=evidence)
        return to_prediction(answer, trace, log, started)

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return instructions and demos of every predictor; models are attached from a profile, never saved."""
        state: dict[str, Any] = super().dump_state(json_mode=json_mode)
        return {name: {**part, "lm": None} for name, part in state.items()}

    def save(self, path: str | Path, save_program: bool = False, modules_to_serialize: Any = None) -> None:
        """Save the state as DSPy JSON.

        Raises:
            ConfigError: Asked for a pickle: there is none anywhere in this project.
        """
        if save_program or Path(path).suffix != ".json":
            raise ConfigError(f"a program is saved as JSON state; give a path that ends in .json, not {str(path)!r}")
        super().save(path)


def retrieve(kb: KbIndex, views: Sequence[View], settings: RetrievalConfig) -> Trace:
    """Search every view with every retriever and fuse. Paper: hybrid retrieval, weighted RRF.

    Returns:
        A trace with views, hits and the fused list.
    """
    started = time.perf_counter()
    hits = tuple(kb.search(views, settings.top_k_per_view))
    weights = {"original": settings.weight_original, "counter": settings.weight_counter}
    fused = fuse_views(views, hits, weights=weights, k=settings.rrf_k, top_k=settings.fused_top_k)
    spent_ms = (time.perf_counter() - started) * 1000
    return Trace(kb.kb_id, dt.date.min, views=tuple(views), hits=hits, fused=tuple(fused), retrieval_ms=spent_ms)


def walk(kb: KbIndex, found: Trace, seeds: Sequence[str], settings: RetrievalConfig) -> Trace:
    """Walk the neighbour graph from the seeds, breadth first. Paper: multi-hop traversal.

    Returns:
        ``found`` with seeds and pool (seeds first, then facts in the order they were reached).
    """
    started = time.perf_counter()
    reached = kb.graph.expand(list(seeds), settings.max_hops, settings.neighbors_per_hop)
    pool = tuple(PoolFact(doc_id, hop) for doc_id, hop in zip(reached.doc_ids, reached.hops, strict=True))
    spent_ms = found.retrieval_ms + (time.perf_counter() - started) * 1000
    return replace(found, seeds=tuple(seeds), pool=pool, retrieval_ms=spent_ms)


def checked(request: str) -> str:
    """Return the request unless it is empty.

    Raises:
        ConfigError: It is.
    """
    if not request.strip():
        raise ConfigError("the request is empty; give the text that the user typed")
    return request


def candidates(kb: KbIndex, fused: Sequence[FusedHit], pool: Sequence[PoolFact] | None = None) -> tuple[Candidate, ...]:
    """Return facts with text, fused score and hop, in the order of ``pool`` (of ``fused`` without one)."""
    scores = {hit.doc_id: hit.score for hit in fused}
    facts = [PoolFact(hit.doc_id, 0) for hit in fused] if pool is None else pool
    return tuple(Candidate(fact.doc_id, kb.text(fact.doc_id), scores.get(fact.doc_id, 0.0), fact.hop) for fact in facts)


def facts_of(kb_id: str) -> KbIndex:
    """Return a registered knowledge base that holds at least one fact.

    Raises:
        NoFactsError: It is empty: a decision without facts would be invented.
        ConfigError: Unknown ``kb_id``.
    """
    kb = get_kb(kb_id)
    if len(kb) == 0:
        raise NoFactsError(f"knowledge base {kb_id!r} has no facts, so no decision is made. Add facts and ask again")
    return kb


def to_prediction(answer: Answer, trace: Trace, log: RequestLog, started: float) -> dspy.Prediction:
    """Join the answer and the finished trace (usage, fallbacks, trimming, time) into one prediction."""
    trace = replace(
        trace,
        fallbacks=tuple(log.fallbacks),
        trims=tuple(log.trims),
        usage=log.usage(),
        total_ms=(time.perf_counter() - started) * 1000,
    )
    return dspy.Prediction(
        decision=answer.decision, response=answer.response, evidence=trace.evidence, cited=answer.cited, trace=trace
    )
