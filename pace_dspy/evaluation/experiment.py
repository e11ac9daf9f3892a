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

from pace_dspy.errors import ConfigError, PaceError
from pace_dspy.evaluation.estimate import StageEstimate, estimate, measure
from pace_dspy.evaluation.experiment_judge import judge_plan, make_judges
from pace_dspy.evaluation.experiment_options import ExperimentOptions, parse_options
from pace_dspy.evaluation.experiment_tables import CellResult, estimate_table, results_table, sweep_tables
from pace_dspy.evaluation.flight import Limits, Outcome
from pace_dspy.evaluation.grid import Cell, Grid, load_grid, make_cells, write_configs
from pace_dspy.evaluation.judge_report import JudgeReport
from pace_dspy.evaluation.plan import Plan, chosen_jobs, prepare, select_data
from pace_dspy.evaluation.provenance import git_commit
from pace_dspy.evaluation.run_log import RunLog
from pace_dspy.evaluation.store import MANIFEST_NAME, RunStore, write_atomic
from pace_dspy.tracking import Tracker

MAX_TRAILS_IN_ALL = 400
MAX_RUNS_WITH_TRAILS = 9
"""A report with more trails over all its runs (about 30 kB each) is too heavy; a sweep gets none."""

Show = Callable[[str], None]
Execute = Callable[[Plan, Limits, "RunLog | None"], Outcome]
Extra = Callable[[Sequence[CellResult]], str]


def main(
    script: Path,
    show: Show,
    execute: Execute | None = None,
    extra: Extra | None = None,
    argv: Sequence[str] | None = None,
) -> int:
    """Run the experiment of a script in ``experiments/``; returns the exit status.

    Args:
        script: The script; its settings are in ``configs/NAME.toml`` beside it.
        show: Prints results on stdout.
        execute: Runs one plan, for example with a live bar.
        extra: Returns more text about the finished runs.
        argv: Arguments, the process's own by default.
    """
    try:
        grid = load_grid(script.parent / "configs" / f"{script.stem}.toml")
        options = parse_options(grid, argv)
        cells = plan_cells(grid, options)
        if options.dry_run:
            show(dry_run(cells, options))
            return 0
        return Experiment(grid, options, show, execute or run_plan).run(cells, extra)
    except PaceError as exc:
        _say(f"error: {exc}")
        return exc.exit_code


def plan_cells(grid: Grid, options: ExperimentOptions) -> list[Cell]:
    """Return the runs that a command asks for.

    Raises:
        ConfigError: None is left, or an unknown config.
    """
    cells: list[Cell] = []
    for backend in options.backends:
        base = replace(options.base, backend=backend)
        found, left_out = make_cells(grid, base, configs=options.configs, seeds=options.seeds)
        for line in left_out:
            _say(line)
        cells += [cell for cell in found if not options.only or any(text in cell.name for text in options.only)]
    if not cells:
        raise ConfigError(f"experiment {grid.name} has no run for --backend {' '.join(options.backends)} and --only")
    return cells


def dry_run(cells: Sequence[Cell], options: ExperimentOptions) -> str:
    """Return what the runs will take, and how that was estimated; nothing is asked, embedded or spent.

    A run folder of ``--measured``, or one already begun, gives measured means instead of assumed ones.
    """
    dataset, _ = select_data(options.base)
    shared = _measured(options.measured)
    lines, measured_stages = [], 0
    for cell in cells:
        jobs = chosen_jobs(cell.settings, dataset)
        folder = options.out / cell.name
        begun = (folder / MANIFEST_NAME).is_file()
        own = shared | _measured([folder] if begun else [])
        done = RunStore(folder).finished() if begun else set()
        left = [job.request for job in jobs if job.key not in done]
        one = estimate(cell, left, dataset, own, judges=options.judges)
        measured_stages += sum(how == "measured" for how in one.basis.values())
        lines.append((cell, one))
    return "\n".join(
        [
            estimate_table(lines),
            "",
            "How: stages that ask a model x requests not finished yet; tokens = characters / 4: a fixed part measured "
            "on PACE-mini, plus the facts shown, at this data's mean length; written tokens assumed; price from the "
            "backend's profile, without prefix cache (an upper bound); time from the profile's slots, "
            "87 read / 35 written tokens a second for the embedded model on 2 cores, 0.8 s a call and 80 written "
            "tokens a second elsewhere.",
            f"{measured_stages} stages from measured means of runs (--measured, or begun runs), the rest assumed."
            if measured_stages
            else "No run measured yet: give --measured RUN to use its means.",
        ]
    )


