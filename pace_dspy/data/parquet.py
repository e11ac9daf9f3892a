"""The hub's three parquet files, read under a declared schema. Paper: PACE release."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pace_dspy.data.json_release import CASE_ID_RULE
from pace_dspy.data.records import RawCase, RawTable
from pace_dspy.data.schema import is_case_id
from pace_dspy.errors import DataError

TABLES: tuple[str, ...] = ("corpus", "queries", "profiles")

REQUIRED: dict[str, tuple[str, ...]] = {
    "corpus": ("case_id", "doc_id", "text"),
    "queries": ("case_id", "query_id", "query", "label", "gold_doc_ids"),
    "profiles": ("case_id",),
}
"""Columns that a file must have; all others are optional."""

_SCHEMA: dict[str, str] = {
    "case_id": "text",
    "doc_id": "id",
    "text": "text",
    "query_id": "id",
    "query": "text",
    "label": "text",
    "judgment": "text",
    "gold_doc_ids": "list of ids",
    "window_start": "date",
    "ref_date": "date",
    "window_end": "date",
    "date": "date",
}


def find_files(folder: Path, table: str) -> list[Path]:
    """Return ``<table>.parquet`` or its shards ``<table>-*.parquet``, under ``folder`` or ``folder/data``.

    Args:
        folder: The dataset folder.
        table: One of `TABLES`.
    """
    for place in (folder / "data", folder):
        single = place / f"{table}.parquet"
        if single.is_file():
            return [single]
        if shards := sorted(place.glob(f"{table}-*.parquet")):
            return shards
    return []


def read_parquet(folder: Path, cases: Collection[str] | None = None) -> tuple[list[RawCase], list[str]]:
    """Read the three files.

    Args:
        folder: The folder that holds them, directly or in ``data``.
        cases: Only these, when given.

    Returns:
        The raw cases, and all case ids there are.

    Raises:
        DataError: A file is missing, unreadable, lacks a column, has one of a wrong type, or holds a bad case_id.
    """
    rows = {table: _read_table(folder, table, cases) for table in TABLES}
    profiles = {case_id: record for _, _, case_id, record in rows["profiles"][0]}
    grouped: dict[str, RawCase] = {}
    for table in ("corpus", "queries"):
        for file, number, case_id, record in rows[table][0]:
            raw = grouped.get(case_id)
            if raw is None:
                blank = {name: RawTable(file=str(find_files(folder, name)[0])) for name in ("corpus", "queries")}
                raw = grouped[case_id] = RawCase(case_id=case_id, profile=profiles.get(case_id), **blank)
            getattr(raw, table).rows.append((file, number, record))
    return list(grouped.values()), sorted(rows["corpus"][1] | rows["queries"][1])


def _read_table(
    folder: Path, table: str, cases: Collection[str] | None
) -> tuple[list[tuple[str, int, str, dict[str, Any]]], set[str]]:
    """Return (file, row number, case_id, record) of the wanted rows, and all case ids."""
    files = find_files(folder, table)
    if not files:
        expected = folder / "data" / f"{table}.parquet"
        raise DataError("missing file", file=str(expected), remedy=f"Give all of: {', '.join(TABLES)}.parquet")
    rows: list[tuple[str, int, str, dict[str, Any]]] = []
    all_ids: set[str] = set()
    for file in files:
        content = _read_file(file)
        _check_columns(file, table, content.schema)
        ids = content.column("case_id").to_pylist()
        for number, case_id in enumerate(ids, start=1):
            if case_id not in all_ids and not is_case_id(case_id):
                value = "null" if case_id is None else case_id
                raise DataError(
                    "bad case_id", file=str(file), row=number, field="case_id", value=value, remedy=CASE_ID_RULE
                )
            all_ids.add(case_id)
        positions = [position for position, case_id in enumerate(ids) if cases is None or case_id in cases]
        records = (
            content.take(pa.array(positions, pa.int64())).to_pylist() if cases is not None else content.to_pylist()
        )
        for position, record in zip(positions, records, strict=True):
            rows.append((str(file), position + 1, ids[position], record))
    return rows, all_ids


def _read_file(file: Path) -> Any:
    try:
        return pq.ParquetFile(file).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = f"unreadable parquet ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        raise DataError(problem, file=str(file), remedy="Download or write the file again") from error


def _check_columns(file: Path, table: str, schema: Any) -> None:
    for column in REQUIRED[table]:
        if column not in schema.names:
            raise DataError(
                f"required column {column!r} is missing",
                file=str(file),
                field=column,
                remedy=f"Add it; the file has: {', '.join(schema.names)}",
            )
    if table == "profiles":
        return
    for column, declared in _SCHEMA.items():
        if column in schema.names and not _fits(schema.field(column).type, declared):
            raise DataError(
                f"wrong column type, must be {declared}",
                file=str(file),
                field=column,
                value=str(schema.field(column).type),
                remedy=f"Write {column} as {declared}",
            )


def _fits(actual: Any, declared: str) -> bool:
    """Tell whether a column type is the declared one; an all-null column fits every optional field."""
    if pa.types.is_dictionary(actual):
        actual = actual.value_type
    is_text = pa.types.is_string(actual) or pa.types.is_large_string(actual) or pa.types.is_string_view(actual)
    if pa.types.is_null(actual) or is_text:
        return declared != "list of ids" or pa.types.is_null(actual)
    if declared == "id":
        return bool(pa.types.is_integer(actual))
    if declared == "date":
        return bool(pa.types.is_date(actual) or pa.types.is_timestamp(actual))
    if declared == "list of ids" and hasattr(actual, "value_type"):
        return _fits(actual.value_type, "id")
    return False
