"""Limits that hold at our own boundary: every paid call and every scored example of a compile run passes here.

DSPy's optimizers have soft budgets or none, and turn exceptions of a program into a score of 0. `Stop` is therefore
no ``Exception``: it ends the optimizer at once, and the best candidate so far is kept.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.backends.usage import CallRecord, current_stage, request_log
from pace_dspy.errors import BackendError, ConfigError, ReplyError, WindowError
from pace_dspy.evaluation.store import write_atomic
from pace_dspy.optimization.settings import Budget
from pace_dspy.optimization.snapshot import kept_demos

SPENT_NAME = "spent.json"

T = TypeVar("T")


class Stop(BaseException):
    """Ends an optimizer: the budget is used up, or something failed that would fail again.

    Args:
        reason: One line.
        error: The failure, ``None`` when the budget ended.
    """

    def __init__(self, reason: str, error: Exception | None = None) -> None:
        super().__init__(reason)
        self.reason, self.error = reason, error


class BudgetEnded(ConfigError):
    """The budget ended before a program was scored once on dev."""


class Spent:
    """What a compile run has paid so far, over all its starts. Written to ``spent.json`` after each paid call.

    Args:
        folder: The work folder.
        budget: Minutes and money over all starts.

    Attributes:
        share: Part of the budget, in (0, 1], that may be used up so far; the rest is left for what comes later.
    """

    def __init__(self, folder: Path, budget: Budget) -> None:
        self._path, self._budget, self._lock = folder / SPENT_NAME, budget, threading.Lock()
        before = json.loads(self._path.read_text(encoding="utf-8")) if self._path.is_file() else {}
        self._seconds_before: float = before.get("seconds", 0.0)
        self.share = 1.0
        self._started = time.monotonic()
        self._paused = 0.0
        self.usd: float = before.get("usd", 0.0)
        self.calls: int = before.get("calls", 0)
        self.prompt_tokens: int = before.get("prompt_tokens", 0)
        self.completion_tokens: int = before.get("completion_tokens", 0)

    @property
    def seconds(self) -> float:
        """Wall time of all starts, without what was done in `paused`."""
        return self._seconds_before + time.monotonic() - self._started - self._paused

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of what is done inside: a slow tracking server must not use up the budget."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._paused += time.monotonic() - started

    def add(self, records: Iterable[CallRecord]) -> None:
        """Count paid calls and keep the sums on disk."""
        with self._lock:
            for record in records:
                self.calls += 1
                self.usd += record.cost_usd or 0.0
                self.prompt_tokens += record.prompt_tokens
                self.completion_tokens += record.completion_tokens
            write_atomic(self._path, json.dumps(self.to_dict()) + "\n")

    def reason(self) -> str | None:
        """Return why no further call may be paid, or ``None``."""
        usd, minutes = self._budget.usd, self._budget.minutes
        part = "" if self.share >= 1 else f"{self.share:.0%} of "
        if usd is not None and self.usd >= usd * self.share:
            return f"{part}the budget of ${usd:g} is used up"
        if minutes is not None and self.seconds >= minutes * 60 * self.share:
            return f"{part}the budget of {minutes:g} minutes is used up"
        return None

    def to_dict(self) -> dict[str, float]:
        """Return the sums, JSON-ready."""
        names = ("seconds", "usd", "calls", "prompt_tokens", "completion_tokens")
        return {name: round(getattr(self, name), 6) for name in names}


class Meter:
    """Counts and limits one optimizer run.

    Args:
        spent: Sums of the whole compile run.
        metric_calls: Most examples scored; ``None`` for no limit.
        on_score: Called with the number of examples scored so far, from any thread.
    """

    def __init__(self, spent: Spent, metric_calls: int | None, on_score: Callable[[int], None] | None = None) -> None:
        self.spent, self.limit, self._on_score = spent, metric_calls, on_score
        self.metric_calls = 0
        self.failed_proposals: Counter[str] = Counter()
        self.stopped: Stop | None = None
        self._lock = threading.Lock()

    def stop(self, reason: str, error: Exception | None = None) -> Stop:
        """Note why the run ends (the first reason stays) and return it for raising."""
        with self._lock:
            self.stopped = self.stopped or Stop(reason, error)
            return self.stopped

    def check(self) -> None:
        """Raise when the run has been stopped.

        Raises:
            Stop: It has.
        """
        if self.stopped is not None:
            raise self.stopped

    def before_paid_call(self) -> None:
        """Refuse a call that the budget does not cover.

        Raises:
            Stop: The budget is used up.
        """
        self.check()
        if reason := self.spent.reason():
            raise self.stop(reason)
        if self.limit is not None and self.metric_calls >= self.limit:
            raise self.stop(f"the budget of {self.limit} metric calls is used up")

    def before_score(self) -> None:
        """Count one example to be scored.

        Raises:
            Stop: The budget is used up.
        """
        self.check()
        with self._lock:
            if self.limit is None or self.metric_calls < self.limit:
                self.metric_calls += 1
                if self._on_score is not None:
                    self._on_score(self.metric_calls)
                return
        raise self.stop(f"the budget of {self.limit} metric calls is used up")


class MeteredAdapter(PaceAdapter):
    """The boundary during compiling: short demos, limits, and failures that stop the optimizer.

    Calls outside a stage are the optimizer's own (proposals). An unusable proposal is counted and fails alone; any
    other failure of a backend stops the run, since DSPy would score it as a wrong answer.

    Args:
        meter: Limits of the optimizer run.
    """

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter
        self._in_flight: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def format(self, signature: Any, demos: list[Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the messages, demos cleaned and shortened as they will be saved."""
        messages: list[dict[str, Any]] = super().format(signature, list(kept_demos(signature, demos)), inputs)
        return messages

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask as `PaceAdapter` does; the same question in flight twice (DSPy resubmits slow items) is asked once.

        Raises:
            Stop: The budget is used up, or the backend failed.
            ReplyError: The reply stayed unusable.
        """
        self.meter.check()
        name = json.dumps([lm.kwargs, lm_kwargs, signature.instructions, demos, inputs], default=str, sort_keys=True)
        with self._lock:
            flight = self._in_flight.setdefault(name, threading.Lock())
        proposal = current_stage() is None
        try:
            with flight if getattr(lm, "reply_cache", None) is not None else contextlib.nullcontext():
                return super().__call__(lm, lm_kwargs, signature, demos, inputs)
        except (ReplyError, WindowError) as exc:
            if not proposal and isinstance(exc, WindowError):
                raise self.meter.stop(str(exc), exc) from exc
            if not proposal:
                raise
            self.meter.failed_proposals[type(exc).__name__] += 1
            if "basic_instruction" in inputs and "proposed_instruction" in signature.output_fields:
                return [{"proposed_instruction": inputs["basic_instruction"]}]  # MIPRO has no other way out
            raise
        except BackendError as exc:
            raise self.meter.stop(str(exc), exc) from exc
        finally:
            with self._lock:
                self._in_flight.pop(name, None)

    def _attempt(self, *args: Any, **kwargs: Any) -> Any:
        self.meter.before_paid_call()
        with request_log() as log:
            try:
                return super()._attempt(*args, **kwargs)
            finally:
                self.meter.spent.add(log.calls)


def unstopped(work: Callable[[], T]) -> T:
    """Return what ``work`` returns; a stop outside the optimizer becomes an error.

    Raises:
        PaceError: The failure behind the stop.
        BudgetEnded: The budget ended before the program was scored once.
    """
    try:
        return work()
    except Stop as stop:
        if stop.error is not None:
            raise stop.error from stop
        raise BudgetEnded(f"{stop.reason} before the program was scored once on dev; raise --budget") from stop
