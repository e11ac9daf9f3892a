"""Build the shipped dataset ``pace_dspy/data/mini/`` from its hand-written sources. Ours.

python experiments/build_mini.py            writes kb/, profile/ and split.json
python experiments/build_mini.py --check    exits 1 when the shipped files are not what the sources give

Facts and requests are shuffled with a fixed seed a persona, and ids are given after the shuffle, so that neither
order nor id tells gold facts from others or one label from the other.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from pace_dspy.data import fixed_split, load_pace, mini_path, save_split

SOURCE = Path(__file__).parent / "mini_source"
SPLIT = {
    "train": ("mini_01", "mini_02", "mini_03"),
    "dev": ("mini_04", "mini_05"),
    "test": ("mini_06", "mini_07", "mini_08", "mini_xl"),
}
CASES = tuple(case_id for part in SPLIT.values() for case_id in part)
_BUILT = ("kb", "profile", "split.json")


def build_case(source: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Turn one source into the contents of corpus.json, queries.json and the profile.

    Args:
        source: The YAML of one persona.

    Returns:
        The three JSON documents.

    Raises:
        SystemExit: A ``ref`` names no fact, or an ``id`` is given twice.
    """
    case_id = source["case_id"]
    timeline = {name: str(source["timeline"][name]) for name in ("window_start", "ref_date", "window_end")}
    texts: list[str] = []
    named: dict[str, int] = {}

    def add(entry: str | dict[str, str]) -> int:
        fact = {"text": entry} if isinstance(entry, str) else entry
        if "ref" in fact:
            if fact["ref"] not in named:
                raise SystemExit(f"{case_id}: ref {fact['ref']!r} names no earlier fact with that id")
            return named[fact["ref"]]
        if "id" in fact:
            if fact["id"] in named:
                raise SystemExit(f"{case_id}: id {fact['id']!r} is given twice")
            named[fact["id"]] = len(texts)
        texts.append(" ".join(fact["text"].split()))
        return len(texts) - 1

    for entry in source["background"]:
        add(entry)
    gold: list[list[int]] = []
    for request in source["requests"]:
        gold.append([add(entry) for entry in request["gold"]])
        for entry in request["distractors"]:
            add(entry)

    shuffle = random.Random(f"pace-mini {case_id}")
    order = list(range(len(texts)))
    shuffle.shuffle(order)
    doc_ids = {position: f"f{number:04d}" for number, position in enumerate(order, start=1)}
    corpus = [{"doc_id": doc_ids[position], "text": texts[position]} for position in order]
    asked = list(zip(source["requests"], gold, strict=True))
    shuffle.shuffle(asked)
    queries = []
    for number, (request, positions) in enumerate(asked):
        query = {
            "query_id": f"q{number:03d}",
            "query": " ".join(request["query"].split()),
            "label": request["label"],
            "situation_type": request["situation_type"],
            "gold_doc_ids": [doc_ids[position] for position in positions],
            "judgment": " ".join(request["judgment"].split()),
        }
        queries.append(query | ({"near_miss": request["near_miss"]} if "near_miss" in request else {}))
    profile = {"spec": {"demographic": {"full_name": source["full_name"], **source["demographic"]}}}
    return {"timeline": timeline, "corpus": corpus}, {"timeline": timeline, "queries": queries}, profile


def build(out: Path, *, source_dir: Path = SOURCE, allow_missing: bool = False) -> list[str]:
    """Write the dataset.

    Args:
        out: Folder to write to; its kb/, profile/ and split.json are replaced, other files stay.
        source_dir: Folder of the YAML sources.
        allow_missing: Build what there is when sources are missing.

    Returns:
        The case ids written.

    Raises:
        SystemExit: A source is missing or its case_id is not its file name.
    """
    missing = [case_id for case_id in CASES if not (source_dir / f"{case_id}.yaml").is_file()]
    if missing and not allow_missing:
        raise SystemExit(f"{source_dir}: no source for {', '.join(missing)} (--allow-missing builds the others)")
    case_ids = [case_id for case_id in CASES if case_id not in missing]
    built: dict[Path, dict[str, Any]] = {}
    for case_id in case_ids:
        source = yaml.safe_load((source_dir / f"{case_id}.yaml").read_text(encoding="utf-8"))
        if source["case_id"] != case_id:
            raise SystemExit(f"{case_id}.yaml: case_id is {source['case_id']!r}")
        corpus, queries, profile = build_case(source)
        built[out / "kb" / case_id / "corpus.json"] = corpus
        built[out / "kb" / case_id / "queries.json"] = queries
        built[out / "profile" / f"{case_id}.json"] = profile
    for folder in ("kb", "profile"):
        shutil.rmtree(out / folder, ignore_errors=True)
    for path, content in built.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_dump(content), encoding="utf-8")
    dataset = load_pace(out, name="mini")
    parts = {part: [case_id for case_id in ids if case_id in case_ids] for part, ids in SPLIT.items()}
    save_split(fixed_split(dataset, **parts), out / "split.json")
    return case_ids


def differences(shipped: Path, *, source_dir: Path = SOURCE, allow_missing: bool = False) -> list[str]:
    """Return the files of ``shipped`` that are not what the sources give, empty when all are equal."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        build(fresh, source_dir=source_dir, allow_missing=allow_missing)
        wanted, found = _contents(fresh), _contents(shipped)
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def _contents(folder: Path) -> dict[str, bytes]:
    files = [path for name in _BUILT for path in [folder / name, *(folder / name).rglob("*")] if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _dump(content: dict[str, Any]) -> str:
    """Return JSON with one fact a line, so that a changed fact is a changed line."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in value)
            lines.append(f"  {json.dumps(key)}: [\n{rows}\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Build or check; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing, compare the shipped files with the sources"
    )
    parser.add_argument("--out", type=Path, default=mini_path(), help="folder to write or compare (default: shipped)")
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder of the YAML sources")
    parser.add_argument("--allow-missing", action="store_true", help="build what there is when sources are missing")
    arguments = parser.parse_args()
    options = {"source_dir": arguments.source, "allow_missing": arguments.allow_missing}
    if arguments.check:
        changed = differences(arguments.out, **options)
        print(
            "\n".join(f"differs from its source: {name}" for name in changed) or "the shipped files equal the sources"
        )
        return 1 if changed else 0
    print(f"{arguments.out}: {', '.join(build(arguments.out, **options))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
