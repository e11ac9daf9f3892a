"""PACE-mini as shipped, and its build script."""

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from pace_dspy.data import load_mini_split, load_pace, load_split, mini_path, select_split, validate

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build_mini():
    spec = importlib.util.spec_from_file_location("build_mini", ROOT / "experiments" / "build_mini.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_mini"] = module
    spec.loader.exec_module(module)
    return module


SOURCE = {
    "case_id": "mini_01",
    "full_name": "Ana Reis",
    "demographic": {"age": 34, "city": "Port"},
    "timeline": {"window_start": "2026-01-05", "ref_date": "2026-03-18", "window_end": "2026-04-20"},
    "background": [f"Background fact number {number}." for number in range(20)],
    "requests": [
        {
            "query": f"Request {number}.",
            "label": label,
            "situation_type": "state",
            "judgment": "So it is.",
            "gold": ([{"id": "k1", "text": "Shared fact."}] if number == 0 else [{"ref": "k1"}])
            + [f"Gold of {number}."],
            "distractors": [f"Distractor of {number}."],
            **({} if label == "conflict" else {"near_miss": "other week"}),
        }
        for number, label in enumerate(["conflict"] * 3 + ["non_conflict"] * 3)
    ],
}


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "sources"
    folder.mkdir()
    for case_id in ("mini_01", "mini_02"):
        (folder / f"{case_id}.yaml").write_text(yaml.safe_dump(SOURCE | {"case_id": case_id}), encoding="utf-8")
    return folder


def test_a_build_holds_what_the_source_says(build_mini, sources, tmp_path):
    out = tmp_path / "out"
    assert build_mini.build(out, source_dir=sources, allow_missing=True) == ["mini_01", "mini_02"]
    dataset = load_pace(out, name="mini")
    case = dataset.case("mini_01")
    by_id = {fact.doc_id: fact.text for fact in case.facts}
    assert (case.persona, len(case.facts)) == ("Ana Reis", 20 + 1 + 6 + 6)
    for request in case.requests:
        number = request.query.split()[1].rstrip(".")
        assert [by_id[doc_id] for doc_id in request.gold_doc_ids] == ["Shared fact.", f"Gold of {number}."]
        assert request.metadata == ({} if request.label == "conflict" else {"near_miss": "other week"})
    assert [fact.doc_id for fact in case.facts] == [f"f{number:04d}" for number in range(1, 34)]
    assert [request.query_id for request in case.requests] == [f"q00{number}" for number in range(6)]
    split = load_split(out / "split.json", dataset)
    assert (split.train, split.dev, split.test) == (("mini_01", "mini_02"), (), ())


def test_neither_order_nor_id_gives_gold_or_label_away(build_mini):
    corpus, queries, _ = build_mini.build_case(SOURCE)
    texts = [fact["text"] for fact in corpus["corpus"]]
    assert texts[:20] != SOURCE["background"]
    assert texts != sorted(texts)
    assert [row["label"] for row in queries["queries"]] not in (
        ["conflict"] * 3 + ["non_conflict"] * 3,
        ["non_conflict"] * 3 + ["conflict"] * 3,
    )
    other, _, _ = build_mini.build_case(SOURCE | {"case_id": "mini_02"})
    assert [fact["text"] for fact in other["corpus"]] != texts


def test_the_check_names_changed_missing_and_stale_files(build_mini, sources, tmp_path):
    out = tmp_path / "out"
    build_mini.build(out, source_dir=sources, allow_missing=True)
    (out / "README.md").write_text("kept")
    options = {"source_dir": sources, "allow_missing": True}
    assert build_mini.differences(out, **options) == []
    (out / "profile" / "mini_02.json").unlink()
    (out / "profile" / "old.json").write_text("{}")
    queries = out / "kb" / "mini_01" / "queries.json"
    queries.write_text(queries.read_text().replace("Request 1", "Request X"))
    assert build_mini.differences(out, **options) == [
        "kb/mini_01/queries.json",
        "profile/mini_02.json",
        "profile/old.json",
    ]
    build_mini.build(out, **options)
    assert build_mini.differences(out, **options) == []
    assert (out / "README.md").read_text() == "kept"


def test_bad_sources_are_refused(build_mini, sources, tmp_path):
    with pytest.raises(SystemExit, match=r"no source for mini_03, .*--allow-missing builds the others"):
        build_mini.build(tmp_path / "out", source_dir=sources)
    unknown = SOURCE | {"requests": [SOURCE["requests"][1]]}
    with pytest.raises(SystemExit, match="ref 'k1' names no earlier fact with that id"):
        build_mini.build_case(unknown)
    twice = SOURCE | {"background": [{"id": "k1", "text": "One."}, {"id": "k1", "text": "Two."}]}
    with pytest.raises(SystemExit, match="id 'k1' is given twice"):
        build_mini.build_case(twice)


# The shipped files

shipped = pytest.mark.skipif(not (mini_path() / "kb").is_dir(), reason="pace_dspy/data/mini/kb is not built yet")


@shipped
def test_the_shipped_files_equal_their_sources(build_mini):
    if not all((build_mini.SOURCE / f"{case_id}.yaml").is_file() for case_id in build_mini.CASES):
        pytest.skip("experiments/mini_source is not complete")
    assert build_mini.differences(mini_path()) == []


@shipped
def test_the_shipped_dataset_is_valid():
    report = validate("mini")
    assert report.rules == "mini"
    assert report.errors == (), report.to_text()


@shipped
def test_the_shipped_split_covers_every_persona():
    dataset = load_pace("mini")
    split = load_mini_split(dataset)
    assert split.train == ("mini_01", "mini_02", "mini_03")
    assert split.dev == ("mini_04", "mini_05")
    assert split.test == ("mini_06", "mini_07", "mini_08", "mini_xl")
    for part in ("train", "dev", "test"):
        labels = Counter(request.label for request in select_split(dataset, split, part).requests)
        assert labels["conflict"] == labels["non_conflict"]


@shipped
def test_a_broken_copy_of_the_shipped_set_is_an_error(tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(mini_path(), copy)
    file = copy / "kb" / "mini_01" / "queries.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["queries"][0]["gold_doc_ids"] = content["queries"][0]["gold_doc_ids"][:2]
    file.write_text(json.dumps(content), encoding="utf-8")
    (finding,) = validate(copy).errors
    assert (finding.check, finding.row, finding.field) == ("gold_count", "q000", "gold_doc_ids")
