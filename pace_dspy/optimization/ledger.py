"""Every candidate that was scored on the whole dev side, seen through DSPy's callbacks, whatever the optimizer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from pace_dspy.optimization.meter import Meter
from pace_dspy.optimization.snapshot import Snapshot, same, snapshot
from pace_dspy.optimization.stage_programs import StageProgram
from pace_dspy.program import PaceMakerProgram


@dataclass(frozen=True)
class Candidate:
    """One candidate scored on dev.

    Attributes:
        number: 0 is the program as it was; then in order of scoring.
        score: Mean on dev, in [0, 1].
        scores: By example, in dev order.
        state: Instructions and demos.
    """

    number: int
    score: float
    scores: tuple[float, ...]
    state: Snapshot


class Ledger(BaseCallback):
    """Records full evaluations on dev, and the first failure of a program that DSPy would score as 0.

    Args:
        dev: The dev examples.
        meter: Stopped when a program fails.
        on_candidate: Called for each new candidate.
    """

    def __init__(
        self, dev: Sequence[dspy.Example], meter: Meter, on_candidate: Callable[[Candidate], None] | None = None
    ) -> None:
        self.candidates: list[Candidate] = []
        self._dev, self._meter, self._on_candidate = list(dev), meter, on_candidate
        self._running: dict[str, dspy.Module] = {}
        self._programs: set[str] = set()
        self._lock = threading.Lock()

    def add(self, program: dspy.Module, scores: Sequence[float]) -> None:
        """Record a candidate scored on all of dev."""
        with self._lock:
            mean = sum(scores) / len(scores)
            candidate = Candidate(len(self.candidates), mean, tuple(scores), snapshot(program))
            self.candidates.append(candidate)
        if self._on_candidate is not None:
            self._on_candidate(candidate)

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remember whose evaluation on dev begins."""
        devset = inputs.get("devset") or instance.devset
        if len(devset) == len(self._dev) and all(one is other for one, other in zip(devset, self._dev, strict=True)):
            self._running[call_id] = inputs["program"]

    def on_evaluate_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Record the candidate, unless the evaluation broke off."""
        program = self._running.pop(call_id, None)
        if program is None or outputs is None or exception is not None:
            return
        if not any(same(known.state, snapshot(program)) for known in self.candidates):
            self.add(program, [float(score) for _, _, score in outputs.results])

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remember the calls of whole programs."""
        if isinstance(instance, StageProgram | PaceMakerProgram):
            self._programs.add(call_id)

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Stop the run when a program failed: a failure is never a wrong answer."""
        if call_id in self._programs:
            self._programs.discard(call_id)
            if isinstance(exception, Exception):
                self._meter.stop(f"{type(exception).__name__}: {exception}", exception)
