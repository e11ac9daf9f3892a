"""What run folders hold: JSON that any text survives, and one line for a file that is damaged or cannot be written.

Ours.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pace_dspy.errors import ConfigError

ROW_FIELDS = (
    "case_id",
    "query_id",
    "label",
    "situation_type",
    "gold_doc_ids",
    "evidence",
    "cited",
    "decision",
    "response",
    "trace",
    "error",
)
"""Fields of every result row."""

REPLACEMENT = "\ufffd"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ENVIRONMENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
"""Primary SQLite codes that say something of the disk or of other processes, nothing of the file's content."""


def encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: each lone surrogate becomes U+FFFD, the replacement character."""
    return _LONE_SURROGATE.sub(REPLACEMENT, text)


def dumps(value: Any) -> str:
    """Return one line of JSON, readable and always encodable as UTF-8."""
    return encodable(json.dumps(value, ensure_ascii=False))


def parse_row(text: str) -> dict[str, Any]:
    """Return a result row.

    Raises:
        ValueError: It is no JSON object with `ROW_FIELDS`.
    """
    row = json.loads(text)
    if not isinstance(row, dict):
        raise ValueError(f"a row is no JSON object: {text[:40]!r}")
    missing = [name for name in ROW_FIELDS if name not in row]
    if missing:
        raise ValueError(f"a row has no field {missing[0]!r}: {text[:40]!r}")
    return row


def damaged(path: Path, reason: object) -> ConfigError:
    """Return the error for a file whose content cannot be used."""
    return ConfigError(f"{path} is damaged ({_one_line(reason)}); use another --out, or delete it")


@contextmanager
def reading_store(path: Path) -> Iterator[None]:
    """Turn what SQLite and JSON raise on a damaged or unusable store into a `ConfigError`."""
    try:
        yield
    except sqlite3.Error as exc:
        if getattr(exc, "sqlite_errorcode", 0) & 0xFF not in _ENVIRONMENT:
            raise damaged(path, exc) from exc
        raise ConfigError(
            f"{path} cannot be used ({_one_line(exc)}); give a run folder that can be written and that no other "
            "process holds"
        ) from exc
    except ConfigError:
        raise
    except (ValueError, TypeError, RecursionError) as exc:
        raise damaged(path, exc) from exc


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the refusal of the file system to make a file or folder into a `ConfigError`."""
    try:
        yield
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be written ({exc.strerror or exc}); give another --out, in a folder that can be written"
        ) from exc


def _one_line(reason: object) -> str:
    return (str(reason).splitlines() or ["unreadable"])[0]
