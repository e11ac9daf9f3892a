"""What a run was: recorded once, compared on every restart. Never a key, never a path of a machine."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError

VERSIONED = ("pace-dspy", "dspy", "faiss-cpu", "bm25s", "numpy", "mlflow", "xllamacpp", "onnxruntime")


class RunManifest(BaseModel):
    """Everything needed to repeat a run.

    ``IDENTITY`` fields must be equal when a run folder is continued; the rest is informative.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    config: dict[str, Any]
    dataset: str
    dataset_hash: str
    split: str | None = None
    part: str = "all"
    backends: dict[str, str | None]
    embedder: str
    program: str | None = None
    seed: int
    arguments: dict[str, Any] = {}
    git_commit: str | None = None
    versions: dict[str, str] = {}

    def identity(self) -> dict[str, Any]:
        """Return the fields that make it the same run."""
        return {field: getattr(self, field) for field in IDENTITY}


IDENTITY = ("method", "config", "dataset", "dataset_hash", "split", "part", "backends", "embedder", "program", "seed")


def differences(old: RunManifest, new: RunManifest) -> list[str]:
    """Return one ``field: old -> new`` line for every identity field that differs."""
    before, after = ({**run.identity(), "config": _settled(run.config)} for run in (old, new))
    lines = []
    for field in IDENTITY:
        if before[field] == after[field]:
            continue
        if isinstance(before[field], dict) and isinstance(after[field], dict):
            lines += [f"{field}.{line}" for line in _dict_differences(before[field], after[field])]
        else:
            lines.append(f"{field}: {before[field]!r} -> {after[field]!r}")
    return lines


def _settled(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config with every setting written out: a run of before a setting existed has its default."""
    try:
        return PaceMakerConfig.parse(config).model_dump(mode="json")
    except ConfigError:  # of another version, with settings that are gone
        return config


def _dict_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    lines = []
    for key in sorted({*old, *new}):
        left, right = old.get(key), new.get(key)
        if left == right:
            continue
        if isinstance(left, dict) and isinstance(right, dict):
            lines += [f"{key}.{line}" for line in _dict_differences(left, right)]
        else:
            lines.append(f"{key}: {left!r} -> {right!r}")
    return lines


def git_commit() -> str | None:
    """Return the commit of the source tree this package runs from, with ``+changes`` when it is not clean."""
    folder = Path(__file__).resolve().parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--", str(folder)) else commit
    except (OSError, subprocess.SubprocessError):
        return None


def versions() -> dict[str, str]:
    """Return the installed versions that can change a result."""
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
