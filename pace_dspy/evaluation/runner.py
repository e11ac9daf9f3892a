"""The case runner: one execution and one row a request, everything finished kept at once.

Ours, instead of ``dspy.Evaluate``, which re-submits slow items and scores exceptions as 0.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dspy

from pace_dspy.backends.usage import RequestLog, request_log
from pace_dspy.errors import PaceError, PendingReplyError
from pace_dspy.evaluation.flight import FATAL, Limits, OnRow, Outcome, cost_of, error_of, run_work
from pace_dspy.evaluation.store import Key, RunStore
from pace_dspy.methods import CheckRequest
from pace_dspy.types import Request

__all__ = ["FATAL", "Job", "Limits", "Outcome", "run_jobs", "run_one", "to_row"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One request to run, with its knowledge base and its place in the data."""

    request: Request
    kb_id: str
    persona: str | None
    position: int

    @property
    def key(self) -> Key:
        """``(case_id, query_id)``."""
        return (self.request.case_id, self.request.query_id)


def run_jobs(
    check: CheckRequest,
    jobs: Sequence[Job],
    store: RunStore,
    *,
    concurrency: int = 1,
    limits: Limits | None = None,
    on_row: OnRow | None = None,
) -> Outcome:
    """Run every job that is not finished yet; see `pace_dspy.evaluation.flight.run_work`.

    Args:
        check: The method.
        jobs: What to run, in order.
        store: Where each row is committed as soon as its request ends.
        concurrency: Requests in flight.
        limits: Money and time after which no further request is started.
        on_row: Called in this thread after each commit.

    Returns:
        The outcome.
    """
    return run_work(partial(run_one, check), jobs, store, concurrency=concurrency, limits=limits, on_row=on_row)


def run_one(check: CheckRequest, job: Job) -> dict[str, Any]:
    """Execute one request and return its row; any failure becomes the row's ``error``, never an answer.

    Raises:
        PendingReplyError: A round of the ``batch`` backend must be answered first.
    """
    with request_log() as spent:
        try:
            with dspy.context(disable_history=True):
                prediction = check(job.request, job.kb_id, job.persona)
        except PendingReplyError:
            raise
        except PaceError as exc:
            return to_row(job.request, None, error_of(exc, _cost(spent)))
        except Exception as exc:
            logger.exception("request %s of case %s failed unexpectedly", job.request.query_id, job.request.case_id)
            return to_row(job.request, None, error_of(exc, _cost(spent)))
    return to_row(job.request, prediction, None)


def to_row(request: Request, prediction: dspy.Prediction | None, error: dict[str, Any] | None) -> dict[str, Any]:
    """Return the result row of one request (JSON-ready): all that judges and reports need, without the data."""
    return {
        "case_id": request.case_id,
        "query_id": request.query_id,
        "query": request.query,
        "reference_date": request.reference_date.isoformat(),
        "label": request.label,
        "situation_type": request.situation_type,
        "gold_doc_ids": list(request.gold_doc_ids),
        "judgment": request.judgment,
        "evidence": list(prediction.evidence) if prediction else [],
        "cited": list(prediction.cited) if prediction else [],
        "decision": prediction.decision if prediction else None,
        "response": prediction.response if prediction else None,
        "trace": prediction.trace.to_dict() if prediction else None,
        "error": error,
    }


def _cost(spent: RequestLog) -> float:
    return cost_of([dataclasses.asdict(stage) for stage in spent.usage()])
