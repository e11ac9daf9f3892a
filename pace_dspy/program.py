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
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError, NoFactsError
from pace_dspy.modules.answerer import Answer
from pace_dspy.modules.choice import (
    make_answerer,
    make_planner,
    make_post_filter,
    make_pre_filter,
    make_second_look,
    make_views,
)
from pace_dspy.retrieval import KbIndex, get_kb
from pace_dspy.steps import clash_notes, look_again, prefilter, search, walk
from pace_dspy.temporal import FIRST_YEAR, LAST_YEAR, annotate_weekdays, readable
from pace_dspy.text import broken_character, is_blank
from pace_dspy.types import Candidate, FusedHit, PoolFact, Task, Trace


class PaceMakerProgram(dspy.Module):
    """Plan, write counter views, retrieve, filter, walk, filter again, answer. Paper: main figure.

    Knowledge bases live in the registry (`pace_dspy.retrieval`) and are looked up by ``kb_id``: copying, saving or
    tracing the program never touches an index or a whole knowledge base.

    Args:
        config: Limits and switches, or the name of a named config; the paper's by default.
    """

    def __init__(self, config: PaceMakerConfig | str | None = None) -> None:
        super().__init__()
        self.config = config_of(config)
        agents = self.config.agents
        self.planner = make_planner(agents)
        self.views = make_views(agents)
        self.pre_filter = make_pre_filter(agents)
        self.second_look = make_second_look(agents)
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
            reply stayed unusable), ``response``, ``evidence`` (ordered ids), ``cited`` (ids, all in the evidence),
            ``trace`` (`pace_dspy.types.Trace`) and ``p_conflict`` (probability of ``conflict`` in [0, 1], ``None``
            unless the answerer measures it).

        Raises:
            NoFactsError: The knowledge base is empty.
            ConfigError: Empty or broken request, date out of range, unknown ``kb_id``, or no language model for a stage
                that needs one.
            BackendError: The backend failed.
        """
        task, kb = make_task(request, reference_date, kb_id, persona), facts_of(kb_id)
        settings, agents, started = self.config.retrieval, self.config.agents, time.perf_counter()
        with request_log() as log:
            cues = self.planner(task)
            views = self.views(task, cues)
            found = search(task, kb, views, settings)
            seeds = self.pre_filter(task, self.show(task, kb, found, agents.pre_filter, seeds_of(found)))
            reached = walk(task, kb, found, seeds, settings)
            if self.second_look is not None:
                reached = look_again(
                    task, kb, reached, self.second_look, self.config, lambda now: self.show(task, kb, now, "model")
                )
            reached = prefilter(task, kb, reached, agents.post_hop_prefilter)
            evidence = self.post_filter(task, self.show(task, kb, reached, agents.post_filter))
            notes = clash_notes(task, kb, evidence) if agents.clash_notes else ()
            answer = self.answerer(task, self.show(task, kb, reached, agents.answerer, as_pool(evidence)), notes)
        trace = replace(reached, cues=cues, evidence=evidence, notes=notes)
        return to_prediction(answer, trace, log, started)

    def show(
        self, task: Task, kb: KbIndex, reached: Trace, reader: str, facts: Sequence[PoolFact] | None = None
    ) -> tuple[Candidate, ...]:
        """Return facts as an agent sees them, best first: those given, or the last pool of the trace, prefiltered.

        Weekdays are written behind dates only for a ``reader`` that is a model; rules need none.
        """
        dated = task.reference_date if self.config.agents.annotate_dates and reader == "model" else None
        return candidates(kb, reached.fused, reached.offered if facts is None else facts, dated)

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


def make_task(request: str, reference_date: dt.date, kb_id: str, persona: str | None = None) -> Task:
    """Return a request with what belongs to it, checked.

    Raises:
        ConfigError: The request is empty, a text holds half a character, or the date is out of range.
    """
    if is_blank(request):
        raise ConfigError("the request is empty; give the text that the user typed")
    for name, text in (("request", request), ("persona", persona or "")):
        if problem := broken_character(text):
            raise ConfigError(f"{name} {text[:80]!r}: {problem}. Type it in UTF-8")
    if not readable(reference_date):
        allowed = f"{FIRST_YEAR}-01-01 to {LAST_YEAR}-12-31"
        raise ConfigError(f"reference date {reference_date.isoformat()} is out of range; allowed: {allowed}")
    return Task(request, reference_date, kb_id, persona)


def config_of(config: PaceMakerConfig | str | None) -> PaceMakerConfig:
    """Return a config itself, the one of that name or file, or the paper's.

    Raises:
        ConfigError: Unknown name, or not a config at all.
    """
    if isinstance(config, str):
        return PaceMakerConfig.load(config)
    if config is not None and not isinstance(config, PaceMakerConfig):
        raise ConfigError(
            f"config must be a PaceMakerConfig or a name ({', '.join(PaceMakerConfig.names())}), "
            f"not {type(config).__name__}"
        )
    return config or PaceMakerConfig()


def seeds_of(found: Trace) -> tuple[PoolFact, ...]:
    """Return the fused list as candidates for the seeds."""
    return as_pool([hit.doc_id for hit in found.fused])


def as_pool(doc_ids: Sequence[str]) -> tuple[PoolFact, ...]:
    """Return ids as facts of hop 0."""
    return tuple(PoolFact(doc_id, 0) for doc_id in doc_ids)


def candidates(
    kb: KbIndex, fused: Sequence[FusedHit], facts: Sequence[PoolFact], dated: dt.date | None = None
) -> tuple[Candidate, ...]:
    """Return facts with their texts and scores, in the order given.

    Args:
        kb: The knowledge base.
        fused: Scores of facts that have none of a PageRank walk.
        facts: The facts.
        dated: When given, explicit dates in the texts get their weekday, dates without a year read near this day.
    """
    scores = {hit.doc_id: hit.score for hit in fused}

    def text(doc_id: str) -> str:
        plain = kb.text(doc_id)
        return plain if dated is None else annotate_weekdays(plain, reference=kb.date(doc_id), near=dated)

    return tuple(
        Candidate(fact.doc_id, text(fact.doc_id), fact.score or scores.get(fact.doc_id, 0.0), fact.hop, fact.restart)
        for fact in facts
    )


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
        decision=answer.decision,
        response=answer.response,
        evidence=trace.evidence,
        cited=answer.cited,
        trace=trace,
        p_conflict=answer.p_conflict,
    )
