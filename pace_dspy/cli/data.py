"""``pace-dspy data``: validate a dataset, split it by persona."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.cli.options import AsJson, a_path
from pace_dspy.cli.output import emit_json, show_line
from pace_dspy.data import load_pace, make_split, save_split, validate

app = typer.Typer(help="Validate and split datasets.", no_args_is_help=True)


@app.command("validate")
def validate_command(
    path: Annotated[str, typer.Argument(help="mini, a PACE folder, or the hub's p2chp2t/pace.")],
    as_json: AsJson = False,
) -> None:
    """Check a dataset and report errors, warnings and statistics. Exit 2 on errors, 0 on warnings alone."""
    report = validate(path)
    if as_json:
        emit_json(report.to_dict())
    else:
        for line in report.to_text().split("\n"):
            show_line(line)
    raise typer.Exit(report.exit_code)


@app.command("split")
def split_command(
    path: Annotated[str, typer.Argument(help="mini, a PACE folder, or the hub's p2chp2t/pace.")],
    out: Annotated[Path, typer.Option("--out", parser=a_path, metavar="PATH", help="The split file to write (JSON).")],
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same split.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Split by persona into train, dev and test, stratified by label and situation type."""
    split = make_split(load_pace(path), seed=seed)
    save_split(split, out)
    parts = {part: list(getattr(split, part)) for part in ("train", "dev", "test")}
    if as_json:
        emit_json({"out": str(out), **parts})
        return
    for part, cases in parts.items():
        show_line(f"{part}: {len(cases)} personas ({', '.join(cases)})")
    show_line(f"written to {out}")
