"""``run``, ``index``, ``data``, ``demo`` on the shipped dataset with a hash embedder and a scripted model."""

import json

import pytest
from scripted import GOOD

from pace_dspy.data import load_pace

FIELDS = {
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
}


def rows_of(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def run(cli, out, *more, method="pacemaker", backend="local"):
    return cli("run", "--data", "mini", "--method", method, "--backend", backend, "--out", out, *more)


@pytest.mark.parametrize("method", ["sparse", "dense", "hybrid", "oracle", "full-kb"])
def test_retrieval_methods_run_without_a_model(cli, offline, tmp_path, method):
    code, out, _ = run(cli, tmp_path / "r", "--case", "mini_04", method=method, backend="none")
    assert code == 0
    rows = rows_of(tmp_path / "r")
    assert len(rows) == 10
    for row in rows:
        assert set(row) >= FIELDS
        assert (row["decision"], row["response"], row["error"]) == (None, None, None)
        assert row["trace"]["usage"] == []
    if method == "oracle":
        assert all(row["evidence"] == row["gold_doc_ids"] for row in rows)
    elif method == "full-kb":
        facts = {fact.doc_id for fact in load_pace("mini").case("mini_04").facts}
        assert all(set(row["evidence"]) == facts for row in rows)
    else:
        assert all(len(row["evidence"]) == 10 for row in rows)
    assert "Recall@5, Recall@10" in out


def test_a_run_writes_one_row_a_request_and_is_continued_not_repeated(cli, offline, tmp_path):
    code, _, _ = run(cli, tmp_path / "r", "--case", "mini_04", "--limit", "2", "--no-cache")
    assert code == 0
    first = rows_of(tmp_path / "r")
    assert [row["decision"] for row in first] == ["non_conflict"] * 2
    assert all(set(row["cited"]) <= set(row["evidence"]) for row in first)
    offline({})
    code, _, _ = run(cli, tmp_path / "r", "--case", "mini_04", "--limit", "2", "--no-cache")
    assert code == 0
    assert rows_of(tmp_path / "r") == first


def test_a_log_gets_a_line_of_progress_from_time_to_time_and_no_empty_ones(cli, offline, tmp_path, monkeypatch):
    arguments = ("run", "--data", "mini", "--method", "sparse", "--backend", "none", "--limit", "3", "--out")
    assert cli(*arguments, tmp_path / "quiet")[2] == ""
    monkeypatch.setattr("pace_dspy.cli.output.LINE_EVERY_S", 0.0)
    lines = cli(*arguments, tmp_path / "told")[2].splitlines()
    assert lines[-1].startswith("requests: 3 of 3")
    assert lines[-1].endswith("failed 0, $0.00, tokens 0 read 0 written")


def test_fallbacks_are_counted_in_the_summary(cli, offline, tmp_path):
    offline({**GOOD, "views": lambda _: "prose"})
    code, out, _ = run(cli, tmp_path / "r", "--case", "mini_04", "--limit", "3", "--no-cache")
    assert code == 0
    assert "views 3" in next(line for line in out.splitlines() if "fallbacks" in line)


def test_failures_are_counted_apart_and_asked_again(cli, offline, tmp_path):
    from dspy.lm15 import ServerError

    offline({**GOOD, "answerer": lambda _: ServerError("down")})
    code, out, err = run(cli, tmp_path / "r", "--case", "mini_04", "--limit", "2", "--no-cache")
    assert code == 1
    assert "2, failed 2 ServerError 2" in out
    assert "repeats nothing that is finished" in err
    offline(GOOD)
    code, out, _ = run(cli, tmp_path / "r", "--case", "mini_04", "--limit", "2", "--no-cache")
    assert code == 0
    assert [row["error"] for row in rows_of(tmp_path / "r")] == [None, None]


def test_a_folder_of_another_run_is_refused_with_the_differing_fields(cli, offline, tmp_path):
    run(cli, tmp_path / "r", "--case", "mini_04", "--limit", "1", method="sparse", backend="none")
    code, _, err = run(cli, tmp_path / "r", "--limit", "1", method="dense", backend="none")
    assert code == 2
    assert "belongs to another run: method: 'sparse' -> 'dense'" in err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    code, _, err = run(cli, tmp_path / "full", method="dense", backend="none")
    assert code == 2
    assert "is not empty and holds no run" in err


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--method", "magic"), "unknown method 'magic'; methods: pacemaker"),
        (("--case", "nobody"), "no case nobody in mini; cases: mini_01"),
        (("--part", "middle"), "unknown part 'middle'; parts: all, train, dev, test"),
        (("--backend", "none"), "its stages planner, views, pre_filter, post_filter ask a model"),
        (("--data", "/nowhere"), "/nowhere"),
    ],
)
def test_wrong_settings_are_one_line(cli, offline, tmp_path, more, text):
    code, out, err = run(cli, tmp_path / "r", *more)
    assert code == 2
    assert text in err
    assert "Traceback" not in err
    assert out == ""


def test_a_limit_reached_by_the_last_request_is_no_early_stop(cli, offline, tmp_path):
    code, _, err = run(cli, tmp_path / "r", "--limit", 1, "--max-minutes", 0, method="sparse", backend="none")
    assert code == 0, err
    assert "stopped early" not in err
    assert "the same command" not in err
    code, _, err = run(cli, tmp_path / "s", "--limit", 2, "--max-minutes", 0, method="sparse", backend="none")
    assert code == 1
    assert "stopped early: reached --max-minutes 0.0" in err
    assert "0 requests failed, 1 not asked; the same command asks them again" in " ".join(err.split())


def test_index_builds_then_keeps(cli, offline, tmp_path, kb_file):
    code, out, _ = cli("index", "--data", kb_file, "--out", tmp_path / "i")
    assert code == 0
    assert "facts: 40 facts" in out
    code, out, _ = cli("index", "--data", "mini", "--out", tmp_path / "m", "--json")
    assert code == 0
    assert {row["kb_id"]: row["facts"] for row in json.loads(out)["indexes"]}["mini_xl"] == 2062


def test_data_split_and_validate(cli, tmp_path):
    code, out, _ = cli("data", "split", "mini", "--out", tmp_path / "s.json", "--json")
    assert code == 0
    parts = json.loads(out)
    assert sorted(parts["train"] + parts["dev"] + parts["test"]) == [f"mini_{i:02}" for i in range(1, 9)] + ["mini_xl"]
    code, out, _ = cli("data", "validate", "mini")
    assert code == 0
    assert "0 errors, 0 warnings" in out
    code, out, err = cli("data", "validate", tmp_path)
    assert code == 2
    assert "Traceback" not in out + err


def test_demo_shows_every_step_and_where_the_run_is(cli, offline, tmp_path):
    code, out, err = cli("demo", "--out", tmp_path / "d", "--config", "paper", "--requests", "3")
    assert code == 0
    assert out.count("Decision  non_conflict") == 3
    assert out.count("> 20 fused > 3 seeds > ") == 3
    assert f"Run written to {tmp_path / 'd'}" in out
    assert "choosing evidence" in err
    assert len(rows_of(tmp_path / "d")) == 3


def test_help_and_module_entry(cli):
    code, out, _ = cli("-h")
    assert code == 0
    for command in ("demo", "check", "index", "run", "weights", "data"):
        assert command in out
