"""The flags that all experiments share, so that the same command runs on mini with a local model and on PACE."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pace_dspy.backends.overrides import parse_own_settings
from pace_dspy.evaluation.entries import BackendEntry, distinct, entries_of, parse_entry
from pace_dspy.evaluation.flight import Limits
from pace_dspy.evaluation.grid import Grid
from pace_dspy.evaluation.plan import EXECUTORS, RunSettings


@dataclass(frozen=True)
class ExperimentOptions:
    """What a user asked of an experiment; see ``--help`` of any script in ``experiments/``."""

    base: RunSettings
    backends: tuple[BackendEntry, ...]
    configs: tuple[str, ...]
    seeds: tuple[int, ...]
    only: tuple[str, ...]
    out: Path
    dry_run: bool
    track: bool
    experiment: str
    trace_share: float
    max_usd: float | None
    max_minutes: float | None
    measured: tuple[Path, ...]
    judges: tuple[BackendEntry, ...]
    report: bool


def parse_options(grid: Grid, argv: Sequence[str] | None = None) -> ExperimentOptions:
    """Read the command line of an experiment.

    Args:
        grid: The experiment; names the defaults.
        argv: Arguments, the process's own by default.

    Raises:
        ConfigError: An unknown backend or setting, or a limit that is none.
    """
    parser = _parser(grid)
    given = parser.parse_args(argv)
    if given.second_judge and not given.judge_backend:
        parser.error("--second-judge needs --judge-backend")
    if given.judge_set and not given.judge_backend:
        parser.error("--judge-set needs --judge-backend")
    if given.second_judge_set and not given.second_judge:
        parser.error("--second-judge-set needs --second-judge")
    if not 0 <= given.trace_share <= 1:
        parser.error(f"--trace-share must be between 0 and 1, received {given.trace_share}")
    Limits(given.max_usd, given.max_minutes)
    for flag in ("--limit", "--sample", "--workers", "--concurrency"):
        count = getattr(given, flag[2:])
        if count is not None and count < 1:
            parser.error(f"{flag} must be at least 1, received {count}")
    base = RunSettings(
        data=given.data,
        answer_backend=given.answer_backend,
        backend_settings=tuple(given.set),
        cases=tuple(given.case),
        limit=given.limit,
        sample=given.sample,
        split_file=given.split_file,
        part=given.part,
        concurrency=given.concurrency,
        embedder=given.embedder,
        index=given.index,
        cache=given.cache,
        executor=given.executor,
        workers=given.workers,
    )
    data = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in Path(given.data).name)
    return ExperimentOptions(
        base=base,
        backends=_backends(grid, given.backend or []),
        configs=tuple(given.config),
        seeds=tuple(dict.fromkeys(given.seed or [0])),
        only=tuple(given.only),
        out=given.out or Path("artifacts") / "runs" / f"{grid.name}-{data}-{given.part}",
        dry_run=given.dry_run,
        track=given.track,
        experiment=given.experiment or grid.name,
        trace_share=given.trace_share,
        max_usd=given.max_usd,
        max_minutes=given.max_minutes,
        measured=tuple(given.measured),
        judges=(
            *_judge(given.judge_backend, given.judge_set, "--judge-set"),
            *_judge(given.second_judge, given.second_judge_set, "--second-judge-set"),
        ),
        report=given.report,
    )


def _backends(grid: Grid, given: Sequence[str]) -> tuple[BackendEntry, ...]:
    if given or not grid.backends:
        return distinct([parse_entry(text) for text in given or ["local"]])
    return distinct(entries_of(grid.backends, f"experiment {grid.name}"))


def _judge(backend: str | None, settings: Sequence[str], source: str) -> tuple[BackendEntry, ...]:
    if backend is None:
        return ()
    return (BackendEntry(backend, tuple(f"{k}={v}" for k, v in parse_own_settings(settings, source).items())),)


def _parser(grid: Grid) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"{grid.title}. Start it again to continue after any stop.")
    add = parser.add_argument
    add("--data", default="mini", help="mini, a folder in a PACE layout, or p2chp2t/pace (default: mini)")
    add("--split-file", type=Path, help="split by persona; mini brings its own")
    add("--part", default="all", help="all, train, dev or test (default: all)")
    several = "profile, profile:KEY=VALUE,KEY=VALUE with settings of its own (name=NAME to call it so), or none"
    default = ", ".join(entry.label for entry in _backends(grid, ()))
    add("--backend", action="append", help=f"{several}; may be repeated (default: {default})")
    add("--answer-backend", help="another backend for the answerer")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a field of every --backend's profile")
    add("--config", action="append", default=[], help="named config or file in place of paper; may be repeated")
    add("--only", action="append", default=[], metavar="TEXT", help="only runs whose name holds TEXT")
    add("--case", action="append", default=[], help="only this persona; may be repeated")
    add("--limit", type=int, help="only the first N requests")
    add("--sample", type=int, help="only N requests, spread evenly over personas and labels")
    add("--seed", type=int, action="append", help="may be repeated (default: 0)")
    add("--embedder", default=RunSettings.embedder, help="minilm, st:NAME or openai:MODEL@BASE_URL")
    add("--index", type=Path, help="folder of stored indexes (default: the user's cache folder)")
    add("--concurrency", type=int, help="requests in flight (default: the backend's slots)")
    add("--executor", choices=EXECUTORS, default=RunSettings.executor, help="where requests run (default: threads)")
    add("--workers", type=int, help="workers of --executor ray (default: one a CPU; backend local: one a machine)")
    add("--out", type=Path, help="folder of the runs; runs of other experiments in it are reused")
    add("--judge-backend", help="judge every answer with this backend")
    add("--judge-set", action="append", default=[], metavar="KEY=VALUE", help="change a field of the judge's profile")
    add("--second-judge", help="another judge, for the agreement")
    add("--second-judge-set", action="append", default=[], metavar="KEY=VALUE", help="the same for the second judge")
    add("--max-usd", type=float, help="stop after this much money")
    add("--max-minutes", type=float, help="stop after this long")
    add("--measured", type=Path, action="append", default=[], metavar="RUN", help="run folder to estimate from")
    add("--dry-run", action="store_true", help="print calls, tokens, price and time expected, and stop")
    add("--experiment", help=f"MLflow experiment (default: {grid.name})")
    add("--trace-share", type=float, default=0.1, help="share of requests whose DSPy trace is logged (default: 0.1)")
    add("--no-track", dest="track", action="store_false", help="do not log to MLflow")
    add("--no-cache", dest="cache", action="store_false", help="ask anew instead of reusing validated replies")
    add("--no-report", dest="report", action="store_false", help="write no HTML report")
    return parser
