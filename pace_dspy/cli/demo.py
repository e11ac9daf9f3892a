"""``pace-dspy demo``: the shipped persona, the real embedded model, every step shown."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Any

import typer

from pace_dspy.backends.usage import watching
from pace_dspy.cli.live import STAGE_WORDS, with_weights
from pace_dspy.cli.options import AnswerBackend, Backend, BackendSettings, Config, ProgramFile, a_path
from pace_dspy.cli.output import say, show_line, stderr, stdout
from pace_dspy.cli.render import print_row, print_summary
from pace_dspy.cli.rounds import show_rounds
from pace_dspy.data import load_pace
from pace_dspy.evaluation.plan import RunSettings, prepare
from pace_dspy.evaluation.runner import Limits, Outcome
from pace_dspy.evaluation.summary import summarise
from pace_dspy.paths import writable_folder
from pace_dspy.retrieval import get_kb
from pace_dspy.types import Stage

DEMO_CASE = "mini_04"
DEMO_CONFIG = "lite"


def demo(
    case: Annotated[str, typer.Option("--case", help="Persona of the shipped dataset.")] = DEMO_CASE,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="Only the first N requests.", show_default="all")
    ] = None,
    backend: Backend = "local",
    answer_backend: AnswerBackend = None,
    backend_settings: BackendSettings = None,
    config: Config = DEMO_CONFIG,
    program: ProgramFile = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", parser=a_path, metavar="PATH", help="Run folder.", show_default="artifacts/runs/demo-<time>"
        ),
    ] = None,
) -> None:
    """Check the requests of one shipped persona and show how each decision came about."""
    folder = writable_folder(out or Path("artifacts") / "runs" / f"demo-{dt.datetime.now():%Y%m%d-%H%M%S}")
    settings = RunSettings(
        data="mini",
        backend=backend,
        answer_backend=answer_backend,
        backend_settings=tuple(backend_settings or ()),
        config=config,
        cases=(case,),
        limit=requests,
        program=program,
        cache=False,
    )
    with with_weights(), stderr.status("opening the model and the knowledge base"):
        plan = prepare(settings, folder, on_note=say)
    requests_by_id = {request.query_id: request for request in load_pace("mini").case(case).requests}
    persona = load_pace("mini").case(case).persona
    say(f"{persona}: {len(get_kb(plan.jobs[0].kb_id))} facts, {len(plan.jobs)} requests, backend {backend}")

    def on_stage(stage: Stage) -> None:
        say(f"  {STAGE_WORDS[stage]} ...")

    def on_row(row: dict[str, Any] | None, outcome: Outcome) -> None:
        if row is None:
            return
        stdout.rule()
        print_row(row, requests_by_id[row["query_id"]], get_kb(plan.jobs[0].kb_id))

    with watching(on_stage):
        outcome = plan.run(Limits(), on_row)
    path = plan.store.export()
    stdout.rule()
    print_summary("Summary", summarise(plan.store.rows()).to_text())
    show_line(f"Run written to {path.parent}")
    show_rounds(outcome)
    if outcome.failed or outcome.stopped:
        say(outcome.stopped or f"{outcome.failed} requests failed")
        raise typer.Exit(1)
