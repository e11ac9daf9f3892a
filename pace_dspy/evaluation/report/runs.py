"""The runs of a report: read, named, and made sure that they were asked the same requests of the same data. Ours."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.provenance import RunManifest
from pace_dspy.evaluation.scores import Key, Row, finished, key_of
from pace_dspy.evaluation.store import MANIFEST_NAME, RESULTS_NAME, STORE_NAME, RunStore, read_manifest
from pace_dspy.evaluation.stored import damaged, parse_row
from pace_dspy.evaluation.verdicts import chosen_judge


@dataclass(frozen=True)
class ReportRun:
    """One run as the report shows it.

    Attributes:
        name: Unique in the report: method, config unless it is the paper's, and the folder where names repeat.
        folder: Where it was read from.
        manifest: What it was.
        rows: Its result rows in data order, failed ones included.
        n_left_out: Rows that the other runs lack (``intersect``).
        judge: Whose verdicts the rows hold, ``None`` when nothing was judged.
    """

    name: str
    folder: Path
    manifest: RunManifest
    rows: tuple[Row, ...]
    n_left_out: int = 0
    judge: str | None = None

    @property
    def data_name(self) -> str:
        """Name of the dataset without the part (``mini/test`` gives ``mini``)."""
        return self.manifest.dataset.partition("/")[0]

    @property
    def config_name(self) -> str:
        """Name of the config."""
        return str(self.manifest.config.get("name", "paper"))


def load_runs(
    folders: Sequence[Path], *, intersect: bool = False, names: Sequence[str] | None = None
) -> tuple[ReportRun, ...]:
    """Read run folders for one report.

    Args:
        folders: Run folders, in the order of the report.
        intersect: Keep the requests that all runs were asked, instead of refusing runs on different ones.
        names: Of the runs, one a folder, unique; by default made of method and config.

    Returns:
        The runs, all with the same requests in the same order.

    Raises:
        ConfigError: No folder, one given twice, one that holds no run or no finished request, runs of different data,
            or of different requests without ``intersect``.
    """
    if not folders:
        raise ConfigError("a report needs at least one run folder; make one with `pace-dspy run`")
    repeated = [str(folder) for folder, count in Counter(path.resolve() for path in folders).items() if count > 1]
    if repeated:
        raise ConfigError(f"run folder {repeated[0]} is given twice; name every run once")
    read = [_read(folder) for folder in folders]
    runs = _named(read) if names is None else [replace(run, name=n) for run, n in zip(read, names, strict=True)]
    _same_data(runs)
    return _same_requests(runs, intersect)


def _read(folder: Path) -> ReportRun:
    rows = _rows(folder)
    manifest = read_manifest(folder)
    ended = finished(rows)
    if not ended.rows:
        reasons = ", ".join(f"{kind} {count}" for kind, count in ended.reasons.items())
        why = f"all {ended.n_failed} requests failed: {reasons}" if ended.n_failed else "it holds no row"
        raise ConfigError(f"run {folder} has no finished request ({why}); continue it with `pace-dspy run`")
    return ReportRun("", folder, manifest, tuple(rows), judge=_judge(folder / STORE_NAME))


def _rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the store, or of the exported file where a run was published without its store."""
    if (folder / MANIFEST_NAME).is_file() and not (folder / STORE_NAME).exists():
        return _exported(folder / RESULTS_NAME)
    store = RunStore(folder)
    try:
        return store.rows()
    finally:
        store.close()


def _judge(store: Path) -> str | None:
    if not store.is_file():
        return None
    with closing(sqlite3.connect(f"{store.resolve().as_uri()}?mode=ro", uri=True)) as db:
        return chosen_judge(db)


def _exported(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        return [parse_row(line) for line in lines if line.strip()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as exc:
        raise damaged(path, exc) from exc


def _named(runs: Sequence[ReportRun]) -> list[ReportRun]:
    names = [_own_name(run) for run in runs]
    for suffixes in ([run.folder.resolve().name for run in runs], [f"#{i}" for i in range(1, len(runs) + 1)]):
        counts = Counter(names)
        pairs = zip(names, suffixes, strict=True)
        names = [f"{name} [{suffix}]" if counts[name] > 1 else name for name, suffix in pairs]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _own_name(run: ReportRun) -> str:
    marks = [] if run.config_name == "paper" else [run.config_name]
    marks += ["compiled"] if run.manifest.program else []
    return f"{run.manifest.method} ({', '.join(marks)})" if marks else run.manifest.method


def _same_data(runs: Sequence[ReportRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        one, other = first.manifest, run.manifest
        if run.data_name != first.data_name or (one.part == other.part and one.dataset_hash != other.dataset_hash):
            raise ConfigError(
                f"the runs are of different data: {first.name} of {one.dataset} (hash {one.dataset_hash[:12]}), "
                f"{run.name} of {other.dataset} (hash {other.dataset_hash[:12]}); make one report for each"
            )


def _same_requests(runs: Sequence[ReportRun], intersect: bool) -> tuple[ReportRun, ...]:
    asked = [{key_of(row) for row in run.rows} for run in runs]
    shared: set[Key] = set.intersection(*asked)
    counts = ", ".join(f"{run.name} {len(keys)}" for run, keys in zip(runs, asked, strict=True))
    if not shared:
        raise ConfigError(f"the runs have no request in common ({counts}); nothing can be compared")
    if any(keys != shared for keys in asked) and not intersect:
        raise ConfigError(
            f"the runs were asked different requests ({counts}; {len(shared)} in common); run the same ones, or pass "
            "--intersect (intersect=True) to report on the common ones"
        )
    kept = [[row for row in run.rows if key_of(row) in shared] for run in runs]
    _same_gold(runs, kept)
    return tuple(
        replace(run, rows=tuple(rows), n_left_out=len(run.rows) - len(rows))
        for run, rows in zip(runs, kept, strict=True)
    )


def _same_gold(runs: Sequence[ReportRun], kept: Sequence[Sequence[Row]]) -> None:
    expected = {key_of(row): (row["label"], set(row["gold_doc_ids"])) for row in kept[0]}
    for run, rows in zip(runs[1:], kept[1:], strict=True):
        for row in rows:
            if (row["label"], set(row["gold_doc_ids"])) != expected[key_of(row)]:
                raise ConfigError(
                    f"request {'/'.join(key_of(row))} has another label or other gold facts in {run.name} than in "
                    f"{runs[0].name}; the runs are of different data"
                )
