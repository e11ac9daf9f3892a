"""``pace-dspy run``: any method on any dataset, resumable, one row a request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pace_dspy.cli.live import with_weights
from pace_dspy.cli.options import (
    AnswerBackend,
    AsJson,
    Backend,
    BackendSettings,
    BatchDir,
    Config,
    Data,
    EmbedderSpec,
    IndexDir,
    ProgramFile,
    SplitFile,
    a_path,
)
from pace_dspy.cli.output import abandon, counting, emit_json, say
from pace_dspy.cli.render import print_summary
from pace_dspy.cli.rounds import show_rounds
from pace_dspy.evaluation.plan import Plan, RunSettings, prepare
from pace_dspy.evaluation.run_log import RunLog
from pace_dspy.evaluation.runner import Limits, Outcome
from pace_dspy.evaluation.summary import summarise
from pace_dspy.methods import METHODS
from pace_dspy.paths import writable_folder
from pace_dspy.tracking import Tracker

DEFAULT_EXPERIMENT = "pace-dspy"


def run(
    data: Data,
    out: Annotated[
        Path,
        typer.Option("--out", parser=a_path, metavar="PATH", help="Run folder; the same folder continues the run."),
    ],
    method: Annotated[str, typer.Option("--method", help=f"One of: {', '.join(METHODS)}.")] = ("pacemaker"),
    backend: Backend = "local",
    answer_backend: AnswerBackend = None,
    backend_settings: BackendSettings = None,
    case: Annotated[list[str] | None, typer.Option("--case", help="Only this persona; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N requests.")] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Only N requests, spread evenly over personas and labels.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed recorded with the run and sent where supported.")] = 0,
    config: Config = "paper",
    split_file: SplitFile = None,
    part: Annotated[str, typer.Option("--part", help="all, train, dev or test.")] = "all",
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Requests in flight; the backend's slots by default.")
    ] = None,
    executor: Annotated[
        str,
        typer.Option("--executor", help="threads, or ray: workers of a Ray cluster ($RAY_ADDRESS, else made here)."),
    ] = "threads",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Ray workers; one a CPU by default (local: one a machine).")
    ] = None,
    embedder: EmbedderSpec = "minilm",
    index: IndexDir = None,
    program: ProgramFile = None,
    max_usd: Annotated[float | None, typer.Option("--max-usd", min=0, help="Stop after this much money.")] = None,
    max_minutes: Annotated[float | None, typer.Option("--max-minutes", min=0, help="Stop after this long.")] = None,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Reuse validated replies.")] = True,
    track: Annotated[
        bool | None,
        typer.Option("--track/--no-track", help="Log to MLflow.", show_default="on with --experiment, else off"),
    ] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help=f"MLflow experiment; {DEFAULT_EXPERIMENT} with --track alone.")
    ] = None,
    trace_share: Annotated[
        float, typer.Option("--trace-share", min=0, max=1, help="Share of requests whose DSPy trace is logged.")
    ] = 0.1,
    batch: BatchDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a method on a dataset and write DIR/results.jsonl; start it again to continue after any stop."""
    settings = RunSettings(
        data=data,
        method=method,
        backend=backend,
        answer_backend=answer_backend,
        backend_settings=tuple(backend_settings or ()),
        config=config,
        cases=tuple(case or ()),
        limit=limit,
        sample=sample,
        seed=seed,
        split_file=split_file,
        part=part,
        concurrency=concurrency,
        embedder=embedder,
        index=index,
        program=program,
        cache=cache,
        executor=executor,
        workers=workers,
        batch=batch,
    )
    with with_weights():
        plan = prepare(settings, writable_folder(out), on_note=say)
    log = None
    if track or (track is None and experiment is not None):
        name = experiment or DEFAULT_EXPERIMENT
        log = RunLog(Tracker(name, on_trouble=say), plan, group=name, trace_share=trace_share)
    outcome = execute(plan, Limits(max_usd, max_minutes), log)
    summary = summarise(plan.store.rows([job.key for job in plan.jobs]))
    plan.store.export()
    if log is not None and log.finish(outcome):
        say(f"logged to MLflow experiment {log.tracker.experiment!r}; look at it with `make ui`")
    if as_json:
        emit_json({"out": str(out), "outcome": vars(outcome), "summary": summary.to_dict()})
    else:
        print_summary(f"{method}, config {plan.config.name}, backend {backend}", summary.to_text())
        print_summary("", {"results": str(plan.store.folder / "results.jsonl")})
    if outcome.stopped:
        say(f"stopped early: {outcome.stopped}")
    if not as_json:
        show_rounds(outcome)
    left = outcome.planned - outcome.ended
    if outcome.failed or left:
        unasked = f", {left} not asked" if left else ""
        say(
            f"{outcome.failed} requests failed{unasked}; the same command asks them again and repeats nothing that is "
            "finished"
        )
    if outcome.stopped or (outcome.failed and not outcome.rounds):
        raise typer.Exit(130 if outcome.interrupted else 1)


def execute(plan: Plan, limits: Limits, log: RunLog | None = None) -> Outcome:
    """Run the plan with a live bar on stderr: done, failed, cost, tokens, time left; logged when asked for."""
    read = wrote = 0
    with counting("requests", len(plan.jobs)) as bar:
        task = bar.task_ids[0]

        def on_row(row: dict[str, Any] | None, outcome: Outcome) -> None:
            nonlocal read, wrote
            for stage in ((row or {}).get("trace") or {}).get("usage", []):
                read, wrote = read + stage["prompt_tokens"], wrote + stage["completion_tokens"]
            note = f"failed {outcome.failed}, ${outcome.cost_usd:.2f}, tokens {read:,} read {wrote:,} written"
            bar.update(task, completed=outcome.ended, description=note)
            if log is not None:
                log.row(row, outcome)

        try:
            outcome = plan.run(limits, on_row, log.recording if log is not None else None)
        except KeyboardInterrupt:
            abandon()
        bar.update(task, completed=outcome.ended)
    return outcome
