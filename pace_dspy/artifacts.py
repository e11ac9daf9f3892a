"""Compiled programs on disk: DSPy JSON state beside our manifest. No pickle, no key, no index, no address.

``FOLDER/program.json`` holds instructions and demos; ``FOLDER/manifest.json`` what they were made with, and the
calibrated threshold of the answerer, if any.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pace_dspy.backends.profiles import PROFILES
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.provenance import git_commit, versions
from pace_dspy.evaluation.store import write_atomic
from pace_dspy.modules.answerer import Answerer
from pace_dspy.program import PaceMakerProgram
from pace_dspy.tracking import RUNS_URI, fetch_program

PROGRAM_NAME = "program.json"
MANIFEST_NAME = "manifest.json"


def save_program(program: PaceMakerProgram, folder: Path, *, backend: str, **facts: Any) -> Path:
    """Save a program and its manifest.

    Args:
        program: The program.
        folder: Created when missing.
        backend: Profile name it was made with.
        **facts: More manifest entries (optimizer, data hash, scores), JSON-serialisable.

    Returns:
        The path of the state file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "config": program.config.model_dump(),
        "backend": backend,
        "signatures": signature_fields(program),
        "versions": versions(),
        "git_commit": git_commit(),
        **facts,
    }
    path = folder / PROGRAM_NAME
    temporary = folder / f".partial-{PROGRAM_NAME}"
    program.save(temporary)
    temporary.replace(path)
    write_atomic(folder / MANIFEST_NAME, json.dumps(manifest, ensure_ascii=False, indent=2) + "\n")
    return path


def load_program(source: Path | None, config: PaceMakerConfig, *, backend: str, warn: Any = None) -> PaceMakerProgram:
    """Return a program for ``config``, with the state of ``source`` when given.

    Args:
        source: Folder of a saved program, its ``program.json``, or ``runs:/RUN_ID/program`` in the MLflow store;
            ``None`` for the uncompiled program.
        config: The config to run with.
        backend: Profile name it will run on.
        warn: Called with one line when the program was made with another backend.

    Raises:
        ConfigError: No such program, a damaged one, or one whose agents or signatures do not fit this config.
    """
    program = PaceMakerProgram(config)
    if source is None:
        return program
    path = _state_file(source)
    manifest = _read(path.with_name(MANIFEST_NAME))
    state = _read(path)
    wanted = signature_fields(program)
    saved = manifest.get("signatures", {})
    if saved != wanted:
        raise ConfigError(
            f"program {path} does not fit config {config.name!r}: {'; '.join(_mismatch(saved, wanted))}. "
            f"Use the config it was compiled with ({manifest.get('config', {}).get('name')!r}) or compile again"
        )
    program.load_state(state)
    _calibrate(program, manifest, backend, path, warn)
    if warn is not None and manifest.get("backend") != backend:
        warn(f"program {path} was compiled on backend {manifest.get('backend')!r} and now runs on {backend!r}")
    return program


def read_manifest(source: Path) -> dict[str, Any]:
    """Return the manifest of a saved program.

    Args:
        source: As for `load_program`.

    Raises:
        ConfigError: There is none, or it cannot be read.
    """
    return _read(_state_file(source).with_name(MANIFEST_NAME))


def fingerprint(source: Path) -> str:
    """Return the SHA-256 (hex) of what a saved program does: its state and its calibrated threshold.

    Args:
        source: As for `load_program`.

    Raises:
        ConfigError: There is none, or it cannot be read.
    """
    path = _state_file(source)
    content = [_read(path), (read_manifest(source).get("calibration") or {}).get("threshold")]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _calibrate(program: PaceMakerProgram, manifest: dict[str, Any], backend: str, path: Path, warn: Any) -> None:
    """Set the answerer's threshold where the backend can measure what it is compared with: the same model's odds."""
    calibration = manifest.get("calibration")
    if not calibration or not isinstance(program.answerer, Answerer):
        return
    if backend in PROFILES and not PROFILES[backend].supports_logprobs:
        if warn is not None:
            warn(f"program {path} has a calibrated decision, which backend {backend!r} cannot measure: not used")
        return
    if manifest.get("backend") != backend:
        if warn is not None:
            warn(
                f"program {path} has a decision calibrated on backend {manifest.get('backend')!r}: not used on "
                f"{backend!r}; fit it anew with `pace-dspy compile --optimizer none --calibrate --program ...`"
            )
        return
    program.answerer.threshold = float(calibration["threshold"])


def signature_fields(program: PaceMakerProgram) -> dict[str, list[str]]:
    """Return predictor name -> its input and output field names, as ``"request, today -> cues"`` parts."""
    return {
        name: [*predictor.signature.input_fields, "->", *predictor.signature.output_fields]
        for name, predictor in program.named_predictors()
    }


def _mismatch(saved: dict[str, list[str]], wanted: dict[str, list[str]]) -> list[str]:
    lines = []
    for name in sorted({*saved, *wanted}):
        if saved.get(name) != wanted.get(name):
            has, needs = " ".join(saved.get(name, ["nothing"])), " ".join(wanted.get(name, ["nothing"]))
            lines.append(f"{name}: saved {has!r}, needed {needs!r}")
    return lines


def _state_file(source: Path) -> Path:
    if str(source).startswith(RUNS_URI):
        source = fetch_program(str(source))
    if not source.exists():
        raise ConfigError(f"no program at {source}: give the folder that holds {PROGRAM_NAME} and {MANIFEST_NAME}")
    return source / PROGRAM_NAME if source.is_dir() else source


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise ConfigError(
            f"no program at {path}: give the folder that holds {PROGRAM_NAME} and {MANIFEST_NAME}"
        ) from exc
    except (OSError, ValueError, RecursionError) as exc:
        raise ConfigError(f"{path} cannot be read as a saved program: {exc}") from exc
    if not isinstance(value, dict):
        raise ConfigError(f"{path} does not hold a saved program (a JSON object)")
    return value
