"""The append-only log of changes since a data folder was written: a record is whole, or it never happened. Ours.

A record is its length, its CRC-32 and JSON. The vectors of new facts are in the file of vectors, on disk before the
record is, with their own CRC in it. Readers stop at the first record that is not whole; the next writer cuts it off.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pace_dspy.retrieval.base import FloatMatrix
from pace_dspy.retrieval.fsync import flush
from pace_dspy.types import Fact

LOG = "updates.log"
_HEAD = struct.Struct("<II")


@dataclass(frozen=True)
class LogRecord:
    """One change.

    Attributes:
        version: The KB's version after it.
        content_hash: Of all facts after it.
        n_facts: Facts after it.
        removed: Ids taken out.
        added: ``(doc_id, text, ISO date or None)`` put at the end, after the removal.
        first_row: Row of the first new fact in the file of vectors; the others follow.
        vectors_crc: CRC-32 of the new rows.
    """

    version: int
    content_hash: str
    n_facts: int
    removed: tuple[str, ...]
    added: tuple[tuple[str, str, str | None], ...]
    first_row: int
    vectors_crc: int

    @property
    def facts(self) -> list[Fact]:
        """The new facts."""
        return [
            Fact(doc_id, text, None if date is None else dt.date.fromisoformat(date))
            for doc_id, text, date in self.added
        ]


def crc_of(vectors: FloatMatrix) -> int:
    """Return the CRC-32 of rows as they lie in the file."""
    return zlib.crc32(vectors.tobytes())


def read_log(folder: Path, start: int = 0) -> tuple[list[LogRecord], int]:
    """Read the whole records from ``start`` on.

    Returns:
        The records, and where the last of them ends.
    """
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return [], start
    records: list[LogRecord] = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(payload) < length or zlib.crc32(payload) != crc:
            break
        records.append(_parse(json.loads(payload)))
        at += _HEAD.size + length
    return records, start + at


def append_record(folder: Path, end: int, record: LogRecord) -> int:
    """Write a record after the last whole one and wait until it is on disk.

    Args:
        folder: The data folder.
        end: Where the last whole record ends; what follows is the rest of a crash.
        record: The change.

    Returns:
        Where the new record ends.

    Raises:
        OSError: It cannot be written; the log is as it was.
    """
    payload = json.dumps(dataclasses.asdict(record)).encode()
    data = _HEAD.pack(len(payload), zlib.crc32(payload)) + payload
    is_new = not (folder / LOG).exists()
    write_at(folder / LOG, end, data)
    if is_new:
        flush(folder)
    return end + len(data)


def write_at(path: Path, start: int, data: bytes) -> None:
    """Cut a file at ``start``, write ``data`` there and wait until it is on disk.

    Raises:
        OSError: It cannot be written; the file is cut again.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        os.ftruncate(descriptor, start)
        os.lseek(descriptor, start, os.SEEK_SET)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, start)
            raise
    finally:
        os.close(descriptor)


def _parse(raw: dict[str, Any]) -> LogRecord:
    raw["removed"] = tuple(raw["removed"])
    raw["added"] = tuple((doc_id, text, date) for doc_id, text, date in raw["added"])
    return LogRecord(**raw)
