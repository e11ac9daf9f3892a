"""`build_report`: from run folders to one HTML page and its plots. Ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.report.content import Section, notes, sections
from pace_dspy.evaluation.report.page import render
from pace_dspy.evaluation.report.requests import trails
from pace_dspy.evaluation.report.runs import ReportRun, load_runs
from pace_dspy.evaluation.report.texts import load_texts
from pace_dspy.evaluation.store import write_atomic
from pace_dspy.evaluation.stored import writing

First = Callable[[Sequence[ReportRun]], Section]
"""Makes a section that comes before all others."""

MAX_TRAILS = 200
"""Requests with a trail in the page; more make it too heavy for a phone."""


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        path: The HTML page.
        plots: The PNG files beside it.
        runs: Names of the runs, in order.
        n_requests: Requests that all runs share.
        n_trails: Of these, shown with their trail.
        texts_missing: Why ids are shown instead of texts, ``None`` when texts are.
        sections: Titles of the sections.
    """

    path: Path
    plots: tuple[Path, ...]
    runs: tuple[str, ...]
    n_requests: int
    n_trails: int
    texts_missing: str | None
    sections: tuple[str, ...]


def build_report(
    runs: Sequence[Path],
    out: Path,
    *,
    intersect: bool = False,
    baseline: Path | None = None,
    data: str | None = None,
    max_trails: int = MAX_TRAILS,
    names: Sequence[str] | None = None,
    groups: Sequence[Sequence[Path]] | None = None,
    first: First | None = None,
) -> Report:
    """Write a report on runs of the same requests.

    Args:
        runs: Run folders, in the order of the report.
        out: The page, ``.html``; plots go to the folder ``<name>_plots`` beside it.
        intersect: Report on the requests all runs share when they were asked different ones.
        baseline: The run that others are compared with; the first one by default.
        data: Where the texts are: anything `pace_dspy.data.load_pace` takes; see `load_texts` for the default.
        max_trails: Requests shown with their trail, >= 0.
        names: Of the runs, one a folder; by default made of method and config.
        groups: In place of ``baseline``: runs that are compared within their group, with its first one.
        first: Makes a section that comes before all others.

    Returns:
        What was written.

    Raises:
        ConfigError: ``out`` is no HTML file, ``baseline`` is none of ``runs``, or runs that `load_runs` refuses, or
            the page or its plots cannot be written.
        DataError: ``data`` was given and cannot be loaded.
    """
    if out.suffix.lower() not in {".html", ".htm"} or out.is_dir():
        raise ConfigError(f"the report is an HTML page, received --out {out}; give a file name that ends in .html")
    if max_trails < 0:
        raise ConfigError(f"max_trails must be at least 0, received {max_trails}")
    loaded = load_runs(runs, intersect=intersect, names=names)
    compared = _groups(loaded, groups) if groups is not None else _against(loaded, _baseline(loaded, baseline))
    texts = load_texts(loaded, data)
    parts = (*((first(loaded),) if first else ()), *sections(loaded, compared))
    personas = trails(loaded, texts, max_trails)
    n_trails = sum(len(persona.requests) for persona in personas)
    page = render(loaded, parts, notes(loaded, texts, n_trails), personas)
    place = out.with_name(f"{out.stem}_plots")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with writing(place):
        plots = _write_plots(parts, place)
    with writing(out):
        write_atomic(out, page)
    return Report(
        out,
        plots,
        tuple(run.name for run in loaded),
        len(loaded[0].rows),
        n_trails,
        texts.missing,
        tuple(part.title for part in parts),
    )


def _groups(runs: Sequence[ReportRun], groups: Sequence[Sequence[Path]]) -> list[list[ReportRun]]:
    by_folder = {run.folder: run for run in runs}
    return [[by_folder[folder] for folder in group] for group in groups]


def _against(runs: Sequence[ReportRun], baseline: ReportRun) -> list[list[ReportRun]]:
    return [[baseline, *(run for run in runs if run is not baseline)]]


def _baseline(runs: Sequence[ReportRun], folder: Path | None) -> ReportRun:
    if folder is None:
        return runs[0]
    for run in runs:
        if run.folder.resolve() == folder.resolve():
            return run
    raise ConfigError(f"the baseline {folder} is none of the runs: {', '.join(str(run.folder) for run in runs)}")


def _write_plots(parts: Sequence[Section], folder: Path) -> tuple[Path, ...]:
    folder.mkdir(exist_ok=True)
    paths = []
    for plot in (plot for part in parts for plot in part.plots):
        path = folder / f"{plot.name}.png"
        path.write_bytes(plot.wide)
        paths.append(path)
    return tuple(paths)
