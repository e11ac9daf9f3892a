"""Verdicts in the run store: one committed row a judged response and judge, so that judges sit side by side."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from pace_dspy.evaluation.scores import Key
from pace_dspy.evaluation.stored import dumps, encodable

if TYPE_CHECKING:
    from pace_dspy.evaluation.store import RunStore

TABLES = (
    "CREATE TABLE IF NOT EXISTS judges (judge TEXT PRIMARY KEY, chosen INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS verdicts (case_id TEXT, query_id TEXT, judge TEXT, verdict TEXT, reason TEXT, "
    "error TEXT, usage TEXT, PRIMARY KEY (case_id, query_id, judge))",
)


class VerdictStore:
    """The verdicts of one judge in one run; a `pace_dspy.evaluation.flight.Sink`.

    Args:
        store: The run.
        db: Its connection.
        lock: Guards the connection.
        judge: Who judges: backend, model, address and judge prompt (`pace_dspy.evaluation.judging.judge_identity`).
    """

    def __init__(self, store: RunStore, db: sqlite3.Connection, lock: threading.Lock, judge: str) -> None:
        self.judge = judge
        self._store, self._db, self._lock = store, db, lock

    def finished(self) -> set[Key]:
        """Return the requests with a verdict; judge errors are asked again."""
        return {key for key, row in self.rows().items() if row["verdict"] is not None}

    def put(self, row: dict[str, Any], position: int) -> None:
        """Commit one verdict or judge error (an earlier error is replaced).

        Args:
            row: ``case_id``, ``query_id``, ``verdict``, ``reason``, ``error``, ``usage``.
            position: Not stored; the order is that of the run's rows.
        """
        reason = None if row["reason"] is None else encodable(row["reason"])
        error, usage = (dumps(row[name]) for name in ("error", "usage"))
        values = (row["case_id"], row["query_id"], self.judge, row["verdict"], reason, error, usage)
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def rows(self) -> dict[Key, dict[str, Any]]:
        """Return ``verdict``, ``reason``, ``error`` and ``usage`` by request."""
        with self._lock:
            found = self._db.execute(
                "SELECT case_id, query_id, verdict, reason, error, usage FROM verdicts WHERE judge = ?", (self.judge,)
            ).fetchall()
        return {
            (case_id, query_id): {
                "verdict": verdict,
                "reason": reason,
                "error": json.loads(error),
                "usage": json.loads(usage),
            }
            for case_id, query_id, verdict, reason, error, usage in found
        }

    def choose(self) -> None:
        """Make this the judge whose verdicts the run's rows carry."""
        with self._lock:
            self._db.execute(
                "INSERT OR REPLACE INTO judges SELECT ?, COALESCE(MAX(chosen), 0) + 1 FROM judges", (self.judge,)
            )

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep other processes from judging this run meanwhile."""
        return self._store.exclusive("judge")


def chosen_judge(db: sqlite3.Connection) -> str | None:
    """Return the judge chosen last, ``None`` before the first."""
    row = db.execute("SELECT judge FROM judges ORDER BY chosen DESC LIMIT 1").fetchone()
    return None if row is None else str(row[0])
