"""Our reply cache: only replies that passed validation, keyed by backend identity and the exact request.

DSPy's own cache leaves the server address out of its key and keeps replies that cannot be parsed,
so it is switched off at our boundary. SQLite, plain JSON values, safe for threads and processes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import platformdirs

from pace_dspy.errors import ConfigError

log = logging.getLogger(__name__)
CACHE_ENV = "PACE_CACHE_DIR"


def default_cache_dir() -> Path:
    """Return ``$PACE_CACHE_DIR``, or the user's cache folder."""
    override = os.environ.get(CACHE_ENV)
    return Path(override) if override else Path(platformdirs.user_cache_dir("pace_dspy")) / "replies"


def reply_key(identity: str, request: dict[str, Any], rollout_id: object = None) -> str:
    """Return the cache key: SHA-256 (hex) over who is asked, what is asked, and which rollout."""
    payload = json.dumps([identity, request, rollout_id], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(payload.encode()).hexdigest()


class ReplyCache:
    """A key-value store of validated replies in one SQLite file.

    Args:
        folder: Folder of the cache file; created when missing.

    Raises:
        ConfigError: The file cannot be opened or is damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or default_cache_dir()
        path = folder / "replies.sqlite"
        self._lock = threading.Lock()
        self._complained = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        except (OSError, sqlite3.Error) as exc:
            raise ConfigError(
                f"the reply cache {path} cannot be used ({exc}); delete the file, set {CACHE_ENV} to another folder, "
                "or run with --no-cache"
            ) from exc

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the stored reply, or ``None``."""
        try:
            with self._lock:
                row = self._db.execute("SELECT value FROM replies WHERE key = ?", (key,)).fetchone()
            value = None if row is None else json.loads(row[0])
        except (sqlite3.Error, ValueError) as exc:
            self._complain(exc)
            return None
        return value if isinstance(value, dict) else None

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Store a validated reply (JSON-serialisable); a full disk loses the entry, never the request."""
        text = json.dumps(value, ensure_ascii=False)
        try:
            with self._lock:
                self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, text))
        except sqlite3.Error as exc:
            self._complain(exc)

    def _complain(self, exc: Exception) -> None:
        if not self._complained:
            self._complained = True
            log.warning("the reply cache does not work (%s); replies are asked for anew", exc)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
