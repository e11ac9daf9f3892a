"""The workers of a spread run, seen from the driver: a lost one is replaced, and what it had is run again. Ours.

Only the driver writes the run store, one row a request, so a request that is run twice is still in it once.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from pace_dspy.errors import PaceError, WorkerLostError, WorkerStartError
from pace_dspy.evaluation.flight import error_of
from pace_dspy.evaluation.recording import Recording
from pace_dspy.evaluation.runner import Job, to_row
from pace_dspy.evaluation.worker import Done
from pace_dspy.types import Case

ATTEMPTS = 3
"""Workers that one request may lose before it is a failed request: it may be what ends them. Ours."""


class RemoteWorker(Protocol):
    """A started worker. Safe for threads."""

    name: str
    """For messages, such as ``pid 812 on HOST``."""

    def run(self, job: Job, case: Case | None) -> Done:
        """Execute one request; see `pace_dspy.evaluation.worker.Worker.run`.

        Raises:
            WorkerLostError: The worker ended or cannot be reached.
        """
        ...

    def stop(self) -> None:
        """End it; nothing to do for one that is gone."""
        ...


class Crew:
    """Workers by number; use as a context manager, which ends them.

    Args:
        hire: Starts a worker; called from several threads.
        n_workers: How many.
        cases: The personas, by ``case_id``; sent to a worker that has not opened them.
        recording: Who gets the spans.
        on_note: Told, in one sentence, who was lost and what happens now.

    Raises:
        PaceError: A worker could not be started.
    """

    def __init__(
        self,
        hire: Callable[[], RemoteWorker],
        n_workers: int,
        cases: Mapping[str, Case],
        recording: Recording | None,
        on_note: Callable[[str], None],
    ) -> None:
        self._hire, self._cases, self._recording, self._note = hire, cases, recording, on_note
        self._lock = threading.Lock()
        with ThreadPoolExecutor(n_workers) as pool:
            self._workers: list[RemoteWorker] = list(pool.map(lambda _: hire(), range(n_workers)))
        self._opened: set[tuple[int, str]] = set()
        self._closed = False

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        for worker in self._workers:
            worker.stop()

    @property
    def names(self) -> Sequence[str]:
        """Names of the workers, by number."""
        return [worker.name for worker in self._workers]

    def run(self, number: int, job: Job) -> dict[str, Any]:
        """Return the row of a request, executed by worker ``number`` or, when that is lost, by the one after it."""
        for _ in range(ATTEMPTS):
            worker = self._workers[number]
            try:
                done = self._run_on(worker, job)
            except WorkerLostError as exc:
                lost = exc
            else:
                if done.spans is not None and self._recording is not None:
                    self._recording.keep(done.spans)
                return done.row
            try:
                self._replace(worker, lost)
            except PaceError as exc:
                return to_row(job.request, None, error_of(exc))
        lost = WorkerLostError(f"{ATTEMPTS} workers were lost with this request; last: {lost}")
        return to_row(job.request, None, error_of(lost))

    def _run_on(self, worker: RemoteWorker, job: Job) -> Done:
        case_id = job.request.case_id
        opened = (id(worker), case_id)
        case = None if opened in self._opened else dataclasses.replace(self._cases[case_id], requests=())
        done = worker.run(job, case)
        if done.row["error"] is None:
            self._opened.add(opened)
        return done

    def _replace(self, lost: RemoteWorker, why: WorkerLostError) -> None:
        """Put another worker in the place of a lost one: a new one, else one that is still there."""
        with self._lock:
            if self._closed:
                raise WorkerLostError("the run was abandoned")
            if lost not in self._workers:
                return  # another of its requests was faster
            self._opened = {opened for opened in self._opened if opened[0] != id(lost)}
            lost.stop()
            others = [worker for worker in self._workers if worker is not lost]
            try:
                new = self._hire()
                note = f"{new.name} takes its place"
            except PaceError as exc:
                if not others:
                    raise WorkerStartError(f"the last worker was lost ({why}) and cannot be replaced: {exc}") from exc
                new = others[0]
                note = f"no other can be started ({exc}), so {new.name} does its work too"
            self._workers = [new if worker is lost else worker for worker in self._workers]
        self._note(f"worker {lost.name} was lost ({why}): {note}; its requests in flight are run again")
