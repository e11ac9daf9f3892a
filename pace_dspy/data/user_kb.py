"""A user's own facts from JSONL, CSV or plain text, one fact a line. Ours."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

from pace_dspy.data.rows import Row
from pace_dspy.errors import DataError
from pace_dspy.paths import as_path
from pace_dspy.types import Fact

MAX_FACT_CHARS = 5_000
"""Longest fact accepted; a fact is one sentence, so more is a document that was not split. Ours."""

MAX_FILE_MB = 200
"""Largest file accepted. Ours."""

FORMATS: dict[str, str] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    "": "text",
}
"""Format by file name ending."""

KB_SUFFIXES = tuple(ending for ending in FORMATS if ending)
"""What tells a file of facts from the name of a knowledge base."""

_KNOWN = ("doc_id", "text", "date")


def load_kb(path: str | Path) -> tuple[Fact, ...]:
    """Load a user's own knowledge base.

    Args:
        path: ``.jsonl`` (one object a line), ``.csv`` (with a header) or plain text (one fact a line), in UTF-8.
            Fields: ``text``, optionally ``doc_id`` and ``date`` (YYYY-MM-DD); others become metadata.

    Returns:
        The facts in file order. White space inside a text is collapsed. A missing ``doc_id`` is made from the
        text and date, so that it stays the same when other lines change.

    Raises:
        DataError: The file is missing, binary, too large, of an unknown form or without facts, or a line is
            refused (empty text, duplicate ``doc_id``, bad date, wrong type, far too long).
    """
    path = as_path(path, "the file of facts").expanduser()
    readers = {"jsonl": _jsonl_rows, "csv": _csv_rows, "text": _text_rows}
    kind = FORMATS.get(path.suffix.lower())
    content = _read_text(path)
    if kind is None:
        raise DataError(
            f"unknown file ending {path.suffix!r}", file=str(path), remedy="Allowed: .jsonl, .ndjson, .csv, .txt, .md"
        )
    rows = list(readers[kind](str(path), content))
    if not rows:
        raise DataError("no facts in the file", file=str(path), remedy="Write at least one fact")
    return tuple(_facts(rows))


def _facts(rows: list[Row]) -> Iterator[Fact]:
    taken: dict[str, Row] = {}
    for row in rows:
        if "doc_id" in row.values:
            doc_id = row.identifier("doc_id")
            if doc_id in taken:
                problem = f"doc_id occurs twice (first in row {taken[doc_id].number})"
                raise row.refuse(problem, field="doc_id", value=doc_id, remedy="Give every fact its own doc_id")
            taken[doc_id] = row
    for row in rows:
        text, date = " ".join(row.text("text").split()), row.date("date")
        if len(text) > MAX_FACT_CHARS:
            problem = f"the text has {len(text)} characters, at most {MAX_FACT_CHARS} are allowed"
            raise row.refuse(problem, field="text", value=text, remedy="Write one fact a line")
        doc_id = str(row.values.get("doc_id") or _make_id(f"{date or ''}|{text}", taken))
        taken[doc_id] = row
        metadata = {key: value for key, value in row.values.items() if key not in _KNOWN}
        yield Fact(doc_id=doc_id, text=text, date=date, metadata=metadata)


def _make_id(content: str, taken: dict[str, Row]) -> str:
    stem = f"fact-{hashlib.sha256(content.encode('utf-8', errors='surrogatepass')).hexdigest()[:12]}"
    doc_id, copy = stem, 2
    while doc_id in taken:
        doc_id, copy = f"{stem}-{copy}", copy + 1
    return doc_id


def _read_text(path: Path) -> str:
    if not path.exists():
        raise DataError("no such file", file=str(path), remedy="Give a .jsonl, .csv or .txt file with one fact a line")
    if path.is_dir():
        remedy = "Give a file with one fact a line; PACE folders are loaded with load_pace"
        raise DataError("this is a folder, not a file", file=str(path), remedy=remedy)
    if not (path.is_file() or path.is_fifo()):
        remedy = "Give a file or a pipe with one fact a line"
        raise DataError("this is a device or socket, not a file", file=str(path), remedy=remedy)
    limit = int(MAX_FILE_MB * 1_000_000)
    try:
        with path.open("rb") as stream:  # once, as a pipe can be read only once
            content = stream.read(limit + 1)
        if len(content) > limit:
            raise DataError(f"the file is larger than {MAX_FILE_MB} MB", file=str(path), remedy="Split it")
        if b"\0" in content:
            raise DataError("binary file or not UTF-8", file=str(path), remedy="Save it as plain text in UTF-8")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = "binary file or not UTF-8"
        raise DataError(problem, file=str(path), row=line, remedy="Save it as plain text in UTF-8") from error
    except OSError as error:
        raise DataError(f"unreadable ({error})", file=str(path), remedy="Check the file's permissions") from error


def _text_rows(file: str, content: str) -> Iterator[Row]:
    for number, line in _lines(content):
        yield Row.of(file, number, {"text": line})


def _jsonl_rows(file: str, content: str) -> Iterator[Row]:
    for number, line in _lines(content):
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            problem, remedy = f"unreadable JSON ({error})", 'Write one object a line: {"text": "..."}'
            raise DataError(problem, file=file, row=number, value=line, remedy=remedy) from error
        yield Row.of(file, number, record)


def _csv_rows(file: str, content: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = _header(file, reader.line_num, cells)
                continue
            if len(cells) > len(header):
                problem = f"{len(cells)} cells under {len(header)} column names"
                remedy = 'Put a text that holds commas into double quotes: "..."'
                raise DataError(problem, file=file, row=reader.line_num, value=cells, remedy=remedy)
            named = {key: cell.strip() for key, cell in zip(header, cells, strict=False)}
            filled = {key: cell for key, cell in named.items() if cell or key == "text"}
            yield Row.of(file, reader.line_num, filled)
    except csv.Error as error:
        problem, remedy = f"unreadable CSV ({error})", "Check the double quotes around the texts"
        raise DataError(problem, file=file, row=reader.line_num, remedy=remedy) from error


def _header(file: str, number: int, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    header = [name.lower() if name.lower() in _KNOWN else name for name in header]
    if "text" not in header:
        remedy = f"Name the columns in the first line (text, optionally doc_id, date); it has: {', '.join(header)}"
        raise DataError("required column 'text' is missing", file=file, row=number, field="text", remedy=remedy)
    if len(set(header)) < len(header):
        remedy = "Give every column its own name"
        raise DataError("two columns have one name", file=file, row=number, value=header, remedy=remedy)
    return header


def _lines(content: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank with their number; LF, CR LF and CR end a line, nothing else."""
    unix = content.replace("\r\n", "\n").replace("\r", "\n")
    for number, line in enumerate(unix.split("\n"), start=1):
        if line.strip():
            yield number, line.strip()
