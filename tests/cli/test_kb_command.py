"""``pace-dspy kb``: what it prints, and one line for every error."""

import json
import sys

import pytest
from hash_embedder import HashEmbedder

from pace_dspy.cli.app import main
from pace_dspy.knowledge import default_index_dir, find_stored, new_fact
from pace_dspy.retrieval import index_dir, load_index


@pytest.fixture
def kb(monkeypatch, capsys):
    """Run ``pace-dspy kb ...``; returns exit code, stdout and stderr."""
    embedder = HashEmbedder()

    def make(spec):
        return HashEmbedder(name=spec) if spec != "minilm" else embedder

    monkeypatch.setattr("pace_dspy.cli.kb.make_embedder", make)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pace-dspy", "kb", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def notes(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("The spare key is under the blue pot.\nRui lands at 17:40.\nClara cannot eat shellfish.\n")
    return path


def test_add_makes_lists_replaces_and_removes(kb, notes):
    assert kb("add", "notes", "--facts", notes)[:2] == (
        0,
        "notes: 3 added, 0 replaced, 0 removed; 3 facts, version 1\n",
    )
    code, out, _ = kb("add", notes, "--text", "Rui now lands at 19:05.", "--date", "2026-03-18", "--doc-id", "rui")
    assert (code, out) == (0, "notes: 1 added, 0 replaced, 0 removed; 4 facts, version 2\n")
    code, out, _ = kb("add", "notes", "--text", "Rui does not come.", "--doc-id", "rui", "--replace")
    assert (code, out) == (0, "notes: 0 added, 1 replaced, 0 removed; 4 facts, version 3\n")
    lines = kb("list", "notes")[1].splitlines()
    assert lines[3] == "rui  -  Rui does not come."
    assert lines[4] == "4 facts in notes, version 3"
    assert kb("remove", "notes", "rui")[1] == "notes: 0 added, 0 replaced, 1 removed; 3 facts, version 4\n"
    assert kb("compact", "notes")[1] == "notes: 0 added, 0 replaced, 0 removed; 3 facts, version 4\n"
    index = load_index(default_index_dir(), "notes", HashEmbedder())
    assert (len(index), index.version) == (3, 4)


def test_remove_by_date(kb, tmp_path):
    path = tmp_path / "diary.jsonl"
    path.write_text("".join(json.dumps({"text": f"Day {d}", "date": f"2026-03-0{d}"}) + "\n" for d in (1, 2, 3)))
    kb("add", "diary", "--facts", path)
    assert "0 added, 0 replaced, 2 removed; 1 facts" in kb("remove", "diary", "--before", "2026-03-03")[1]
    assert "0 removed; 1 facts, version 2" in kb("remove", "diary", "--before", "2026-03-03")[1]


def test_json(kb, notes, tmp_path):
    place = tmp_path / "place"
    added = json.loads(kb("add", "notes", "--facts", notes, "--index", place, "--json")[1])
    assert (added["kb_id"], added["facts"], added["version"], len(added["added"])) == ("notes", 3, 1, 3)
    listed = json.loads(kb("list", "notes", "--index", place, "--json")[1])
    assert [item["text"] for item in listed["items"]] == notes.read_text().splitlines()
    assert [item["doc_id"] for item in listed["items"]] == added["added"]
    every = json.loads(kb("list", "--index", place, "--json")[1])
    assert [row["kb_id"] for row in every["kbs"]] == ["notes"]
    assert every["kbs"][0]["content_hash"] == added["content_hash"] == listed["content_hash"]


