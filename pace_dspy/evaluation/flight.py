"""N pieces of work in flight, each executed once and committed the moment it ends. Ours.

Requests of a run and verdicts of a judge go through the same loop: skip what is finished, keep ``concurrency`` pieces
running, commit every row at once, stop early in an orderly way (limits, Ctrl-C, an error that would meet every further
piece, a backend that is down).
"""

from __future__ import annotations

import contextvars
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

from pace_dspy.errors import (
    AuthError,
    BackendTimeoutError,
    ConfigError,
    MissingExtraError,
    MissingKeyError,
    PendingReplyError,
    QuotaError,
    RateLimitError,
    ServerError,
    WorkerStartError,
)
from pace_dspy.evaluation.queues import InOrder, Queue, W
from pace_dspy.evaluation.scores import Key

logger = logging.getLogger(__name__)

FATAL = (AuthError, QuotaError, MissingKeyError, MissingExtraError, ConfigError, WorkerStartError)
"""Errors that would meet every further request: the run stops, nothing more is spent, and it can be continued."""

OUTAGE = tuple(kind.__name__ for kind in (BackendTimeoutError, ServerError, RateLimitError))
"""Kinds of error that mean the backend is down or refuses work."""

OUTAGE_LIMIT = 20
"""Outage errors in a row after which no further request is started. Ours."""

INTERRUPTED = "interrupted; run the same command again to continue"


class Sink(Protocol):
    """Where rows are committed, one by one. A row's ``error`` is ``None`` when its work ended well."""

    def finished(self) -> set[Key]:
        """Return the keys whose work ended well; they are not done again."""
        ...

    def put(self, row: dict[str, Any], position: int) -> None:
        """Commit one row; an earlier row of the same key is replaced."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep other processes from doing the same work meanwhile."""
        ...


@dataclass(frozen=True)
class Limits:
    """When to stop early. Money is counted from the profile's prices; unknown prices count as zero.

    Raises:
        ConfigError: Money or time is below zero or no number: a limit that nothing reaches.
    """

    max_usd: float | None = None
    max_minutes: float | None = None
    max_outages: int | None = OUTAGE_LIMIT

    def __post_init__(self) -> None:
        """Refuse what is no limit."""
        for option, value in (("--max-usd", self.max_usd), ("--max-minutes", self.max_minutes)):
            if value is not None and not value >= 0:
                raise ConfigError(f"{option} must be 0 or more, received {value}")

    def reached(self, cost_usd: float, seconds: float) -> str | None:
        """Return which limit this money or time reaches, ``None`` when neither."""
        if self.max_usd is not None and cost_usd >= self.max_usd:
            return f"reached --max-usd {self.max_usd}"
        if self.max_minutes is not None and seconds >= self.max_minutes * 60:
            return f"reached --max-minutes {self.max_minutes}"
        return None


@dataclass
class Outcome:
    """How a start ended.

    Attributes:
        planned: Pieces of work asked for.
        skipped: Of these, finished in an earlier start.
        done: Finished now without error.
        failed: Ended with an error now.
        paused: Neither: a prompt of theirs waits in a round of the ``batch`` backend.
        stopped: Why it ended early, ``None`` when it did not.
        interrupted: It was stopped by Ctrl-C or SIGTERM.
        seconds: Wall time of this start.
        cost_usd: Money spent now, by the profile's prices, failed work included.
        failures: Failures now, by the kind of their error.
        notes: What the answered rounds of the ``batch`` backend held, a line each.
        rounds: Its rounds that must be answered next (`pace_dspy.batch.folder.OpenRound`, as dictionaries).
    """

    planned: int
    skipped: int = 0
    done: int = 0
    failed: int = 0
    paused: int = 0
    stopped: str | None = None
    interrupted: bool = False
    seconds: float = 0.0
    cost_usd: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ended(self) -> int:
        """Pieces that need no more attention in this start, for progress bars."""
        return self.skipped + self.done + self.failed + self.paused


OnRow = Callable[["dict[str, Any] | None", Outcome], None]


