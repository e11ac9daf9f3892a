"""The words, ids, dates and values that PACE data may hold, and how each is normalised. Ours."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pace_dspy.types import SITUATION_TYPES, Case, Label, SituationType

TIMELINE_FIELDS: tuple[str, ...] = ("window_start", "ref_date", "window_end")
"""The three dates of a persona: start of its window, the reference date, end of the window. Paper: PACE release."""

SITUATION_COLUMNS: tuple[str, ...] = ("situation_type", "situation", "type", "category", "conflict_type", "taxonomy")
"""Names under which the situation type is looked for, in this order, any case. Ours: the release does not say."""

MAX_CASE_ID_CHARS = 100
"""Longest case_id, as it becomes part of a path. Ours."""

_CASE_ID = re.compile(r"[A-Za-z0-9._-]+")
_ISO_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ]\d{2}:\d{2}.*)?")
_LABEL_WORDS: dict[str, Label] = {
    "conflict": "conflict",
    "non_conflict": "non_conflict",
    "nonconflict": "non_conflict",
    "no_conflict": "non_conflict",
    "noconflict": "non_conflict",
    "not_conflict": "non_conflict",
}


class DataWarning(UserWarning):
    """Data was loaded, but something in it is missing or unusual; raised once a load and kind."""


def normalise_label(value: object) -> Label | None:
    """Return the label that ``value`` spells, whatever its case and separators.

    Args:
        value: For example ``"non-conflict"``, ``"No Conflict"``, ``"CONFLICT"``.

    Returns:
        ``"conflict"``, ``"non_conflict"``, or ``None`` when it is neither.
    """
    return _LABEL_WORDS.get("_".join(_words(value)))


def normalise_situation_type(value: object) -> SituationType | None:
    """Return the situation type that ``value`` names ("State", "temporal conflict"), or ``None``.

    Args:
        value: Text with exactly one of the words temporal, personal, state.
    """
    words = _words(value)
    found = [kind for kind in SITUATION_TYPES if kind in words]
    return found[0] if len(found) == 1 else None


def find_situation_type(row: Mapping[str, Any]) -> tuple[str | None, SituationType | None]:
    """Find the situation type of a request among the accepted column names.

    Args:
        row: One request, plain values.

    Returns:
        The column that holds it and the type; both ``None`` when no accepted column has a known type.
    """
    for alias in SITUATION_COLUMNS:
        for column, value in row.items():
            if column.strip().lower() == alias and (kind := normalise_situation_type(value)):
                return column, kind
    return None, None


def is_case_id(value: object) -> bool:
    """Tell whether ``value`` may be a case_id: letters, digits, ``.``, ``_``, ``-``, and safe as a folder name."""
    return (
        isinstance(value, str)
        and _CASE_ID.fullmatch(value) is not None
        and value not in (".", "..")
        and len(value) <= MAX_CASE_ID_CHARS
    )


def parse_date(value: object) -> dt.date:
    """Read a date; of a date with a time the date part counts, as written.

    Args:
        value: ``YYYY-MM-DD`` text (a time may follow), a ``date`` or a ``datetime``.

    Returns:
        The date.

    Raises:
        ValueError: It is not a date of the calendar.
    """
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    match = _ISO_DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a date of the form YYYY-MM-DD")
    return dt.date.fromisoformat(match[1])


def to_plain(value: Any) -> Any:
    """Turn numpy, pyarrow and date values into plain Python, as JSON would hold them.

    Keys whose value is ``None`` or empties to ``{}`` are dropped at every depth, because parquet adds such
    keys to records that do not have them; places in a list are kept. NaN is ``None``, dates are ISO text.

    Args:
        value: Anything that a parquet or JSON reader gives.

    Returns:
        Nested dict, list, str, int, float, bool or ``None``; a value of another kind becomes its text.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas' own nulls
        return None
    if isinstance(value, float):
        return None if value != value else float(value)
    if isinstance(value, Mapping):
        plain = ((str(key), to_plain(item)) for key, item in value.items())
        return {key: item for key, item in plain if item is not None and item != {}}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, dt.datetime):
        day_only = value.time() == dt.time() and value.tzinfo is None
        return value.date().isoformat() if day_only else value.isoformat()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return to_plain(float(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="backslashreplace")
    if getattr(getattr(value, "dtype", None), "kind", "") == "M":  # numpy dates finer than microseconds
        value = value.astype("datetime64[us]")
    for unwrap in ("as_py", "tolist"):  # pyarrow scalars; numpy scalars and arrays
        if hasattr(value, unwrap):
            return to_plain(getattr(value, unwrap)())
    return str(value)


def content_hash(cases: Iterable[Case]) -> str:
    """Hash all records: timeline, persona, facts and requests of each case, in order.

    Args:
        cases: The cases of a dataset.

    Returns:
        SHA-256 in hex; equal records give an equal hash from any format (``3`` and ``3.0`` are equal).
    """
    digest = hashlib.sha256()
    for case in cases:
        head = dataclasses.replace(case, facts=(), requests=())
        for record in (head, *case.facts, *case.requests):
            line = json.dumps(_canonical(vars(record)), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            digest.update(line.encode("utf-8", errors="surrogatepass") + b"\n")
    return digest.hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.isoformat() if isinstance(value, dt.date) else value


def _words(value: object) -> list[str]:
    return re.findall(r"[a-z]+", value.lower()) if isinstance(value, str) else []