def test_a_kb_is_found_by_its_folder(kb, notes, tmp_path):
    kb("add", "notes", "--facts", notes, "--index", tmp_path / "place")
    folder = index_dir(tmp_path / "place", "notes")
    assert kb("list", folder)[1].endswith("3 facts in notes, version 1\n")
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    code, out, err = kb("list", moved)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "was moved out of its folder of indexes" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("list", "ghost"), 2, "make it with `pace-dspy kb add ghost --facts FILE`"),
        (("remove", "ghost", "x"), 2, "error: no index of KB 'ghost' in"),
        (("compact", "ghost"), 2, "error: no index of KB 'ghost' in"),
        (("list", "../x"), 2, "error: kb_id '../x' is not allowed"),
        (("add", "notes"), 2, "error: give either --facts FILE or --text TEXT"),
        (("add", "notes", "--text", "a", "--facts", "b"), 2, "error: give either --facts FILE or --text TEXT"),
        (("add", "notes", "--facts", "none.txt"), 2, "error: none.txt: no such file"),
        (("add", "notes", "--facts", "NOTES", "--doc-id", "x"), 2, "error: --date and --doc-id belong to --text"),
        (("add", "notes", "--text", " "), 2, "has an empty text. Write the fact, or leave it out"),
        (("add", "notes", "--facts", "NOTES"), 2, "is known already. Use update (`pace-dspy kb add --replace`)"),
        (("add", "notes", "--text", "x", "--embedder", "other"), 1, "embedder_id: stored 'hash:32', wanted 'other:32'"),
        (("remove", "notes"), 2, "error: give either the ids of facts or --before DATE"),
        (("remove", "notes", "x", "--before", "2026-01-01"), 2, "error: give either the ids of facts or --before DATE"),
        (("remove", "notes", "ghost"), 2, "fact 'ghost' is not in the knowledge base"),
    ],
)
def test_errors_are_one_line(arguments, code, message, kb, notes):
    kb("add", "notes", "--facts", notes)
    found, out, err = kb(*(notes if argument == "NOTES" else argument for argument in arguments))
    assert (found, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_file_is_never_taken_for_a_new_kb_without_its_facts(kb, notes, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("Something else.\n")
    for given in (("--text", "One more fact."), ("--facts", other)):
        code, out, err = kb("add", notes, *given)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"First: pace-dspy kb add {notes} --facts {notes}" in err
    assert kb("add", notes, "--facts", notes)[1].startswith("notes: 3 added")
    assert kb("add", notes, "--text", "One more fact.")[1].endswith("4 facts, version 2\n")


def test_a_bad_date_is_named(kb, notes):
    kb("add", "notes", "--facts", notes)
    code, _, err = kb("remove", "notes", "--before", "tomorrow")
    assert code == 2
    assert "'tomorrow' is not a date; use YYYY-MM-DD" in err


def test_nothing_but_adding_needs_the_embedder(kb, notes, monkeypatch):
    kb("add", "notes", "--facts", notes)
    monkeypatch.setattr("pace_dspy.cli.kb.make_embedder", None)
    for arguments in (
        ("list",),
        ("list", "notes"),
        ("compact", "notes"),
        ("remove", "notes", "--before", "2026-01-01"),
    ):
        assert kb(*arguments)[0] == 0


def test_a_locked_kb_says_what_it_waits_for(kb, notes, monkeypatch):
    import filelock

    monkeypatch.setattr("pace_dspy.retrieval.locks.LOCK_WAIT_S", 0.4)
    kb("add", "notes", "--facts", notes)
    with filelock.FileLock(index_dir(default_index_dir(), "notes") / ".lock"):
        code, _, err = kb("add", "notes", "--text", "x")
    assert code == 1
    assert err.splitlines()[0].startswith("KB 'notes' is being written by another process; waiting up to")
    assert "try again when it is done" in err.splitlines()[1]


def test_find_stored(tmp_path, notes):
    assert find_stored("ana") == (default_index_dir(), "ana")
    assert find_stored(str(notes), tmp_path) == (tmp_path, "notes")


def test_new_facts_are_named_as_in_a_file(tmp_path):
    from pace_dspy.data import load_kb

    path = tmp_path / "x.txt"
    path.write_text("A  fact\n")
    assert new_fact(" A fact ") == load_kb(path)[0]
