"""What an experiment will take before a cent is spent, and which of its backends could not be asked now."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pace_dspy.backends.profiles import BackendProfile, resolve_connection
from pace_dspy.errors import PaceError
from pace_dspy.evaluation.estimate import StageEstimate, cell_profiles, estimate, measure
from pace_dspy.evaluation.experiment_options import ExperimentOptions
from pace_dspy.evaluation.experiment_tables import estimate_table
from pace_dspy.evaluation.grid import Cell
from pace_dspy.evaluation.plan import NO_BACKEND, chosen_jobs, select_data, unfinished
from pace_dspy.evaluation.store import MANIFEST_NAME, RunStore


def dry_run(cells: Sequence[Cell], options: ExperimentOptions, environ: Mapping[str, str] | None = None) -> str:
    """Return what the runs will take, and how that was estimated; nothing is asked, embedded or spent.

    A run folder of ``--measured``, or one already begun, gives measured means instead of assumed ones.

    Args:
        cells: The runs.
        options: The command.
        environ: Where keys and addresses are looked up; the process environment by default.

    Raises:
        ConfigError: Unknown data, persona, backend or setting.
    """
    dataset, _ = select_data(options.base)
    shared = _measured(options.measured)
    lines, measured_stages = [], 0
    for cell in cells:
        folder = options.out / cell.name
        own = shared | _measured([folder] if (folder / MANIFEST_NAME).is_file() else [])
        left = [job.request for job in unfinished(folder, chosen_jobs(cell.settings, dataset))]
        one = estimate(cell, left, dataset, own, judges=options.judges)
        measured_stages += sum(how == "measured" for how in one.basis.values())
        lines.append((cell, one))
    return "\n".join(
        [
            estimate_table(lines),
            "",
            *not_ready(cells, os.environ if environ is None else environ),
            "How: stages that ask a model x requests not finished yet; tokens = characters / 4: a fixed part measured "
            "on PACE-mini, plus the facts shown, at this data's mean length; written tokens assumed; price from the "
            "backend's profile, without prefix cache (an upper bound); time from the profile's slots, "
            "87 read / 35 written tokens a second for the embedded model on 2 cores, 0.8 s a call and 80 written "
            "tokens a second elsewhere.",
            f"{measured_stages} stages from measured means of runs (--measured, or begun runs), the rest assumed."
            if measured_stages
            else "No run measured yet: give --measured RUN to use its means.",
        ]
    )


def not_ready(cells: Iterable[Cell], environ: Mapping[str, str]) -> list[str]:
    """Return a line for every backend that lacks a key or an address; servers are not asked."""
    lines: dict[str, None] = {}
    for cell in cells:
        if cell.settings.backend == NO_BACKEND:
            continue
        for profile in cell_profiles(cell):
            if (lack := _lack(profile, environ)) is not None:
                lines[f"not ready: {cell.backend}: {lack}"] = None
    return [*lines, ""] if lines else []


def _lack(profile: BackendProfile, environ: Mapping[str, str]) -> str | None:
    if profile.provider == "local":
        return None
    try:
        resolve_connection(profile, environ)
    except PaceError as exc:
        return str(exc)
    return None


def _measured(folders: Sequence[Path]) -> dict[str, StageEstimate]:
    rows = [row for folder in folders for row in RunStore(folder).rows()]
    return measure(rows)
