"""``pace-dspy weights``: the embedded model's files."""

from __future__ import annotations

from typing import Annotated

import typer

from pace_dspy.backends import weights
from pace_dspy.cli.live import with_weights
from pace_dspy.cli.options import AsJson
from pace_dspy.cli.output import emit_json, show_line

app = typer.Typer(help="Pull, verify and locate the embedded model's files.", no_args_is_help=True)
Name = Annotated[str | None, typer.Argument(help="One file; all that `demo` needs when left out.")]
DEMO_FILES = ("lm_default", "embedder_onnx", "embedder_tokenizer")


@app.command()
def pull(name: Name = None, as_json: AsJson = False) -> None:
    """Fetch what is missing; every file is checked against its pinned SHA-256."""
    with with_weights():
        paths = {file: str(weights.resolve(file)) for file in _wanted(name)}
    _print(paths, as_json)


@app.command()
def verify(name: Name = None, as_json: AsJson = False) -> None:
    """Hash the files that are here and compare with the pinned SHA-256."""
    _print({file: str(weights.verify(file)) for file in _wanted(name)}, as_json)


@app.command()
def path(name: Name = None, as_json: AsJson = False) -> None:
    """Print where the files are, or would be."""
    _print({file: str(weights.local_path(file)) for file in _wanted(name)}, as_json)


def _wanted(name: str | None) -> tuple[str, ...]:
    return DEMO_FILES if name is None else (name,)


def _print(paths: dict[str, str], as_json: bool) -> None:
    if as_json:
        emit_json(paths)
        return
    for file, place in paths.items():
        show_line(f"{file}: {place}")
