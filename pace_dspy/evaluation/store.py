"""The run store: one SQLite file in the run folder, one committed row a finished request. Resume is its whole point.

A row is written in its own transaction the moment its request ends, so nothing finished is lost or asked again,
``kill -9`` included. Failed requests are kept too and asked again on the next start.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.provenance import RunManifest, differences

Key = tuple[str, str]
"""``(case_id, query_id)`` of a request."""

STORE_NAME = "run.sqlite"
RESULTS_NAME = "results.jsonl"
MANIFEST_NAME = "manifest.json"


class RunStore:
    """Rows of one run. Safe for the threads of one process; other processes may read.

    Args:
        folder: The run folder.

    Raises:
        ConfigError: The folder holds no run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / MANIFEST_NAME).is_file():
            raise ConfigError(f"{folder} is not a run folder: it has no {MANIFEST_NAME}; make one with `pace-dspy run`")
        self.manifest = read_manifest(folder)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(folder / STORE_NAME, timeout=30, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS results (case_id TEXT, query_id TEXT, position INTEGER, ok INTEGER, row TEXT, "
            "PRIMARY KEY (case_id, query_id))"
        )

    @classmethod
    def open(cls, folder: Path, manifest: RunManifest) -> RunStore:
        """Open a run folder, new or to be continued.

        Raises:
            ConfigError: The folder belongs to another run (the differing fields are named), or holds other files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / MANIFEST_NAME).is_file():
            changed = differences(read_manifest(folder), manifest)
            if changed:
                raise ConfigError(
                    f"run folder {folder} belongs to another run: {'; '.join(changed)}. Give another --out, or the "
                    "same settings to continue it"
                )
        elif any(folder.iterdir()):
            raise ConfigError(f"folder {folder} is not empty and holds no run; give an empty or new folder as --out")
        else:
            write_atomic(folder / MANIFEST_NAME, manifest.model_dump_json(indent=2) + "\n")
        return cls(folder)

    def finished(self) -> set[Key]:
        """Return the requests that ended without error."""
        with self._lock:
            rows = self._db.execute("SELECT case_id, query_id FROM results WHERE ok = 1").fetchall()
        return {(case_id, query_id) for case_id, query_id in rows}

    def put(self, row: dict[str, Any], position: int) -> None:
        """Commit one row (a failed request's earlier row is replaced).

        Args:
            row: The result row; ``error`` is ``None`` when the request ended well.
            position: Place of the request in the data, for a stable order.
        """
        values = (row["case_id"], row["query_id"], position, row["error"] is None, json.dumps(row, ensure_ascii=False))
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", values)

    def rows(self, keys: Sequence[Key] | None = None) -> list[dict[str, Any]]:
        """Return the stored rows in data order, all or those of ``keys``."""
        with self._lock:
            texts = self._db.execute("SELECT row FROM results ORDER BY position, case_id, query_id").fetchall()
        rows: list[dict[str, Any]] = [json.loads(text) for (text,) in texts]
        wanted = None if keys is None else set(keys)
        return [row for row in rows if wanted is None or (row["case_id"], row["query_id"]) in wanted]

    def export(self) -> Path:
        """Write ``results.jsonl`` (temporary name, then renamed) and return its path."""
        path = self.folder / RESULTS_NAME
        write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows()))
        return path

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


def read_manifest(folder: Path) -> RunManifest:
    """Return the manifest of a run folder.

    Raises:
        ConfigError: It cannot be read.
    """
    path = folder / MANIFEST_NAME
    try:
        return RunManifest.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as exc:
        reason = str(exc).splitlines()[0]
        raise ConfigError(f"{path} cannot be read ({reason}); it was made by another version or damaged") from exc


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a crash leaves the old or the new content, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
