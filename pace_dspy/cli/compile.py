"""``pace-dspy compile``: tune the prompts with a DSPy optimizer, inside a budget; stopped runs continue."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.backends.preflight import preflight
from pace_dspy.cli.compile_progress import compile_progress
from pace_dspy.cli.live import with_weights
from pace_dspy.cli.options import (
    AsJson,
    BackendSettings,
    Config,
    Data,
    EmbedderSpec,
    IndexDir,
    ModelBackend,
    ProgramFile,
    SplitFile,
    a_path,
)
from pace_dspy.cli.output import emit_json, say
from pace_dspy.cli.render import print_summary
from pace_dspy.cli.run import DEFAULT_EXPERIMENT
from pace_dspy.optimization import (
    NO_OPTIMIZER,
    OPTIMIZERS,
    STAGE_CHOICES,
    Budget,
    CompileLog,
    CompileSettings,
    prepare,
)
from pace_dspy.optimization import run as run_compilation
from pace_dspy.optimization.settings import OptimizerName
from pace_dspy.tracking import Tracker

_OPTIMIZER_HELP = f"{', '.join(OPTIMIZERS)}; {NO_OPTIMIZER} with --calibrate fits the threshold alone."
_STAGES_HELP = f"{', '.join(STAGE_CHOICES)}; other predictors stay as they are."
_BUDGET_HELP = "300calls (examples scored), 45min or 2usd; may be repeated, all hold."


def compile_(
    out: Annotated[
        Path,
        typer.Option(
            "--out", parser=a_path, metavar="PATH", help="Artifact folder, for example artifacts/compiled/NAME."
        ),
    ],
    optimizer: Annotated[str, typer.Option("--optimizer", help=_OPTIMIZER_HELP)],
    data: Data = "mini",
    stages: Annotated[str, typer.Option("--stages", help=_STAGES_HELP)] = "answerer",
    end_to_end: Annotated[
        bool, typer.Option("--end-to-end", help="Score whole requests instead of one stage on frozen inputs.")
    ] = False,
    backend: ModelBackend = "local",
    prompt_backend: Annotated[
        str | None, typer.Option("--prompt-backend", help="Backend that proposes; --backend by default.")
    ] = None,
    backend_settings: BackendSettings = None,
    config: Config = "paper",
    split_file: SplitFile = None,
    budget: Annotated[list[str] | None, typer.Option("--budget", help=_BUDGET_HELP)] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Examples in flight.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed of every draw.")] = 0,
    program: ProgramFile = None,
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--recorded", parser=a_path, metavar="PATH", help="Run folder whose candidate lists the filters learn on."
        ),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit the answerer's decision threshold on dev afterwards.")
    ] = False,
    refusal_cost: Annotated[
        float | None,
        typer.Option("--refusal-cost", help="Cost of refusing a fine request, obeying a bad one costs 1."),
    ] = None,
    distractors: Annotated[int, typer.Option("--distractors", min=0, help="Facts beside the gold ones.")] = 6,
    max_demos: Annotated[int, typer.Option("--max-demos", min=1, help="Most demos a predictor gets.")] = 3,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only N requests of train and of dev.")] = None,
    embedder: EmbedderSpec = "minilm",
    index: IndexDir = None,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            parser=a_path,
            metavar="PATH",
            help="Replies and spending.",
            show_default="artifacts/runs/compile-NAME",
        ),
    ] = None,
    track: Annotated[
        bool | None,
        typer.Option("--track/--no-track", help="Log to MLflow.", show_default="on with --experiment, else off"),
    ] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help=f"MLflow experiment; {DEFAULT_EXPERIMENT} with --track alone.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, print the cost, stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile the program on train, choose on dev, and save it with its manifest; the same command continues."""
    name: OptimizerName = optimizer  # type: ignore[assignment]  # checked with everything else
    settings = CompileSettings(
        optimizer=name,
        data=data,
        out=out,
        stages=stages,
        backend=backend,
        prompt_backend=prompt_backend,
        config=config,
        split_file=split_file,
        budget=Budget.parse(tuple(budget or ())),
        threads=threads,
        seed=seed,
        program=program,
        end_to_end=end_to_end,
        recorded=recorded,
        calibrate=calibrate,
        refusal_cost=refusal_cost,
        n_distractors=distractors,
        max_demos=max_demos,
        limit=limit,
        embedder=embedder,
        index=index,
        work=work,
        backend_settings=tuple(backend_settings or ()),
    )
    with with_weights():
        compilation = prepare(settings, on_note=say)
        plan = compilation.describe()
        if dry_run:
            emit_json(plan) if as_json else print_summary("compile, dry run", plan)
            return
        for label, line in plan.items():
            say(f"{label}: {line}")
        preflight(compilation.lm, compilation.program)
        log = None
        if track or (track is None and experiment is not None):
            log = CompileLog(Tracker(experiment or DEFAULT_EXPERIMENT, on_trouble=say), compilation)
        with log or nullcontext(), compile_progress(compilation, log.candidate if log else None) as watch:
            result = run_compilation(compilation, watch)
    tracked = log.finish(result) if log else None
    if tracked:
        say(f"logged to MLflow; the program is {tracked} (--program takes it)")
    if as_json:
        emit_json({**result.to_dict(), "tracked": tracked})
    else:
        print_summary(f"{optimizer} on {stages}, config {config}, backend {backend}", result.to_text())
