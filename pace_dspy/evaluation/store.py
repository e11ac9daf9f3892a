"""The run store: one SQLite file in the run folder, one committed row a finished request. Resume is its whole point.

A row is written in its own transaction the moment its request ends, so nothing finished is lost or asked again,
``kill -9`` included. Failed requests are kept too and asked again on the next start.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.provenance import RunManifest, differences
from pace_dspy.evaluation.scores import Key
from pace_dspy.evaluation.stored import damaged, dumps, parse_row, reading_store, writing
from pace_dspy.evaluation.verdicts import TABLES, VerdictStore, chosen_judge

__all__ = ["MANIFEST_NAME", "RESULTS_NAME", "STORE_NAME", "Key", "RunStore", "read_manifest", "write_atomic"]

STORE_NAME = "run.sqlite"
RESULTS_NAME = "results.jsonl"
MANIFEST_NAME = "manifest.json"
COLUMNS = {
    "results": ("case_id", "query_id", "position", "ok", "row"),
    "judges": ("judge", "chosen"),
    "verdicts": ("case_id", "query_id", "judge", "verdict", "reason", "error", "usage"),
}
PARTIAL = ".partial"
"""End of the name of a file that was being written when the process was killed."""


class RunStore:
    """Rows of one run. Safe for the threads of one process; other processes may read.

    Args:
        folder: The run folder.

    Raises:
        ConfigError: The folder holds no run, or a damaged one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / MANIFEST_NAME).is_file():
            raise ConfigError(f"{folder} is not a run folder: it has no {MANIFEST_NAME}; make one with `pace-dspy run`")
        self.manifest = read_manifest(folder)
        self._lock = threading.Lock()
        for path in (folder / STORE_NAME, folder / RESULTS_NAME):
            if path.is_dir():
                raise damaged(path, "it is a folder")
        with reading_store(folder / STORE_NAME):
            self._connect()

    def _connect(self) -> None:
        self._db = sqlite3.connect(self.folder / STORE_NAME, timeout=30, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS results (case_id TEXT, query_id TEXT, position INTEGER, ok INTEGER, row TEXT, "
            "PRIMARY KEY (case_id, query_id))"
        )
        for table in TABLES:
            self._db.execute(table)
        for name, columns in COLUMNS.items():
            found = tuple(str(column[1]) for column in self._db.execute(f"PRAGMA table_info({name})"))
            if found != columns:
                raise ValueError(f"table {name} has the columns {', '.join(found)}, not {', '.join(columns)}")

    @classmethod
    def open(cls, folder: Path, manifest: RunManifest) -> RunStore:
        """Open a run folder, new or to be continued.

        Raises:
            ConfigError: The folder belongs to another run (the differing fields are named), holds other files or a
                damaged row, or cannot be made or written.
        """
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            holds_other_files = any(path.suffix != PARTIAL for path in folder.iterdir())
        if (folder / MANIFEST_NAME).is_file():
            changed = differences(read_manifest(folder), manifest)
            if changed:
                raise ConfigError(
                    f"run folder {folder} belongs to another run: {'; '.join(changed)}. Give another --out, or the "
                    "same settings to continue it"
                )
        elif holds_other_files:
            raise ConfigError(f"folder {folder} is not empty and holds no run; give an empty or new folder as --out")
        else:
            with writing(folder / MANIFEST_NAME):
                write_atomic(folder / MANIFEST_NAME, manifest.model_dump_json(indent=2) + "\n")
        store = cls(folder)
        store.rows()  # a damaged row is refused before a request is spent
        return store

    def finished(self) -> set[Key]:
        """Return the requests that ended without error."""
        with self._reading():
            rows = self._db.execute("SELECT case_id, query_id FROM results WHERE ok = 1").fetchall()
        return {(case_id, query_id) for case_id, query_id in rows}

    def put(self, row: dict[str, Any], position: int) -> None:
        """Commit one row (a failed request's earlier row is replaced).

        Args:
            row: The result row; ``error`` is ``None`` when the request ended well.
            position: Place of the request in the data, for a stable order.
        """
        values = (row["case_id"], row["query_id"], position, row["error"] is None, dumps(row))
        with self._reading():
            self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", values)

    def rows(self, keys: Sequence[Key] | None = None, *, judge: str | None = None) -> list[dict[str, Any]]:
        """Return the stored rows in data order, each with the verdict of one judge.

        Args:
            keys: Only these requests; all by default.
            judge: Whose verdicts; by default the judge that `VerdictStore.choose` made the run's first.

        Returns:
            Result rows with ``verdict``, ``verdict_reason`` and ``judge_error``, ``None`` where not judged.
        """
        with self._reading():
            texts = self._db.execute("SELECT row FROM results ORDER BY position, case_id, query_id").fetchall()
            judge = judge or chosen_judge(self._db)
            rows = [parse_row(text) for (text,) in texts]
        with reading_store(self.folder / STORE_NAME):
            judged = self.verdicts(judge).rows() if judge else {}
        wanted = None if keys is None else set(keys)
        kept = [row for row in rows if wanted is None or (row["case_id"], row["query_id"]) in wanted]
        for row in kept:
            found = judged.get((row["case_id"], row["query_id"]), {})
            row["verdict"], row["verdict_reason"] = found.get("verdict"), found.get("reason")
            row["judge_error"] = found.get("error")
        return kept

    def verdicts(self, judge: str) -> VerdictStore:
        """Return the verdicts of one judge, to read and to add to."""
        return VerdictStore(self, self._db, self._lock, judge)

    @contextmanager
    def exclusive(self, what: str = "run") -> Iterator[None]:
        """Keep other processes from doing the same work in this folder; a killed process leaves no lock behind.

        Raises:
            ConfigError: Another process is at it.
        """
        lock = filelock.FileLock(self.folder / f".{what}.lock", timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout as exc:
            raise ConfigError(f"another process works on {self.folder} ({what}); wait for it or stop it") from exc
        try:
            yield
        finally:
            lock.release()

    def export(self) -> Path:
        """Write ``results.jsonl`` (temporary name, then renamed) and return its path."""
        path = self.folder / RESULTS_NAME
        text = "".join(dumps(row) + "\n" for row in self.rows())
        with writing(path):
            write_atomic(path, text)
        return path

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, reading_store(self.folder / STORE_NAME):
            yield


def read_manifest(folder: Path) -> RunManifest:
    """Return the manifest of a run folder.

    Raises:
        ConfigError: It cannot be read.
    """
    path = folder / MANIFEST_NAME
    try:
        return RunManifest.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise damaged(path, exc) from exc


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a crash leaves the old or the new content, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
