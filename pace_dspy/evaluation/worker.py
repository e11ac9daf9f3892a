"""What one worker of a spread run does: builds program, models and indexes itself, and returns rows. No Ray here. Ours.

A worker gets plain data only. Keys and addresses come from its own environment, and nothing it holds is sent back but
rows and spans. It never sees the run store.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
from dataclasses import dataclass
from typing import Any

import dspy

from pace_dspy.backends.preflight import preflight
from pace_dspy.backends.roles import attach_answer_lm
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import PaceError
from pace_dspy.evaluation.flight import error_of
from pace_dspy.evaluation.plan import RunSettings, make_models
from pace_dspy.evaluation.provenance import versions
from pace_dspy.evaluation.recording import Recording, recorded
from pace_dspy.evaluation.runner import Job, run_one, to_row
from pace_dspy.evaluation.spans import RequestSpans
from pace_dspy.knowledge import cached, default_index_dir
from pace_dspy.methods import make_check, make_program
from pace_dspy.retrieval import KbStore, attach_store, make_embedder
from pace_dspy.types import Case

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker is to build.

    Attributes:
        settings: Of the run; ``index`` is an absolute path or ``None``.
        config: The config, as plain data.
        state: State of a compiled program, ``None`` for an uncompiled one.
        threshold: Calibrated threshold of its answerer.
        trace_share: Share of the requests whose spans are recorded.
    """

    settings: RunSettings
    config: dict[str, Any]
    state: dict[str, Any] | None = None
    threshold: float | None = None
    trace_share: float = 0.0


@dataclass(frozen=True)
class Done:
    """What a worker returns for one request."""

    row: dict[str, Any]
    spans: RequestSpans | None = None


class Worker:
    """One worker. ``start`` once, then ``run`` from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: set[str] = set()

    def where(self) -> dict[str, Any]:
        """Return process id, host and versions of this worker."""
        return {"pid": os.getpid(), "host": platform.node(), "versions": versions()}

    def start(self, spec: WorkerSpec) -> dict[str, Any] | None:
        """Build everything that is the same for all personas.

        Returns:
            ``None``, or the `error_of` what is missing here (a key, an extra, weights, a reachable server).
        """
        try:
            self._start(spec)
        except Exception as exc:  # told to the driver; here nobody reads it
            return _told(exc, "the start")
        return None

    def _start(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._config = config = PaceMakerConfig.model_validate(spec.config)
        self._program = make_program(spec.settings.method, config)
        if spec.state is not None:
            self._program.load_state(spec.state)
        if spec.threshold is not None:
            self._program.answerer.threshold = spec.threshold
        self._lm, answer_lm = make_models(spec.settings, config)
        attach_answer_lm(self._program, answer_lm)
        preflight(self._lm, self._program)
        embedder = cached(make_embedder(spec.settings.embedder))
        self._store = KbStore(spec.settings.index or default_index_dir(), embedder)
        attach_store(self._store)

    def run(self, job: Job, case: Case | None = None) -> Done:
        """Execute one request and return its row; errors are in the row.

        Args:
            job: The request.
            case: Its persona with all facts, needed the first time: the index is opened by its path, or built.
        """
        if case is not None:
            try:
                self._open(case)
            except Exception as exc:  # one persona cannot be opened; the row says why
                return Done(to_row(job.request, None, _told(exc, f"opening {case.case_id}")))
        kept: list[RequestSpans] = []
        share = self._spec.trace_share
        check = recorded(make_check(self._program), Recording(share, kept.append) if share > 0 else None)
        with dspy.context(lm=self._lm):
            row = run_one(check, job)
        return Done(row, kept[0] if kept else None)

    def _open(self, case: Case) -> None:
        with self._lock:
            if case.case_id not in self._opened:
                self._store.build(case.case_id, case.facts, graph_k=self._config.retrieval.graph_k)
                self._opened.add(case.case_id)


def _told(exc: Exception, act: str) -> dict[str, Any]:
    if not isinstance(exc, PaceError):
        logger.exception("%s failed unexpectedly", act)
    return error_of(exc)
