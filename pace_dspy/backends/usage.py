"""What one request cost: every model call, fallback and trimming, collected at our own boundary.

DSPy's usage tracker loses calls made in worker threads; this log lives in a context variable that
`PaceMakerProgram.forward` opens, so it is per request and per thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from pace_dspy.types import Fallback, Stage, StageUsage, Trim


@dataclass(frozen=True)
class CallRecord:
    """One model call (or one reply taken from our cache).

    Attributes:
        stage: The stage that asked; ``None`` outside a stage.
        backend: Profile name.
        prompt_tokens: Tokens read by the backend, 0 for a reply from our cache.
        prompt_cached_tokens: Part of ``prompt_tokens`` served by the backend's prefix cache.
        completion_tokens: Tokens written.
        latency_ms: Wall time.
        from_cache: True when our reply cache answered and nothing was sent.
        repair: True for the second attempt after an unusable reply.
        cost_usd: Price by the profile's table, ``None`` when the profile has no price.
    """

    stage: Stage | None
    backend: str
    prompt_tokens: int = 0
    prompt_cached_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: float = 0.0
    from_cache: bool = False
    repair: bool = False
    cost_usd: float | None = None


@dataclass
class RequestLog:
    """Mutable log of one request; read it through `usage`."""

    calls: list[CallRecord] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    trims: list[Trim] = field(default_factory=list)
    retries: list[Stage] = field(default_factory=list)

    def usage(self) -> tuple[StageUsage, ...]:
        """Return the calls summed by stage, in order of first call."""
        stages: dict[Stage, list[CallRecord]] = {}
        for call in self.calls:
            if call.stage is not None:
                stages.setdefault(call.stage, []).append(call)
        return tuple(_sum(stage, calls, self.retries.count(stage)) for stage, calls in stages.items())


_log: ContextVar[RequestLog | None] = ContextVar("pace_dspy_request_log", default=None)
_stage: ContextVar[Stage | None] = ContextVar("pace_dspy_stage", default=None)
_watch: ContextVar[Callable[[Stage], None] | None] = ContextVar("pace_dspy_watch", default=None)


@contextmanager
def request_log() -> Iterator[RequestLog]:
    """Open a log for one request; calls made inside (in this thread) are recorded in it, and in one opened around it.

    The outer log keeps what a request spent that failed and so has no trace.
    """
    log, outer = RequestLog(), _log.get()
    token = _log.set(log)
    try:
        yield log
    finally:
        _log.reset(token)
        if outer is not None:
            outer.calls.extend(log.calls)
            outer.retries.extend(log.retries)


@contextmanager
def stage_scope(stage: Stage) -> Iterator[None]:
    """Mark the calls made inside as belonging to ``stage``."""
    token = _stage.set(stage)
    watch = _watch.get()
    if watch is not None:
        watch(stage)
    try:
        yield
    finally:
        _stage.reset(token)


@contextmanager
def watching(watch: Callable[[Stage], None]) -> Iterator[None]:
    """Call ``watch`` with the name of each stage that begins inside, for live progress."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def current_stage() -> Stage | None:
    """Return the stage whose code is running, or ``None``."""
    return _stage.get()


def record_call(record: CallRecord) -> None:
    """Add a call to the open log; without one this does nothing."""
    log = _log.get()
    if log is not None:
        log.calls.append(record)


def record_retry() -> None:
    """Note that the running stage's call is made again after a failure that can pass."""
    log, stage = _log.get(), _stage.get()
    if log is not None and stage is not None:
        log.retries.append(stage)


def record_fallback(stage: Stage, reason: str) -> None:
    """Note that ``stage`` used its defined result because its model call failed for good."""
    log = _log.get()
    if log is not None:
        log.fallbacks.append(Fallback(stage, reason))


def record_trim(stage: Stage, offered: int, shown: int) -> None:
    """Note that only ``shown`` of ``offered`` candidates fit the prompt budget."""
    log = _log.get()
    if log is not None:
        log.trims.append(Trim(stage, offered, shown))


def _sum(stage: Stage, calls: list[CallRecord], retries: int) -> StageUsage:
    sent = [call for call in calls if not call.from_cache]
    costs = [call.cost_usd for call in sent if call.cost_usd is not None]
    return StageUsage(
        stage=stage,
        calls=len(sent),
        cached_calls=len(calls) - len(sent),
        repairs=sum(call.repair for call in sent),
        prompt_tokens=sum(call.prompt_tokens for call in sent),
        prompt_cached_tokens=sum(call.prompt_cached_tokens for call in sent),
        completion_tokens=sum(call.completion_tokens for call in sent),
        latency_ms=sum(call.latency_ms for call in sent),
        cost_usd=sum(costs) if costs else None,
        retries=retries,
    )
