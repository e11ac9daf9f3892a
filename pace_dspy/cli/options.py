"""Options that several commands share, so that each has one spelling and one help text."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

Backend = Annotated[
    str, typer.Option("--backend", help="Backend profile, or none for retrieval without a model.", show_default=True)
]
AnswerBackend = Annotated[str | None, typer.Option("--answer-backend", help="Another backend for the answerer.")]
BackendSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a field of the backend's profile (model, base_url, temperature, window, ...); "
        "answer.KEY for the answerer alone; may be repeated.",
    ),
]
Config = Annotated[str, typer.Option("--config", help="Named config, or a .json/.toml file.")]
EmbedderSpec = Annotated[str, typer.Option("--embedder", help="minilm, st:NAME or openai:MODEL@BASE_URL.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
ProgramFile = Annotated[
    Path | None, typer.Option("--program", help="Compiled program: its folder or program.json.", show_default=False)
]
IndexDir = Annotated[
    Path | None, typer.Option("--index", help="Folder of stored indexes.", show_default="the user's cache folder")
]
Data = Annotated[str, typer.Option("--data", help="mini, a folder in a PACE layout, or the hub's p2chp2t/pace.")]


def parse_day(text: str) -> dt.date:
    """Return an ISO date.

    Raises:
        typer.BadParameter: With the value and the form.
    """
    try:
        return dt.date.fromisoformat(text)
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r} is not a date; use YYYY-MM-DD") from exc
