"""``pace-dspy report``: one HTML page on one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.cli.options import AsJson, a_path
from pace_dspy.cli.output import emit_json, say, show_line


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, in the order of the report.", metavar="RUN")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", parser=a_path, metavar="PATH", help="The page to write, .html; plots go to a folder beside it."
        ),
    ],
    intersect: Annotated[
        bool, typer.Option("--intersect", help="Report on the requests all runs share when they differ.")
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            parser=a_path,
            metavar="PATH",
            help="Run that the others are compared with.",
            show_default="the first",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Where the runs' texts are, if not mini.", show_default=False)
    ] = None,
    trails: Annotated[int, typer.Option("--trails", min=0, help="Requests shown stage by stage.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained HTML page and PNG plots on runs of the same requests."""
    from pace_dspy.evaluation.report import build_report

    made = build_report(runs, out, intersect=intersect, baseline=baseline, data=data, max_trails=trails)
    if as_json:
        emit_json({**vars(made), "path": str(made.path), "plots": [str(path) for path in made.plots]})
        return
    show_line(f"{', '.join(made.runs)}: {made.n_requests} requests, {made.n_trails} with their trail")
    show_line(f"report  {made.path}")
    show_line(f"plots   {', '.join(str(path) for path in made.plots)}")
    if made.texts_missing:
        say(f"facts are shown by id: {made.texts_missing}")
