"""One compile in MLflow: a parent run, a child for every candidate. The compile does not know whether it is tracked.

Parent: settings, the dev score by candidate (the candidate's number is the step) and the best so far, dev before and
after, what was spent, what changed, and the program that was kept, loadable from MLflow. Child: its dev score by
request, its instructions and demos as texts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from pace_dspy.artifacts import PROGRAM_NAME
from pace_dspy.evaluation.provenance import git_commit
from pace_dspy.evaluation.store import write_atomic
from pace_dspy.optimization.ledger import Candidate
from pace_dspy.optimization.result import CompileResult, GroupResult
from pace_dspy.optimization.setup import Compilation, identity
from pace_dspy.optimization.snapshot import Snapshot, changes, demo_lines, snapshot
from pace_dspy.tracking import PROGRAM_FOLDER, RUNS_URI, Metric, Tracker

RECORD_NAME = "tracking.json"
"""In the work folder: which tracked runs belong to it, so that a continued compile continues there too."""


@dataclass
class _Record:
    run_id: str
    children: dict[str, str] = field(default_factory=dict)


class CompileLog:
    """Logs one compile run. Without trouble or with it, the compile and its artifact are the same.

    Use it as a context around the run: an error or Ctrl-C ends the tracked run as failed or killed.

    Args:
        tracker: Where to.
        compilation: The run.
    """

    def __init__(self, tracker: Tracker, compilation: Compilation) -> None:
        self.tracker, self.compilation = tracker, compilation
        self.run_id: str | None = None
        self._record = _Record("")
        self._best: dict[str, float] = {}
        same = hashlib.sha256(json.dumps(identity(compilation), sort_keys=True, default=str).encode()).hexdigest()
        self._place = f"{tracker.place}/{tracker.experiment}/{same[:16]}"
        tracker.safely(self._start)

    def __enter__(self) -> CompileLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_id = self.run_id
        if run_id is not None and kind is not None:
            self.tracker.finish(run_id, "FAILED" if issubclass(kind, Exception) else "KILLED")

    def candidate(self, group: str, candidate: Candidate) -> None:
        """Log one candidate as a child run, and its score on the parent's curve; once, however often it is told."""
        run_id = self.run_id
        if run_id is not None:
            self.tracker.safely(lambda: self._candidate(run_id, group, candidate))

    def finish(self, result: CompileResult) -> str | None:
        """Log what came out; returns where the program can be loaded from (``runs:/...``)."""
        run_id = self.run_id
        if run_id is not None:
            self.tracker.safely(lambda: self._finish(run_id, result))
        return f"{RUNS_URI}{run_id}/{PROGRAM_FOLDER}" if run_id and self.tracker.trouble is None else None

    def _start(self) -> None:
        tracker, made = self.tracker, self.compilation
        settings = made.settings
        old = self._records().get(self._place)
        name = f"compile {settings.stages} with {settings.optimizer}, {made.program.config.name}, {settings.backend}"
        tags = {
            "pace.kind": "compile",
            "optimizer": settings.optimizer,
            "stages": settings.stages,
            "config": made.program.config.name,
            "backend": settings.backend,
            "data": made.dataset.name,
            "data_hash": made.data_hash,
            "commit": git_commit() or "unknown",
        }
        self.run_id = run_id = tracker.start(old.run_id if old else None, None, f"{name}, seed {settings.seed}", tags)
        if run_id is None:
            return
        self._record = old if old is not None and old.run_id == run_id else _Record(run_id)
        tracker.params(run_id, _params(made))
        if old is not self._record:
            tracker.text(run_id, json.dumps(identity(made), ensure_ascii=False, indent=2), "settings.json")
            tracker.text(run_id, "\n".join(f"{key}: {line}" for key, line in made.describe().items()), "plan.txt")
            for part in ("train", "dev"):
                tracker.dataset(run_id, made.dataset.name, made.data_hash, part)
            self._keep()

    def _candidate(self, run_id: str, group: str, candidate: Candidate) -> None:
        key = f"{group}/{candidate.number}"
        self._best[group] = max(self._best.get(group, 0.0), candidate.score)
        if key in self._record.children and self.tracker.has(self._record.children[key]):
            return
        tags = {"pace.kind": "candidate", "group": group, "number": str(candidate.number)}
        child = self.tracker.start(None, run_id, f"{group} {candidate.number}", tags)
        if child is None:
            return
        place = _place(group)
        scores: list[Metric] = [("dev/score", candidate.score, 0)]
        scores += [("dev/example_score", score, step) for step, score in enumerate(candidate.scores)]
        self.tracker.metrics(child, scores)
        for path, text in _texts(candidate.state).items():
            self.tracker.text(child, text, path)
        self.tracker.finish(child)
        curve = [(f"dev/{place}", candidate.score), (f"dev_best/{place}", self._best[group])]
        points: list[Metric] = [(metric, value, candidate.number) for metric, value in curve]
        self.tracker.metrics(run_id, points, again=True)
        self._record.children[key] = child
        self._keep()

    def _finish(self, run_id: str, result: CompileResult) -> None:
        metrics = {name: value for group in result.groups for name, value in _group_metrics(group).items()}
        metrics |= {f"spent/{name}": value for name, value in result.spent.items()}
        metrics |= _calibration_metrics(result)
        self.tracker.metrics(run_id, [(name, value, 0) for name, value in metrics.items()], again=True)
        for group in result.groups:
            for candidate in group.candidates:
                child = self._record.children.get(f"{group.name}/{candidate.number}")
                if child is not None:
                    self.tracker.tags(child, {"kept": "yes" if candidate.number == group.chosen else "no"})
        lines = result.to_text()
        note = "\n".join(["| | |", "|---|---|", *(f"| {name} | {line} |" for name, line in lines.items())])
        self.tracker.tags(run_id, {"changed": "yes" if result.changed else "no", "mlflow.note.content": note})
        self.tracker.text(run_id, json.dumps(result.to_dict(), ensure_ascii=False, indent=2), "result.json")
        self.tracker.text(run_id, _changed(snapshot(self.compilation.program), result), "changes.txt")
        self.tracker.program(run_id, result.program.parent)
        self.tracker.finish(run_id)

    def _records(self) -> dict[str, _Record]:
        path = self.compilation.settings.work_folder / RECORD_NAME
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            return {place: _Record(**entry) for place, entry in read.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # none yet, or a damaged one: that costs a second tracked run, never the compile

    def _keep(self) -> None:
        folder = self.compilation.settings.work_folder
        folder.mkdir(parents=True, exist_ok=True)
        records = {**self._records(), self._place: self._record}
        plain = {place: vars(entry) for place, entry in records.items()}
        write_atomic(folder / RECORD_NAME, json.dumps(plain, indent=2) + "\n")


def _params(made: Compilation) -> dict[str, str]:
    plain = identity(made)
    shown = {name: value for name, value in plain.items() if name not in ("split", "data_hash", "models", "weights")}
    lm, prompt_lm = made.lm, made.prompt_lm
    return {
        **{name: str(value) for name, value in shown.items() if value not in (None, [])},
        **{f"weight.{name}": str(value) for name, value in made.settings.weights.model_dump().items()},
        **{f"budget.{name}": str(value) for name, value in vars(made.settings.budget).items() if value is not None},
        "model": lm.label,
        **({} if prompt_lm is None else {"prompt_model": prompt_lm.label}),
        "n_train": str(len(made.sets.train)),
        "n_dev": str(len(made.sets.dev)),
    }


def _texts(state: Snapshot) -> dict[str, str]:
    """Return the artifacts of a candidate: path -> text."""
    found = {}
    for name, part in state.items():
        found[f"instructions/{name}.txt"] = part.instructions + "\n"
        for number, demo in enumerate(part.demos, start=1):
            found[f"demos/{name}.{number}.txt"] = "\n".join(demo_lines(demo)) + "\n"
    return found


def _group_metrics(group: GroupResult) -> dict[str, float]:
    place = _place(group.name)
    values: dict[str, float | None] = {
        f"before/{place}": group.before,
        f"after/{place}": group.after,
        f"by_rank/{place}": group.by_rank,
        f"proposals/{place}": max(0, len(group.candidates) - 1),
        f"unusable_proposals/{place}": sum(group.failed_proposals.values()),
        f"metric_calls/{place}": group.metric_calls,
    }
    for when, scores in (("before", group.decisions_before), ("after", group.decisions_after)):
        values |= {f"{when}_decision/{name}": value for name, value in vars(scores.rates).items() if scores.n}
    return {name: float(value) for name, value in values.items() if value is not None}


def _calibration_metrics(result: CompileResult) -> dict[str, float]:
    if result.calibration is None:
        return {}
    plain: Mapping[str, Any] = result.calibration.to_dict()
    rates = {f"calibration_{when}/{name}": value for when in ("before", "after") for name, value in plain[when].items()}
    return {"calibration/threshold": result.calibration.threshold, **rates}


def _changed(before: Snapshot, result: CompileResult) -> str:
    """Return what the kept program says otherwise than the one before."""
    kept = {name: part for group in result.groups for name, part in group.candidates[group.chosen].state.items()}
    found = changes({name: before[name] for name in kept if name in before}, kept, ("before", PROGRAM_NAME))
    lines = [line for name, diff in found.items() if diff for line in (f"== {name}", *diff, "")]
    return "\n".join(lines) or "no difference\n"


def _place(group: str) -> str:
    """Return a group's name as part of a metric's name."""
    return re.sub(r"[^a-z_]+", "_", group)