class Experiment:
    """Runs the cells of a grid one after the other.

    Args:
        grid: The experiment.
        options: The command.
        show: Prints results.
        execute: Runs one plan.
    """

    def __init__(self, grid: Grid, options: ExperimentOptions, show: Show, execute: Execute) -> None:
        self.grid, self.options, self.show, self.execute = grid, options, show, execute
        self.tracker = Tracker(options.experiment, on_trouble=_say) if options.track else None
        self.group = f"{grid.name}: {options.base.data} {options.base.part}, {' '.join(options.backends)}"
        self.key = f"{self.group} {hashlib.sha256(str(options.out.resolve()).encode()).hexdigest()[:12]}"
        self.judges = make_judges(options.judges, cache=options.base.cache)
        self.started, self.spent_usd = time.monotonic(), 0.0

    def run(self, cells: Sequence[Cell], extra: Extra | None = None) -> int:
        """Run what is not finished, then print, report and log everything; returns the exit status."""
        written = write_configs(cells, self.options.out / "configs")
        results: list[CellResult] = []
        for number, cell in enumerate(written, start=1):
            _say(f"[{number}/{len(written)}] {cell.name}")
            results.append(self.run_cell(cell))
            outcome = results[-1].outcome
            stopped = outcome.stopped if outcome is not None else None
            if stopped is None and number < len(written):
                stopped = self._limit_reached()
            if stopped is not None:
                _say(f"stopped early: {stopped}; start the same command again to continue")
                break
        texts = [results_table(results), sweep_tables(results), extra(results) if extra else ""]
        text = "\n\n".join(part for part in texts if part)
        self.show(text)
        write_atomic(self.options.out / "results.md", f"# {self.grid.title}\n\n{text}\n")
        self.publish(text, self.report(results))
        _say(f"{len(results)} of {len(written)} runs in {time.monotonic() - self.started:.0f} s: {self.options.out}")
        return _status(results, len(written))

    def run_cell(self, cell: Cell) -> CellResult:
        """Run one cell; an error before its first request is kept in the result and does not stop the others."""
        folder = self.options.out / cell.name
        try:
            plan = prepare(cell.settings, folder, on_note=_say)
        except PaceError as exc:
            _say(f"{cell.name} cannot run: {exc}")
            return CellResult(cell, folder, error=str(exc))
        log = None
        if self.tracker is not None:
            share = self.options.trace_share
            log = RunLog(self.tracker, plan, group=self.key, group_name=self.group, trace_share=share)
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
        folders = [result.folder for result in results if any(row["error"] is None for row in result.rows)]
        if not self.options.report or not folders:
            return ()
        try:
            from pace_dspy.evaluation.report import build_report
        except ImportError as exc:
            _say(f"no report: {exc}")
            return ()
        try:
            page = self.options.out / "report.html"
            trails = MAX_TRAILS_IN_ALL // len(folders) if len(folders) <= MAX_RUNS_WITH_TRAILS else 0
            made = build_report(folders, page, intersect=True, data=self.options.base.data, max_trails=trails)
        except PaceError as exc:
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
        tracker.tags(parent, {**tags, "backends": " ".join(self.options.backends), "mlflow.note.content": note[:7000]})
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


def _measured(folders: Sequence[Path]) -> dict[str, StageEstimate]:
    rows = [row for folder in folders for row in RunStore(folder).rows()]
    return measure(rows)


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
