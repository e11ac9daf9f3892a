"""The case runner: N requests in flight, one execution and one row a request, everything finished kept at once.

Ours, instead of ``dspy.Evaluate``, which re-submits slow items and scores exceptions as 0.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import dspy

from pace_dspy.errors import AuthError, ConfigError, MissingExtraError, MissingKeyError, PaceError, QuotaError
from pace_dspy.evaluation.store import Key, RunStore
from pace_dspy.methods import CheckRequest
from pace_dspy.types import Request

logger = logging.getLogger(__name__)

FATAL = (AuthError, QuotaError, MissingKeyError, MissingExtraError, ConfigError)
"""Errors that would meet every further request: the run stops, nothing more is spent, and it can be continued."""


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


@dataclass(frozen=True)
class Limits:
    """When to stop early. Money is counted from the profile's prices; unknown prices count as zero."""

    max_usd: float | None = None
    max_minutes: float | None = None


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        planned: Requests asked for.
        skipped: Of these, finished in an earlier start.
        done: Finished now without error.
        failed: Ended with an error now.
        stopped: Why the run ended early, ``None`` when it did not.
        seconds: Wall time of this start.
        cost_usd: Money spent now, by the profile's prices.
    """

    planned: int
    skipped: int = 0
    done: int = 0
    failed: int = 0
    stopped: str | None = None
    seconds: float = 0.0
    cost_usd: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)


def run_jobs(
    check: CheckRequest,
    jobs: Sequence[Job],
    store: RunStore,
    *,
    concurrency: int = 1,
    limits: Limits | None = None,
    on_row: Callable[[dict[str, Any], Outcome], None] | None = None,
) -> Outcome:
    """Run every job that is not finished yet.

    Args:
        check: The method.
        jobs: What to run, in order.
        store: Where each row is committed as soon as its request ends.
        concurrency: Requests in flight.
        limits: Money and time after which no further request is started.
        on_row: Called in this thread after each commit.

    Returns:
        The outcome. A first Ctrl-C stops starting requests and waits for those in flight; a second one is raised.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1, received {concurrency}")
    limits, started = limits or Limits(), time.monotonic()
    finished = store.finished()
    todo = iter([job for job in jobs if job.key not in finished])
    outcome = Outcome(planned=len(jobs), skipped=sum(job.key in finished for job in jobs))
    with ThreadPoolExecutor(concurrency, thread_name_prefix="pace-run") as pool:
        running: dict[Future[dict[str, Any]], Job] = {}
        for future in _in_flight(pool, check, todo, running, concurrency, outcome):
            job = running.pop(future)
            row = future.result()
            store.put(row, job.position)
            _count(outcome, row)
            outcome.seconds = time.monotonic() - started
            _stop_if_due(outcome, row, limits)
            if on_row is not None:
                on_row(row, outcome)
    outcome.seconds = time.monotonic() - started
    return outcome


def _in_flight(
    pool: ThreadPoolExecutor,
    check: CheckRequest,
    todo: Iterator[Job],
    running: dict[Future[dict[str, Any]], Job],
    concurrency: int,
    outcome: Outcome,
) -> Iterator[Future[dict[str, Any]]]:
    """Keep ``concurrency`` jobs running and yield each future as it ends."""
    interrupted = threading.Event()
    while True:
        while outcome.stopped is None and len(running) < concurrency and (job := next(todo, None)) is not None:
            context = contextvars.copy_context()
            running[pool.submit(context.run, run_one, check, job)] = job
        if not running:
            return
        try:
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
        except KeyboardInterrupt:
            if interrupted.is_set():
                raise
            interrupted.set()
            outcome.stopped = "interrupted; run the same command again to continue"
            continue
        yield from ended


def run_one(check: CheckRequest, job: Job) -> dict[str, Any]:
    """Execute one request and return its row; any failure becomes the row's ``error``, never an answer."""
    try:
        with dspy.context(disable_history=True):
            prediction = check(job.request, job.kb_id, job.persona)
    except PaceError as exc:
        return to_row(job.request, None, {"kind": type(exc).__name__, "message": str(exc), "fatal": _fatal(exc)})
    except Exception as exc:
        logger.exception("request %s of case %s failed unexpectedly", job.request.query_id, job.request.case_id)
        return to_row(job.request, None, {"kind": type(exc).__name__, "message": str(exc), "fatal": False})
    return to_row(job.request, prediction, None)


def to_row(request: Request, prediction: dspy.Prediction | None, error: dict[str, Any] | None) -> dict[str, Any]:
    """Return the result row of one request (JSON-ready)."""
    return {
        "case_id": request.case_id,
        "query_id": request.query_id,
        "label": request.label,
        "situation_type": request.situation_type,
        "gold_doc_ids": list(request.gold_doc_ids),
        "evidence": list(prediction.evidence) if prediction else [],
        "cited": list(prediction.cited) if prediction else [],
        "decision": prediction.decision if prediction else None,
        "response": prediction.response if prediction else None,
        "trace": prediction.trace.to_dict() if prediction else None,
        "error": error,
    }


def _fatal(exc: Exception) -> bool:
    return isinstance(exc, FATAL)


def _count(outcome: Outcome, row: dict[str, Any]) -> None:
    if row["error"] is not None:
        outcome.failed += 1
        kind = row["error"]["kind"]
        outcome.failures[kind] = outcome.failures.get(kind, 0) + 1
        return
    outcome.done += 1
    outcome.cost_usd += sum(stage["cost_usd"] or 0.0 for stage in row["trace"]["usage"])


def _stop_if_due(outcome: Outcome, row: dict[str, Any], limits: Limits) -> None:
    if outcome.stopped is not None:
        return
    if row["error"] is not None and row["error"]["fatal"]:
        outcome.stopped = row["error"]["message"]
    elif limits.max_usd is not None and outcome.cost_usd >= limits.max_usd:
        outcome.stopped = f"reached --max-usd {limits.max_usd}"
    elif limits.max_minutes is not None and outcome.seconds >= limits.max_minutes * 60:
        outcome.stopped = f"reached --max-minutes {limits.max_minutes}"
