"""One tracked run from its first request to its last number. The run itself does not know whether it is tracked."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pace_dspy.evaluation.plan import Plan
from pace_dspy.evaluation.recording import Recording
from pace_dspy.evaluation.run_card import (
    description,
    overall_metrics,
    persona_metrics,
    request_table,
    rows_digest,
    run_card,
)
from pace_dspy.evaluation.runner import Outcome
from pace_dspy.evaluation.spans import RequestSpans
from pace_dspy.evaluation.store import MANIFEST_NAME, RESULTS_NAME, write_atomic
from pace_dspy.program import PaceMakerProgram
from pace_dspy.tracking import Tracker

RECORD_NAME = "tracking.json"
"""In the run folder: which tracked run belongs to it, so that a continued run continues there too."""
PROGRESS_EVERY_S = 10.0


@dataclass
class _Record:
    run_id: str
    digest: str = ""


class RunLog:
    """Logs one run. Without trouble or with it, the run and its folder are the same.

    Args:
        tracker: Where to.
        plan: The run; its store may hold rows of earlier starts.
        group: Key of the parent run, for example the experiment's name.
        group_name: Name of the parent run, its key by default.
        trace_share: Share of the requests whose DSPy trace is logged, in [0, 1]; chosen by request id.
        backend: How the backend is called; its profile's name by default.
    """

    def __init__(
        self,
        tracker: Tracker,
        plan: Plan,
        *,
        group: str,
        group_name: str | None = None,
        trace_share: float = 0.0,
        backend: str | None = None,
    ) -> None:
        self.tracker, self.plan, self.group, self.trace_share = tracker, plan, group, trace_share
        self.group_name, self.backend = group_name or group, backend
        self.run_id: str | None = None
        self._place = f"{tracker.place}/{tracker.experiment}/{group}"
        self._parent: str | None = None
        self._complete = False
        self._old: _Record | None = None
        self._recorded: list[RequestSpans] = []
        self._lock = threading.Lock()
        self._last_progress = time.monotonic()
        tracker.safely(self._start)

    @property
    def recording(self) -> Recording | None:
        """Which requests get their spans recorded; ``None`` for none."""
        if self.run_id is None or self.trace_share <= 0:
            return None
        return Recording(self.trace_share, self._take)

    def row(self, row: dict[str, Any] | None, outcome: Outcome) -> None:
        """Log what is new after a request: its trace, and now and then how far the run is."""
        run_id = self.run_id
        if run_id is not None:
            self.tracker.safely(lambda: self._log_progress(run_id, outcome))

    def finish(self, outcome: Outcome, files: Sequence[Path] = ()) -> str | None:
        """Log all numbers and files of the run, unless they are there already; returns the tracked run's id.

        Args:
            outcome: How the run ended.
            files: More artifacts, such as a report.
        """
        run_id = self.run_id
        if run_id is not None:
            self.tracker.safely(lambda: self._finish(run_id, outcome, files))
        return run_id if self.tracker.trouble is None else None

    def _start(self) -> None:
        tracker, plan = self.tracker, self.plan
        self._old = _read_records(plan.store.folder).get(self._place)
        if self._old is not None and self._nothing_left(self._old) and tracker.has(self._old.run_id):
            self.run_id, self._complete = self._old.run_id, True
            return
        card = run_card(plan.store.manifest, self.backend)
        tags = {**card.tags, "n_requests": str(len(plan.jobs)), "trace_share": str(self.trace_share)}
        self._parent = tracker.group(self.group, self.group_name, {"commit": card.tags["commit"]})
        self.run_id = run_id = tracker.start(self._old.run_id if self._old else None, self._parent, card.name, tags)
        if run_id is None:
            return
        tracker.params(run_id, card.params)
        if self._old is None or self._old.run_id != run_id:
            self._old = None
            self._keep(_Record(run_id))
            for name, text in card.long_params.items():
                tracker.text(run_id, text, f"params/{name}.txt")
            self._log_program(run_id)
            tracker.dataset(run_id, card.tags["data"], card.tags["data_hash"], card.tags["part"])

    def _nothing_left(self, old: _Record) -> bool:
        keys = [job.key for job in self.plan.jobs]
        return set(keys) <= self.plan.store.finished() and old.digest == rows_digest(self.plan.store.rows(keys))

    def _log_progress(self, run_id: str, outcome: Outcome) -> None:
        self._log_spans(run_id)
        if time.monotonic() - self._last_progress >= PROGRESS_EVERY_S:
            self._last_progress = time.monotonic()
            done = outcome.skipped + outcome.done
            progress = [("progress/done", float(done), done), ("progress/failed", float(outcome.failed), done)]
            self.tracker.metrics(run_id, [*progress, ("progress/cost_usd", outcome.cost_usd, done)])

    def _finish(self, run_id: str, outcome: Outcome, files: Sequence[Path]) -> None:
        self._log_spans(run_id)
        rows = self.plan.store.rows([job.key for job in self.plan.jobs])
        digest = rows_digest(rows)
        for path in files:
            self.tracker.file(run_id, path, "report")
        if self._complete and self._old is not None and self._old.digest == digest:
            return  # everything is there; an end time of now would be wrong
        self._log_rows(run_id, rows, outcome)
        folder = self.plan.store.folder
        for path in (folder / MANIFEST_NAME, folder / RESULTS_NAME):
            if path.is_file():
                self.tracker.file(run_id, path)
        self.tracker.finish(run_id, "KILLED" if outcome.stopped else "FINISHED")
        if self._parent is not None:
            self.tracker.finish(self._parent)
        if self.tracker.trouble is None:
            self._keep(_Record(run_id, digest))

    def _log_rows(self, run_id: str, rows: list[dict[str, Any]], outcome: Outcome) -> None:
        personas = persona_metrics(rows)
        metrics = [(name, value, 0) for name, value in overall_metrics(rows).items()]
        metrics += [(name, value, step) for step, (_, values) in enumerate(personas) for name, value in values.items()]
        if outcome.done or outcome.failed:
            metrics.append(("time/wall_seconds", outcome.seconds, 0))
        self.tracker.metrics(run_id, metrics, again=self._old is not None)
        self.tracker.tags(run_id, {"stopped": outcome.stopped or "no", "mlflow.note.content": description(rows)})
        steps = {str(step): case_id for step, (case_id, _) in enumerate(personas)}
        self.tracker.text(run_id, json.dumps(steps, indent=2), "steps.json")
        self.tracker.table(run_id, request_table(rows), "requests.json")

    def _take(self, spans: RequestSpans) -> None:
        with self._lock:
            self._recorded.append(spans)

    def _log_spans(self, run_id: str) -> None:
        with self._lock:
            waiting, self._recorded = self._recorded, []
        for spans in waiting:
            request = spans.request
            tags = {"case_id": request.case_id, "query_id": request.query_id, "label": request.label or "unknown"}
            manifest = self.plan.store.manifest
            tags |= {"method": manifest.method, "config": str(manifest.config.get("name"))}
            self.tracker.trace(run_id, spans, tags)

    def _log_program(self, run_id: str) -> None:
        program = self.plan.program
        config = json.dumps(self.plan.config.model_dump(mode="json"), indent=2)
        self.tracker.text(run_id, config, "config.json")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.json"
            if isinstance(program, PaceMakerProgram):
                program.save(path)
            else:
                state = {name: {**part, "lm": None} for name, part in program.dump_state().items()}
                path.write_text(json.dumps(state, ensure_ascii=False, indent=2), encoding="utf-8")
            self.tracker.file(run_id, path, "program")

    def _keep(self, record: _Record) -> None:
        folder = self.plan.store.folder
        records = {**_read_records(folder), self._place: record}
        plain = {place: vars(entry) for place, entry in records.items()}
        write_atomic(folder / RECORD_NAME, json.dumps(plain, indent=2) + "\n")


def _read_records(folder: Path) -> dict[str, _Record]:
    path = folder / RECORD_NAME
    if not path.is_file():
        return {}
    try:
        return {place: _Record(**entry) for place, entry in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # a damaged record costs a second tracked run, never the run itself
