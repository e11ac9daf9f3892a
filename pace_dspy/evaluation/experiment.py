"""A grid of runs from one command: runs in subfolders, an MLflow parent with a child a run, tables, and the report.

Everything is resumable: finished requests are never asked again, finished runs only read.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pace_dspy.errors import BackendError, ConfigError, PaceError, WindowError
from pace_dspy.evaluation.experiment_dry_run import dry_run
from pace_dspy.evaluation.experiment_judge import judge_plan, make_judges
from pace_dspy.evaluation.experiment_options import ExperimentOptions, parse_options
from pace_dspy.evaluation.experiment_tables import CellResult, problem_table, results_table, sweep_tables
from pace_dspy.evaluation.flight import Limits, Outcome
from pace_dspy.evaluation.grid import Cell, Grid, load_grid, make_cells, write_configs
from pace_dspy.evaluation.judge_report import JudgeReport
from pace_dspy.evaluation.plan import NO_BACKEND, Plan, chosen_jobs, prepare, select_data, unfinished
from pace_dspy.evaluation.provenance import git_commit
from pace_dspy.evaluation.run_log import RunLog
from pace_dspy.evaluation.store import write_atomic
from pace_dspy.paths import writable_folder
from pace_dspy.tracking import Tracker

if TYPE_CHECKING:
    from pace_dspy.evaluation.report import Report

MAX_TRAILS_IN_ALL = 400
MAX_RUNS_WITH_TRAILS = 9
"""A report with more trails over all its runs (about 30 kB each) is too heavy; a sweep gets none."""

Show = Callable[[str], None]
Execute = Callable[[Plan, Limits, "RunLog | None"], Outcome]
Extra = Callable[[Sequence[CellResult]], str]
Page = Callable[[Sequence[CellResult], Path, str, int], "Report"]
"""Writes the report on runs: results, the page, where the texts are, and how many trails at most."""


def main(
    script: Path,
    show: Show,
    execute: Execute | None = None,
    extra: Extra | None = None,
    argv: Sequence[str] | None = None,
    page: Page | None = None,
) -> int:
    """Run the experiment of a script in ``experiments/``; returns the exit status.

    Args:
        script: The script; its settings are in ``configs/NAME.toml`` beside it.
        show: Prints results on stdout.
        execute: Runs one plan, for example with a live bar.
        extra: Returns more text about the finished runs.
        argv: Arguments, the process's own by default.
        page: Writes the report; by default one on all runs beside each other.
    """
    try:
        grid = load_grid(script.parent / "configs" / f"{script.stem}.toml")
        options = parse_options(grid, argv)
        cells = plan_cells(grid, options)
        if options.dry_run:
            show(dry_run(cells, options))
            return 0
        return Experiment(grid, options, show, execute or run_plan, page or plain_page).run(cells, extra)
    except PaceError as exc:
        _say(f"error: {exc}")
        return exc.exit_code


def plan_cells(grid: Grid, options: ExperimentOptions) -> list[Cell]:
    """Return the runs that a command asks for.

    Raises:
        ConfigError: None is left, or an unknown config.
    """
    cells: list[Cell] = []
    for entry in options.backends:
        its_own = (*options.base.backend_settings, *entry.settings)
        if entry.backend == NO_BACKEND and len(options.backends) > 1:
            its_own = ()  # --set is for the others
        base = replace(options.base, backend=entry.backend, backend_settings=its_own)
        found, left_out = make_cells(grid, base, configs=options.configs, seeds=options.seeds, backend=entry.label)
        for line in left_out:
            _say(line)
        cells += [cell for cell in found if not options.only or any(text in cell.name for text in options.only)]
    if not cells:
        raise ConfigError(f"experiment {grid.name} has no run for --backend {_labels(options)} and --only")
    return cells


class Experiment:
    """Runs the cells of a grid one after the other.

    Args:
        grid: The experiment.
        options: The command.
        show: Prints results.
        execute: Runs one plan.
        page: Writes the report.
    """

    def __init__(self, grid: Grid, options: ExperimentOptions, show: Show, execute: Execute, page: Page) -> None:
        self.grid, self.options, self.show, self.execute, self.page = grid, options, show, execute, page
        self.tracker = Tracker(options.experiment, on_trouble=_say) if options.track else None
        self.group = f"{grid.name}: {options.base.data} {options.base.part}, {_labels(options)}"
        self.key = f"{self.group} {hashlib.sha256(str(options.out.resolve()).encode()).hexdigest()[:12]}"
        self.judges = make_judges(options.judges, cache=options.base.cache)
        self.started, self.spent_usd = time.monotonic(), 0.0
        self.down: dict[str, str] = {}

    def run(self, cells: Sequence[Cell], extra: Extra | None = None) -> int:
        """Run what is not finished, then print, report and log everything; returns the exit status."""
        written = write_configs(cells, writable_folder(self.options.out) / "configs")
        results: list[CellResult] = []
        for number, cell in enumerate(written, start=1):
            _say(f"[{number}/{len(written)}] {cell.name}")
            results.append(self.run_cell(cell))
            stopped = self._reason_to_stop(results[-1], number == len(written))
            if stopped is not None:
                _say(f"stopped early: {stopped}; start the same command again to continue")
                break
        texts = [results_table(results), sweep_tables(results), extra(results) if extra else "", problem_table(results)]
        text = "\n\n".join(part for part in texts if part)
        self.show(text)
        write_atomic(self.options.out / "results.md", f"# {self.grid.title}\n\n{text}\n")
        self.publish(text, self.report(results))
        n_run = sum(result.outcome is not None for result in results)
        _say(f"{n_run} of {len(written)} runs in {time.monotonic() - self.started:.0f} s: {self.options.out}")
        return _status(results, len(written))

    def run_cell(self, cell: Cell) -> CellResult:
        """Run one cell; an error before its first request is kept in the result and does not stop the others.

        A backend that failed as a whole is not asked again; its finished runs are still read.
        """
        folder = self.options.out / cell.name
        try:
            if cell.backend in self.down and self._unfinished(cell):
                return CellResult(cell, folder, error=self.down[cell.backend])
            plan = prepare(cell.settings, folder, on_note=_say)
        except PaceError as exc:
            _say(f"{cell.name} cannot run: {exc}")
            if _is_of_the_backend(exc, cell):
                self.down[cell.backend] = str(exc)
            return CellResult(cell, folder, error=str(exc))
        log = None
        if self.tracker is not None:
            share = self.options.trace_share
            log = RunLog(
                self.tracker, plan, group=self.key, group_name=self.group, trace_share=share, backend=cell.backend
            )
        outcome = self.execute(plan, self._limits(), log)
        self.spent_usd += outcome.cost_usd
        _say_rounds(outcome)
        judged = self._judge(plan) if self.judges and plan.lm is not None and not outcome.stopped else None
        plan.store.export()
        if log is not None:
            log.finish(outcome)
        rows = plan.store.rows([job.key for job in plan.jobs])
        plan.store.close()
        return CellResult(cell, folder, tuple(rows), outcome, judged=judged)

    def report(self, results: Sequence[CellResult]) -> tuple[Path, ...]:
        """Write the HTML report over all runs with a finished request; returns its files."""
        n_runs = sum(result.has_finished for result in results)
        if not self.options.report or not n_runs:
            return ()
        try:
            trails = MAX_TRAILS_IN_ALL // n_runs if n_runs <= MAX_RUNS_WITH_TRAILS else 0
            made = self.page(results, self.options.out / "report.html", self.options.base.data, trails)
        except (PaceError, ImportError) as exc:
            _say(f"no report: {exc}")
            return ()
        _say(f"report: {made.path}")
        return (made.path, *made.plots)

    def publish(self, text: str, files: Sequence[Path]) -> None:
        """Log table, report and settings with the parent run."""
        tracker = self.tracker
        if tracker is None:
            return
        base = self.options.base
        tags = {"data": base.data, "part": base.part, "commit": git_commit() or "unknown"}
        parent = tracker.group(self.key, self.group, tags)
        if parent is None:
            return
        note = f"{self.grid.title}\n\n{text}"
        tracker.tags(parent, {**tags, "backends": _labels(self.options), "mlflow.note.content": note[:7000]})
        tracker.text(parent, text, "results.md")
        tracker.text(parent, self.grid.model_dump_json(indent=2), "grid.json")
        for path in files:
            tracker.file(parent, path, "report" if path.suffix == ".html" else "report/plots")
        tracker.finish(parent)
        if tracker.trouble is None:
            _say(f"MLflow experiment {tracker.experiment!r}; look at it with `make ui`")

    def _judge(self, plan: Plan) -> JudgeReport | None:
        try:
            judged, outcomes = judge_plan(plan, self.judges, self._limits)
        except PaceError as exc:
            _say(f"not judged: {exc}")
            return None
        self.spent_usd += sum(outcome.cost_usd for outcome in outcomes)
        for outcome in outcomes:
            _say_rounds(outcome)
        return judged

    def _unfinished(self, cell: Cell) -> bool:
        jobs = chosen_jobs(cell.settings, select_data(cell.settings)[0])
        return bool(unfinished(self.options.out / cell.name, jobs))

    def _reason_to_stop(self, result: CellResult, last: bool) -> str | None:
        """Return why no further run is started; a backend that went down stops only its own runs."""
        stopped = result.outcome.stopped if result.outcome is not None else None
        if stopped is not None and (result.outcome is None or result.outcome.interrupted or self._limit_reached()):
            return stopped
        if stopped is not None:
            self.down[result.cell.backend] = stopped
        return None if last else self._limit_reached()

    def _limit_reached(self) -> str | None:
        limits = Limits(self.options.max_usd, self.options.max_minutes)
        return limits.reached(self.spent_usd, time.monotonic() - self.started)

    def _limits(self) -> Limits:
        usd, minutes = self.options.max_usd, self.options.max_minutes
        return Limits(
            None if usd is None else max(usd - self.spent_usd, 0.0),
            None if minutes is None else max(minutes - (time.monotonic() - self.started) / 60, 0.0),
        )


def run_plan(plan: Plan, limits: Limits, log: RunLog | None) -> Outcome:
    """Run a plan without a live bar."""
    return plan.run(limits, log.row if log else None, log.recording if log else None)


def plain_page(results: Sequence[CellResult], page: Path, data: str, max_trails: int) -> Report:
    """Write the report over all runs with a finished request.

    Raises:
        ImportError: Matplotlib or Jinja is not installed.
        ConfigError: See `build_report`.
    """
    from pace_dspy.evaluation.report import build_report

    folders = [result.folder for result in results if result.has_finished]
    return build_report(folders, page, intersect=True, data=data, max_trails=max_trails)


def _is_of_the_backend(exc: PaceError, cell: Cell) -> bool:
    """Return whether an error would meet every run of the backend: not one of a prompt, an embedder, another model."""
    ours = isinstance(exc, BackendError) and exc.backend == cell.settings.backend
    return ours and not isinstance(exc, WindowError)


def _labels(options: ExperimentOptions) -> str:
    return " ".join(entry.label for entry in options.backends)


def _status(results: Sequence[CellResult], planned: int) -> int:
    outcomes = [result.outcome for result in results]
    if any(outcome is not None and outcome.interrupted for outcome in outcomes):
        return 130
    bad = any(outcome is None or outcome.failed or outcome.stopped for outcome in outcomes)
    return 1 if bad or len(results) < planned else 0


def _say_rounds(outcome: Outcome) -> None:
    for its in outcome.rounds:
        _say(f"round {its['number']} waits for replies to {its['requests']} in {its['responses']}")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