def run_work(
    execute: Callable[[W], dict[str, Any]],
    work: Sequence[W],
    sink: Sink,
    *,
    concurrency: int = 1,
    limits: Limits | None = None,
    on_row: OnRow | None = None,
    line_up: Callable[[Sequence[W]], Queue[W]] | None = None,
) -> Outcome:
    """Do every piece of work that is not finished yet.

    Args:
        execute: Does one piece and returns its row; errors are in the row, never raised, but for
            `PendingReplyError`: the piece is then paused, and nothing is committed.
        work: What to do, in order.
        sink: Where each row is committed as soon as it is there.
        concurrency: Pieces in flight.
        limits: Money and time after which nothing more is started.
        on_row: Called in this thread after each commit, and with ``None`` for each paused piece.
        line_up: Makes the queue of what is not finished; by default it is done in order.

    Returns:
        The outcome. A first Ctrl-C (or SIGTERM) stops starting work and waits for what is in flight.

    Raises:
        KeyboardInterrupt: On a second Ctrl-C; what is in flight is abandoned, what is committed stays.
        ConfigError: ``concurrency`` below 1, or another process does the same work.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1, received {concurrency}")
    limits, started = limits or Limits(), time.monotonic()
    with sink.exclusive():
        finished = sink.finished()
        todo = [piece for piece in work if piece.key not in finished]
        queue: Queue[W] = InOrder(todo, concurrency) if line_up is None else line_up(todo)
        outcome = Outcome(planned=len(work), skipped=len(work) - len(todo))
        outage = 0
        with _pool(concurrency) as pool, _stopping_on_signals(outcome):
            for piece, row in _in_flight(pool, execute, queue, outcome):
                if row is not None:
                    sink.put(row, piece.position)
                _count(outcome, row)
                outage = outage + 1 if _kind(row) in OUTAGE else 0
                outcome.seconds = time.monotonic() - started
                outcome.stopped = outcome.stopped or _reason_to_stop(outcome, row, limits, outage, len(queue))
                if on_row is not None:
                    on_row(row, outcome)
        outcome.seconds = time.monotonic() - started
    return outcome


def error_of(exc: Exception, cost_usd: float = 0.0) -> dict[str, Any]:
    """Return the ``error`` field of a row.

    Args:
        exc: What happened.
        cost_usd: Money spent before it happened.
    """
    return {
        "kind": type(exc).__name__,
        "message": str(exc),
        "fatal": isinstance(exc, FATAL),
        "cost_usd": cost_usd,
    }


def cost_of(usage: Sequence[Mapping[str, Any]]) -> float:
    """Return the money of some `StageUsage` dictionaries; unknown prices count as zero."""
    return sum(stage["cost_usd"] or 0.0 for stage in usage)


def usage_of(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the model usage of a row: that of its trace, or its own."""
    found: Sequence[Mapping[str, Any]] = (row.get("trace") or row).get("usage") or ()
    return found


@contextmanager
def _pool(concurrency: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that is waited for when all is well, and left alone when something was raised."""
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="pace-run")
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _in_flight(
    pool: ThreadPoolExecutor,
    execute: Callable[[W], dict[str, Any]],
    queue: Queue[W],
    outcome: Outcome,
) -> Iterator[tuple[W, dict[str, Any] | None]]:
    """Keep running what the queue lets start, and yield each piece with its row as it ends, ``None`` when paused."""
    running: dict[Future[dict[str, Any]], W] = {}
    while True:
        while outcome.stopped is None and (piece := queue.take()) is not None:
            running[pool.submit(contextvars.copy_context().run, execute, piece)] = piece
        if not running:
            return
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            piece = running.pop(future)
            queue.ended(piece)
            yield piece, _row_of(future)


def _row_of(future: Future[dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return future.result()
    except PendingReplyError:
        return None


@contextmanager
def _stopping_on_signals(outcome: Outcome) -> Iterator[None]:
    """Turn the first Ctrl-C or SIGTERM into an orderly stop; a handler can only be set in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if outcome.interrupted:
            raise KeyboardInterrupt
        outcome.interrupted = True
        outcome.stopped = outcome.stopped or INTERRUPTED
        logger.warning("stopping: waiting for the requests in flight (again to abandon them; finished work is kept)")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _kind(row: Mapping[str, Any] | None) -> str | None:
    return None if row is None or row["error"] is None else str(row["error"]["kind"])


def _count(outcome: Outcome, row: Mapping[str, Any] | None) -> None:
    if row is None:
        outcome.paused += 1
        return
    outcome.cost_usd += cost_of(usage_of(row))
    kind = _kind(row)
    if kind is None:
        outcome.done += 1
        return
    outcome.failed += 1
    outcome.failures[kind] = outcome.failures.get(kind, 0) + 1
    outcome.cost_usd += row["error"].get("cost_usd") or 0.0


def _reason_to_stop(
    outcome: Outcome, row: Mapping[str, Any] | None, limits: Limits, outage: int, left: int
) -> str | None:
    """Return why nothing more is started; ``left`` pieces are not started yet, and without any no limit stops."""
    if row is not None and row["error"] is not None:
        if row["error"]["fatal"]:
            return str(row["error"]["message"])
        if limits.max_outages is not None and outage >= limits.max_outages:
            return f"the backend failed {outage} times in a row; last: {row['error']['message']}"
    return limits.reached(outcome.cost_usd, outcome.seconds) if left else None
