"""A tiny hand-made PACE dataset, and its writers: the same records as JSON folders and as parquet files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TIMELINE = {"window_start": "2026-01-05", "ref_date": "2026-03-18", "window_end": "2026-04-20"}


def persona(case_id: str = "tiny_a", full_name: str = "Ana Reis") -> dict[str, Any]:
    """Two requests over five facts; every record has only plain JSON values."""
    return {
        "case_id": case_id,
        "timeline": dict(TIMELINE),
        "corpus": [
            {"doc_id": "f1", "text": "Maya has eaten no meat since spring.", "source": "diary"},
            {"doc_id": "f2", "text": "Hearth serves game only until 21 March.", "date": "2026-03-02"},
            {"doc_id": "f3", "text": "Ana's café table is by the window — “hers”.", "score": 3},
            {"doc_id": "f4", "text": "The tram stops at midnight.", "tags": ["city", "night"]},
            {"doc_id": "f5", "text": "Rui owes Ana a lunch.", "meta": {"by": "Ana", "rank": 1}},
        ],
        "queries": [
            {
                "query_id": "q000",
                "query": "Book Hearth for Maya and me on Friday.",
                "label": "conflict",
                "situation_type": "personal",
                "gold_doc_ids": ["f2", "f1"],
                "judgment": "Maya eats no meat. Hearth serves only meat.",
            },
            {
                "query_id": "q001",
                "query": "Ask Rui for lunch.",
                "label": "non_conflict",
                "situation_type": "state",
                "gold_doc_ids": ["f5"],
                "judgment": "He owes her one. Nothing is against it.",
                "ref_date": "2026-03-20",
                "near_miss": "already solved",
            },
        ],
        "profile": {"spec": {"demographic": {"full_name": full_name, "age": 34}}},
    }


def write_json(root: Path, *personas: dict[str, Any]) -> Path:
    """Write the JSON folder release."""
    for case in personas:
        folder = root / "kb" / case["case_id"]
        folder.mkdir(parents=True)
        for name in ("corpus", "queries"):
            _dump(folder / f"{name}.json", {"timeline": case["timeline"], name: case[name]})
        (root / "profile").mkdir(exist_ok=True)
        _dump(root / "profile" / f"{case['case_id']}.json", case["profile"])
    return root


def write_parquet(root: Path, *personas: dict[str, Any], folder: str = "data", **columns: Any) -> Path:
    """Write the hub's three files; ``columns`` adds one column with one value to the queries."""
    (root / folder).mkdir(parents=True)
    tables: dict[str, list[dict[str, Any]]] = {"corpus": [], "queries": [], "profiles": []}
    for case in personas:
        for name in ("corpus", "queries"):
            tables[name] += [
                {"case_id": case["case_id"], **case["timeline"], **row} for row in copy.deepcopy(case[name])
            ]
        tables["profiles"].append({"case_id": case["case_id"], **case["profile"]})
    for row in tables["queries"]:
        row.update(columns)
    for name, rows in tables.items():
        names = list(dict.fromkeys(key for row in rows for key in row))
        table = pa.Table.from_pylist([{key: row.get(key) for key in names} for row in rows])
        pq.write_table(table, root / folder / f"{name}.parquet")
    return root


def edit_json(path: Path, change: Any) -> None:
    """Apply ``change`` to the content of a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    _dump(path, content)


def _dump(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
