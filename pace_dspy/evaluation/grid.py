"""Experiments as data: a TOML file of methods, configs and swept settings becomes a list of runs.

::

    name = "sensitivity"
    title = "Sensitivity to retrieval settings (Tables 14 and 15)"
    [[cells]]                       # one run, or one a value
    config = "paper"
    [cells.vary]
    "retrieval.max_hops" = [0, 1, 3, 5]
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.entries import EntrySpec, slug
from pace_dspy.evaluation.plan import NO_BACKEND, RunSettings
from pace_dspy.evaluation.store import write_atomic

NEED_A_MODEL = ("full-kb", "oracle", "react")
"""Methods that tell nothing without an answer: their evidence is everything, or the gold itself, or the agent's."""

Value = bool | int | float | str


class CellSpec(BaseModel):
    """One table of the file: a method with its config, and settings that change one at a time.

    Attributes:
        method: A name of `pace_dspy.methods.METHODS`.
        config: Named config or file; ``--config`` replaces ``paper``.
        embedder: As ``--embedder``; the command's own when not given.
        vary: Dotted config field -> values; one run a value, everything else as in ``config``.
        needs_model: Left out with ``--backend none`` instead of running with rules.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str = "pacemaker"
    config: str = "paper"
    embedder: str | None = None
    vary: dict[str, list[Value]] = Field(default_factory=dict)
    needs_model: bool = False


class Grid(BaseModel):
    """An experiment file.

    Attributes:
        name: Short name; folder, MLflow experiment and report are called so.
        title: What it reproduces, with the paper's table or figure.
        cells: The runs.
        backends: Asked in turn when the command names none; empty is ``local``.
        cache: Whether replies are reused; off where cost or time is the result.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    title: str
    cells: list[CellSpec] = Field(min_length=1)
    backends: list[EntrySpec] = Field(default_factory=list)
    cache: bool = True


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Attributes:
        name: Of its folder; tells method, config, backend, embedder and seed.
        settings: What runs; ``config`` is filled in by `write_configs`.
        config: The resolved config.
        varied: Field and value that differ from the grid's own config.
        backend: How the backend is called (`pace_dspy.evaluation.entries`).
    """

    name: str
    settings: RunSettings
    config: PaceMakerConfig
    varied: tuple[str, Value] | None = None
    backend: str = ""


def load_grid(path: Path) -> Grid:
    """Read an experiment file.

    Raises:
        ConfigError: Missing, unreadable, or with an unknown field or value; names it.
    """
    try:
        return Grid.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as exc:
        raise ConfigError(f"no experiment file {path}; they are in experiments/configs/") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {field}: {first['msg']} (received {first['input']!r})") from exc
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from exc


def make_cells(
    grid: Grid, base: RunSettings, *, configs: Sequence[str] = (), seeds: Sequence[int] = (0,), backend: str = ""
) -> tuple[list[Cell], list[str]]:
    """Return the runs of a grid, equal ones once, and a line for every one left out.

    Args:
        grid: The experiment.
        base: Data, split, backend, limit, embedder: the same for all.
        configs: Take the place of config ``paper``; several give several runs.
        seeds: One run a seed.
        backend: How the backend is called; its profile's name by default.

    Raises:
        ConfigError: Unknown config, field or value.
    """
    cells: dict[str, Cell] = {}
    left_out = []
    for spec in grid.cells:
        if base.backend == NO_BACKEND and (spec.needs_model or spec.method in NEED_A_MODEL):
            what = spec.method if spec.method != "pacemaker" else f"pacemaker {spec.config}"
            left_out.append(f"{what}: needs a model, left out with --backend {NO_BACKEND}")
            continue
        chosen = configs if configs and spec.config == "paper" and spec.method == "pacemaker" else (spec.config,)
        for name in chosen:
            for varied, config in _variants(PaceMakerConfig.load(name), spec):
                for seed in seeds:
                    settings = replace(base, seed=seed, cache=base.cache and grid.cache)
                    cell = _cell(spec, varied, config, settings, backend or base.backend)
                    cells.setdefault(cell.name, cell)
    return list(cells.values()), left_out


def write_configs(cells: Sequence[Cell], folder: Path) -> list[Cell]:
    """Write the config of every cell to ``folder`` and return cells that name these files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for cell in cells:
        path = folder / f"{cell.name}.json"
        write_atomic(path, json.dumps(cell.config.model_dump(mode="json"), indent=2) + "\n")
        written.append(replace(cell, settings=replace(cell.settings, config=str(path))))
    return written


def with_rules(config: PaceMakerConfig) -> PaceMakerConfig:
    """Return a config that asks no model before the answer: our rules take the place of planner, views and filters."""
    agents = config.agents
    stages = [stage for stage in ("planner", "views", "pre_filter", "post_filter") if getattr(agents, stage) == "model"]
    if not stages and not agents.rounds:
        return config
    changes: dict[str, Any] = {**dict.fromkeys(stages, "rules"), "rounds": 0}
    return config.model_copy(update={"name": f"{config.name} with rules", "agents": agents.model_copy(update=changes)})


def _variants(config: PaceMakerConfig, spec: CellSpec) -> list[tuple[tuple[str, Value] | None, PaceMakerConfig]]:
    found: list[tuple[tuple[str, Value] | None, PaceMakerConfig]] = [(None, config)]
    for field, values in spec.vary.items():
        for value in values:
            changed = _changed(config, field, value)
            if changed != config:
                label = f"{config.name} {field.rpartition('.')[2]}={value}"
                found.append(((field, value), changed.model_copy(update={"name": label})))
    return found


def _changed(config: PaceMakerConfig, field: str, value: Value) -> PaceMakerConfig:
    group, _, name = field.partition(".")
    plain: dict[str, Any] = config.model_dump()
    if not isinstance(plain.get(group), Mapping) or name not in plain[group]:
        known = ", ".join(f"{key}.{sub}" for key, part in plain.items() if isinstance(part, Mapping) for sub in part)
        raise ConfigError(f"cannot vary {field!r}; fields: {known}")
    return PaceMakerConfig.parse({**plain, group: {**plain[group], name: value}}, source=f"{field} = {value!r}")


def _cell(
    spec: CellSpec,
    varied: tuple[str, Value] | None,
    config: PaceMakerConfig,
    settings: RunSettings,
    backend: str,
) -> Cell:
    if spec.method == "pacemaker" and settings.backend == NO_BACKEND:
        config = with_rules(config)
    embedder = spec.embedder or settings.embedder
    parts = [spec.method]
    if spec.method == "pacemaker" or varied or spec.config != "paper":
        parts.append(config.name)
    parts += [backend, *([settings.answer_backend] if settings.answer_backend else [])]
    parts += [embedder] if embedder != RunSettings.embedder else []
    name = "-".join([*parts, f"s{settings.seed}"])
    its_own = settings.backend_settings
    if settings.backend != NO_BACKEND:
        its_own = (*(f"{key}={value}" for key, value in config.backend.items()), *its_own)
    settings = replace(settings, method=spec.method, embedder=embedder, backend_settings=its_own)
    return Cell(slug(name), settings, config, varied, backend)
