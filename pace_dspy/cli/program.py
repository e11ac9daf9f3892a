"""``pace-dspy program``: read a compiled program, and compare two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pace_dspy.artifacts import MANIFEST_NAME, PROGRAM_NAME, load_program, read_manifest
from pace_dspy.cli.options import AsJson
from pace_dspy.cli.output import emit_json, show_line
from pace_dspy.config import PaceMakerConfig
from pace_dspy.optimization.snapshot import PredictorState, Snapshot, changes, readable, snapshot

app = typer.Typer(help="Compiled programs: what they say, and how two differ.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help=f"Folder with {PROGRAM_NAME} and {MANIFEST_NAME}, or the state file.")]


@app.command("show")
def show(program: Folder, as_json: AsJson = False) -> None:
    """Print instructions and demos of every predictor, and where they come from."""
    manifest, state = read(program)
    if as_json:
        emit_json({"manifest": manifest, "predictors": plain(state)})
        return
    show_line(f"{program}: {origin(manifest)}")
    for name, part in state.items():
        _section(f"{name} ({len(part.demos)} demos)", readable(part))


@app.command("diff")
def diff(
    first: Folder,
    second: Annotated[
        Path | None, typer.Argument(help="Another program.", show_default="the uncompiled program")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what the second program says otherwise than the first (the uncompiled one when only one is given)."""
    manifest, state = read(first)
    if second is None:
        config = PaceMakerConfig.parse(manifest["config"])
        before, names = snapshot(load_program(None, config, backend="")), ("uncompiled", str(first))
        after = state
    else:
        before, after, names = state, read(second)[1], (str(first), str(second))
    found = changes(before, after, names)
    if as_json:
        emit_json(found)
        return
    for name, lines in found.items():
        if lines:
            _section(name, lines)
    if not any(found.values()):
        show_line("no difference")


def read(source: Path) -> tuple[dict[str, Any], dict[str, PredictorState]]:
    """Return manifest and predictors of a saved program.

    Raises:
        ConfigError: No such program, or a damaged one.
    """
    manifest = read_manifest(source)
    config = PaceMakerConfig.parse(manifest.get("config", {}), source=str(source))
    return manifest, snapshot(load_program(source, config, backend=str(manifest.get("backend"))))


def _section(title: str, lines: list[str]) -> None:
    for line in ("", f"== {title}", "", *lines):
        show_line(line)


def origin(manifest: dict[str, Any]) -> str:
    """Return one line: optimizer, backend, config, scores, calibration, commit."""
    groups = [
        f"{group['name']} {group['before']:.3f} -> {group['after']:.3f} on dev" for group in manifest.get("groups", [])
    ]
    calibration = manifest.get("calibration")
    parts = [
        f"optimizer {manifest.get('optimizer', 'none')}",
        f"backend {manifest.get('backend')}",
        f"config {manifest.get('config', {}).get('name')}",
        *groups,
        *([f"threshold {calibration['threshold']:.3f}"] if calibration else []),
        f"commit {manifest.get('git_commit')}",
    ]
    return ", ".join(parts)


def plain(state: Snapshot) -> dict[str, Any]:
    """Return a state JSON-ready."""
    return {name: {"instructions": part.instructions, "demos": list(part.demos)} for name, part in state.items()}
