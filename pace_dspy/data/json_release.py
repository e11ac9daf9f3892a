"""The JSON folder release: ``kb/<case_id>/corpus.json``, ``kb/<case_id>/queries.json``, ``profile/<case_id>.json``.

Paper: PACE release (what its own download script writes).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from pace_dspy.data.records import RawCase, RawTable
from pace_dspy.data.schema import is_case_id
from pace_dspy.errors import DataError

CASE_ID_RULE = "Allowed: ASCII letters, digits, '.', '_' and '-', up to 100 characters, not '.' or '..'"


def read_json_release(kb_dir: Path, profile_dir: Path, cases: Collection[str] | None = None) -> Iterator[RawCase]:
    """Read the persona folders.

    Args:
        kb_dir: The folder ``kb``.
        profile_dir: The folder ``profile``.
        cases: Only these, when given.

    Yields:
        One raw case a folder, in the order of the folder names.

    Raises:
        DataError: A folder name is no case_id, or a file is missing, unreadable or of another form.
    """
    for case_id in list_cases(kb_dir):
        if cases is not None and case_id not in cases:
            continue
        folder, profile_file = kb_dir / case_id, profile_dir / f"{case_id}.json"
        profile = read_json(profile_file) if profile_file.exists() else None
        if profile is not None and not isinstance(profile, Mapping):
            raise _wrong_form(profile_file, profile, "one object")
        yield RawCase(
            case_id=case_id,
            corpus=_read_table(folder / "corpus.json", "corpus"),
            queries=_read_table(folder / "queries.json", "queries"),
            profile=profile,
        )


def list_cases(kb_dir: Path) -> list[str]:
    """Return the case ids of a ``kb`` folder, sorted; hidden folders are no cases.

    Raises:
        DataError: A folder name may not be a case_id.
    """
    names = sorted(path.name for path in kb_dir.iterdir() if path.is_dir() and not path.name.startswith("."))
    for name in names:
        if not is_case_id(name):
            raise DataError(
                "bad case_id (folder name)", file=str(kb_dir / name), field="case_id", value=name, remedy=CASE_ID_RULE
            )
    return names


def read_json(path: Path) -> object:
    """Read one JSON file in UTF-8, with or without a byte order mark.

    Raises:
        DataError: It is missing or cannot be read.
    """
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError as error:
        raise DataError("missing file", file=str(path), remedy="Complete the folder") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        where = getattr(error, "lineno", None)
        problem = f"unreadable JSON ({error})"
        raise DataError(problem, file=str(path), row=where, remedy="Write one valid JSON document in UTF-8") from error


def _read_table(path: Path, key: str) -> RawTable:
    content = read_json(path)
    timeline: object = {}
    if isinstance(content, Mapping):
        if key not in content:
            raise DataError(
                f"required field {key!r} is missing",
                file=str(path),
                field=key,
                remedy=f"Write {{'timeline': ..., '{key}': [...]}} or a bare list; the file has: {', '.join(content)}",
            )
        timeline, content = content.get("timeline") or {}, content[key]
    if not isinstance(content, list):
        raise _wrong_form(path, content, f"a list of rows, bare or under {key!r}")
    rows = [(str(path), number, record) for number, record in enumerate(content, start=1)]
    return RawTable(file=str(path), rows=rows, timeline=timeline)


def _wrong_form(path: Path, content: object, allowed: str) -> DataError:
    problem = f"wrong type {type(content).__name__}, must be {allowed}"
    return DataError(problem, file=str(path), value=content, remedy="See the layout in the README")
