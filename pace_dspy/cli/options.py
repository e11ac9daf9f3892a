"""Options that several commands share, so that each has one spelling and one help text."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.backends.profiles import PROFILES
from pace_dspy.errors import ConfigError


def a_text(text: str) -> str:
    """Return a text that is not empty.

    Raises:
        typer.BadParameter: It is.
    """
    if not text.strip():
        raise typer.BadParameter("it is empty; give a value ('.' is the current folder)")
    return text


def a_path(text: str | Path) -> Path:
    """Return a path that is not empty: an empty one would mean the current folder.

    Raises:
        typer.BadParameter: It is.
    """
    return Path(a_text(str(text)))


ModelBackend = Annotated[str, typer.Option("--backend", help=f"Backend profile: {', '.join(PROFILES)}.")]
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
BatchDir = Annotated[
    Path | None,
    typer.Option(
        "--batch",
        parser=a_path,
        metavar="PATH",
        help="Folder of the rounds of a batch backend.",
        show_default="batch in the run folder",
    ),
]
Config = Annotated[str, typer.Option("--config", help="Named config, or a .json/.toml file.")]
EmbedderSpec = Annotated[str, typer.Option("--embedder", help="minilm, st:NAME or openai:MODEL@BASE_URL.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
ProgramFile = Annotated[
    Path | None,
    typer.Option(
        "--program",
        parser=a_path,
        metavar="PATH",
        help="Compiled program: its folder or program.json.",
        show_default=False,
    ),
]
IndexDir = Annotated[
    Path | None,
    typer.Option(
        "--index",
        parser=a_path,
        metavar="PATH",
        help="Folder of stored indexes.",
        show_default="the user's cache folder",
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data", parser=a_text, metavar="TEXT", help="mini, a folder in a PACE layout, or the hub's p2chp2t/pace."
    ),
]
SplitFile = Annotated[
    Path | None,
    typer.Option("--split-file", parser=a_path, metavar="PATH", help="Split by persona; mini brings its own."),
]


def parse_day(text: str, option: str = "--date") -> dt.date:
    """Return a date.

    Raises:
        ConfigError: Not a day of the calendar in the form YYYY-MM-DD.
    """
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise ValueError("another form")
        return dt.date.fromisoformat(text)
    except ValueError as exc:
        raise ConfigError(f"{option} {text!r} is not a date; use YYYY-MM-DD") from exc
