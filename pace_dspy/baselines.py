"""The paper's baselines as programs with the same answerer: sparse, dense, hybrid, full KB, oracle."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import dspy

from pace_dspy.backends.usage import request_log
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.modules.choice import make_answerer
from pace_dspy.program import as_pool, candidates, config_of, facts_of, make_task, to_prediction
from pace_dspy.retrieval import KbIndex
from pace_dspy.steps import search
from pace_dspy.types import Task, Trace, View, ViewHits

Baseline = Literal["sparse", "dense", "hybrid", "full-kb", "oracle"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)


class BaselineProgram(dspy.Module):
    """One retrieval baseline followed by the answerer.

    ``sparse`` and ``dense`` give the first facts of one retriever for the request itself, ``hybrid`` those of the
    fused list, ``oracle`` the gold facts, ``full-kb`` every fact (nearest to the request first, so that trimming to
    the window drops the farthest).

    Args:
        method: Which baseline.
        config: Limits; planner, views, filters and walk are not used.

    Raises:
        ConfigError: Unknown baseline.
    """

    def __init__(self, method: Baseline, config: PaceMakerConfig | str | None = None) -> None:
        super().__init__()
        if method not in BASELINES:
            raise ConfigError(f"unknown baseline {method!r}; baselines: {', '.join(BASELINES)}")
        self.method = method
        self.config = config_of(config)
        self.answerer = make_answerer(self.config.agents)

    def forward(
        self,
        request: str,
        reference_date: dt.date,
        kb_id: str,
        persona: str | None = None,
        gold_doc_ids: Sequence[str] = (),
    ) -> dspy.Prediction:
        """Check one request; same result fields and errors as `PaceMakerProgram.forward`.

        Args:
            request: The request as typed.
            reference_date: The day it is made.
            kb_id: A registered knowledge base.
            persona: The user's name.
            gold_doc_ids: The decisive facts; only ``oracle`` looks at them.
        """
        task, kb = make_task(request, reference_date, kb_id, persona), facts_of(kb_id)
        started = time.perf_counter()
        with request_log() as log:
            found = self.retrieve(task, kb)
            evidence = self.pick(kb, found, gold_doc_ids)
            answer = self.answerer(task, candidates(kb, found.fused, as_pool(evidence)))
        shown = log.trims[-1].shown if log.trims else len(evidence)
        hits = () if self.method == "full-kb" else found.hits
        trace = replace(found, hits=hits, evidence=tuple(evidence[:shown]))
        return to_prediction(answer, trace, log, started)

    def retrieve(self, task: Task, kb: KbIndex) -> Trace:
        """Search with the request itself and keep only what this baseline looks at, so that its funnel is its own."""
        if self.method == "oracle":
            return Trace(kb.kb_id, task.reference_date)
        depth = len(kb) if self.method == "full-kb" else self.config.agents.evidence
        settings = self.config.retrieval.without_channels().model_copy(update={"top_k_per_view": depth})
        found = search(task, kb, (View("original", task.request),), settings)
        if self.method == "hybrid":
            return found
        both = found.hits[0]
        used = ViewHits((), both.sparse) if self.method == "sparse" else ViewHits(both.dense, ())
        return replace(found, hits=(used,), fused=())

    def pick(self, kb: KbIndex, found: Trace, gold_doc_ids: Sequence[str]) -> list[str]:
        """Return the evidence ids of this baseline, best first."""
        keep = self.config.agents.evidence
        if self.method == "oracle":
            return list(dict.fromkeys(gold_doc_ids))
        if self.method == "hybrid":
            return [hit.doc_id for hit in found.fused[:keep]]
        if self.method == "sparse":
            return [hit.doc_id for hit in found.hits[0].sparse[:keep]]
        ranked = [hit.doc_id for hit in found.hits[0].dense]
        return ranked if self.method == "full-kb" else ranked[:keep]
