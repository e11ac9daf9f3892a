"""``pace-dspy compare``: paired differences of runs on the same requests, with intervals, on stdout."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.cli.options import AsJson
from pace_dspy.cli.output import emit_json, show_line


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders; each one is compared with the first.", metavar="BEFORE AFTER...")
    ],
    intersect: Annotated[
        bool, typer.Option("--intersect", help="Compare on the requests all runs share when they differ.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs request by request: difference, 95% interval (bootstrap over personas), p, pairs."""
    from pace_dspy.evaluation.report.paired import paired_differences, paired_lines

    pairs = paired_differences(runs, intersect=intersect)
    if as_json:
        emit_json(
            [
                {
                    "before": str(pair.before.folder),
                    "after": str(pair.after.folder),
                    "n_requests": len(pair.before.rows),
                    "differences": {name: asdict(found) for name, found in pair.differences.items()},
                    "decisions": asdict(pair.decisions) if pair.decisions else None,
                }
                for pair in pairs
            ]
        )
        return
    for pair in pairs:
        for line in paired_lines(pair):
            show_line(line)
    show_line("Intervals: 2,000 draws of personas with all their requests; few personas cannot give narrow ones.")
