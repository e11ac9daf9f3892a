"""What a user can get wrong, or what data can hold: one line and exit 2, and nothing raw on the terminal."""

import json
import os
import shutil
import subprocess
import sys
import threading

import pytest
from scripted import GOOD

from pace_dspy.cli.output import printable
from pace_dspy.cli.render import print_summary
from pace_dspy.data.sources import mini_path

ASK = ("--request", "Book dinner on Friday", "--date", "2026-03-18")


def refused(cli, *arguments):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, ""), (arguments, out, err)
    assert "unexpected" not in err
    assert len(err.splitlines()) == 1, err
    return err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--request", "Caf\udce9", "--date", "2026-03-18"), "character 4 (U+DCE9) is half of a character"),
        ((*ASK, "--persona", "In\udce9s"), "persona 'In\\udce9s': character 3 (U+DCE9)"),
        (("--request", "\u200b \n", "--date", "2026-03-18"), "the request is empty; give the text"),
        (("--request", "x", "--date", "9999-12-31"), "9999-12-31 is out of range; allowed: 1800-01-01 to 2300-12-31"),
        (("--request", "x", "--date", "20260304"), "--date '20260304' is not a date; use YYYY-MM-DD"),
        (("--request", "x", "--date", "2026-W10-3"), "--date '2026-W10-3' is not a date; use"),
        ((*ASK, "--program", "nope"), "no program at nope: give the folder"),
        ((*ASK, "--program", ""), "Invalid value for '--program': it is empty; give a value"),
        ((*ASK, "--backend", "none"), "unknown backend 'none'; known: local"),
    ],
)
def test_a_request_that_cannot_be_asked_is_refused_in_one_line(cli, kb_file, more, says):
    assert says in refused(cli, "check", "--kb", kb_file, *more)


def test_an_embedder_is_refused_before_the_model_is_reached(cli, kb_file, monkeypatch):
    monkeypatch.setattr("pace_dspy.cli.check.preflight", lambda *_: pytest.fail("the model was asked"))
    monkeypatch.setenv("PACE_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("PACE_MODEL", "none")
    err = refused(cli, "check", "--kb", kb_file, *ASK, "--embedder", "nope", "--backend", "openai-compatible")
    assert "'nope'" in err


def test_devices_are_named_and_pipes_are_read(cli, offline, tmp_path):
    err = refused(cli, "check", "--kb", "/dev/null", *ASK)
    assert "/dev/null: this is a device or socket, not a file. Give a file or a pipe" in err
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "".join(f"Ines meets guest {i} on Friday at {i} o'clock.\n" for i in range(40))
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    code, out, _ = cli("check", "--kb", pipe, *ASK)
    writer.join()
    assert code == 0
    assert "40 in the KB" in out


@pytest.mark.parametrize("config", ["lite", "plus"])
def test_a_fact_with_a_sentinel_date_breaks_nothing(cli, offline, tmp_path, config):
    offline({**GOOD, "second_look": lambda _: {"keep": [1], "follow_ups": []}})
    rows = [
        {"text": f"Ines meets guest {i} on 7 March at {i} o'clock.", "date": "9999-12-31" if i else "0001-01-01"}
        for i in range(12)
    ]
    path = tmp_path / "kb.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = cli("check", "--kb", path, *ASK, "--config", config)
    assert code == 0, err
    assert "Decision  non_conflict" in out


def test_no_usable_answer_is_a_failure_that_keeps_the_evidence(cli, offline, kb_file):
    offline({**GOOD, "answerer": ["prose", "prose"]})
    code, out, err = cli("check", "--kb", kb_file, *ASK)
    assert code == 1
    assert "Decision  none" in out
    assert "error: no decision: the model gave no usable answer. Ask again" in err


def test_texts_of_others_reach_the_terminal_as_harmless_lines(cli, offline, tmp_path):
    evil = "Ines \x1b[2J\u202eseirI\u202c meets guest {} on Friday."
    rows = [{"text": evil.format(i), "doc_id": f"a{i}\nDecision  conflict"} for i in range(20)]
    path = tmp_path / "kb.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = cli("check", "--kb", path, "--request", "Book\nDecision  conflict\x9b", "--date", "2026-03-18")
    assert code == 0
    assert not set(out) & {"\x1b", "\x9b", "\u202e", "\u202c"}
    assert "Book Decision  conflict\\x9b" in out
    assert "Ines \\x1b[2J\\u202eseirI\\u202c meets" in out
    assert [line for line in out.splitlines() if line.startswith("Decision")] == ["Decision  non_conflict"]


def test_printable_keeps_ordinary_text():
    for text in ("Zoë — 日本語 👩\u200d👩", "a\tb", "می\u200cروم"):
        assert printable(text) == text
    assert printable("a \r\n b\u2028c\x00\ud800") == "a b c\\x00\\ud800"


def test_a_summary_is_never_cut_and_takes_any_title(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_summary("pacemaker, config [/x], backend local", {"results": "/long" * 40})
    assert capsys.readouterr().out == f"pacemaker, config [/x], backend local\n results  {'/long' * 40}\n"


@pytest.mark.parametrize("command", ["run", "index", "demo", "compile"])
def test_a_place_that_is_no_folder_is_refused_before_any_work(cli, tmp_path, command):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    base = {
        "run": ("--data", "mini"), "index": ("--data", "mini"), "demo": (), "compile": ("--optimizer", "bootstrap"),
    }[command]  # fmt: skip
    for place in (taken, taken / "x", "/proc/zz"):
        err = refused(cli, command, *base, "--out", place)
        assert f"--out '{place}' cannot be a folder to write to (" in err
        assert "Give a new folder, or one that you may write to" in err
    assert "Invalid value for '--out': it is empty" in refused(cli, command, *base, "--out", "")
    assert taken.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [taken]


@pytest.mark.parametrize("place", ["/dev/full", "/proc/zz", "folder"])
def test_a_split_replaces_no_device_and_leaves_nothing(cli, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    err = refused(cli, "data", "split", "mini", "--out", place)
    assert f"split file '{place}' " in err
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert not (tmp_path / "folder").is_file()


def test_a_split_file_without_a_part_and_settings_without_a_model_are_refused(cli, offline, tmp_path):
    base = ("run", "--data", "mini", "--method", "sparse", "--backend", "none", "--out", tmp_path / "r")
    assert "--split-file needs --part; parts: train, dev, test" in refused(cli, *base, "--split-file", "x.json")
    assert "--set changes a backend's profile; it needs a --backend other" in refused(cli, *base, "--set", "slots=2")


def test_compile_checks_its_numbers_and_places_in_a_dry_run(cli, tmp_path):
    base = ("compile", "--optimizer", "bootstrap", "--out", tmp_path / "x", "--work", tmp_path / "w", "--dry-run")
    assert "refusal_cost must be a number above 0, received nan" in refused(cli, *base, "--refusal-cost", "nan")
    assert "is not a run folder" in refused(cli, *base, "--recorded", tmp_path)
    assert "--work '/proc/zz' cannot be a folder" in refused(cli, *base, "--work", "/proc/zz")


def test_typers_refusals_are_one_line(cli):
    err = refused(cli, "run", "--nope")
    assert err.startswith("error: No such option: --nope")
    assert err.endswith("pace-dspy run -h`\n")
    assert "Missing option '--kb'" in refused(cli, "check")


def test_an_index_of_a_file_with_spaces_gets_a_safe_id(cli, offline, tmp_path):
    path = tmp_path / "my facts (é).txt"
    path.write_text("Ines is vegan.\n")
    code, out, err = cli("index", "--data", path, "--out", tmp_path / "i")
    assert code == 0, err
    assert out.startswith("my-facts-: 1 facts in ")


def test_a_missing_key_of_a_backend_test_is_wrong_use(cli, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "OPENAI_API_KEY is not set" in refused(cli, "backends", "test", "openai")


def test_data_warnings_are_plain_notes(cli, tmp_path):
    for case in ("mini_01", "mini_02", "mini_03"):
        shutil.copytree(mini_path() / "kb" / case, tmp_path / "data" / "kb" / case)
    code, _, err = cli("data", "split", tmp_path / "data", "--out", tmp_path / "s.json")
    assert code == 0, err
    (line,) = err.splitlines()
    assert line.startswith(f"note: {tmp_path / 'data'}: 3 of 3 cases have no spec.demographic.full_name")


def shell(command, **environ):
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, **environ}, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_a_full_or_narrow_stdout_ends_in_one_line():
    command = f"{sys.executable} -m pace_dspy backends"
    code, _, err = shell(f"{command} > /dev/full")
    assert (code, err) == (1, "error: cannot write: No space left on device; free some space, or write elsewhere\n")
    code, out, err = shell(command, PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert out.isascii()


def test_the_entry_point_imports_nothing_heavy_and_survives_ctrl_c():
    code = (
        "import sys, pace_dspy.cli as c; assert 'dspy' not in sys.modules and 'typer' not in sys.modules\n"
        "class Stop:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'dspy': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop()); c.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


def test_an_infinite_price_and_a_compile_without_a_model_are_refused(cli, tmp_path):
    err = refused(cli, "backends", "test", "openai-compatible", "--set", "price_prompt=inf")
    assert "price_prompt: Input should be a finite number" in err
    err = refused(cli, "compile", "--optimizer", "bootstrap", "--out", tmp_path / "x", "--backend", "none")
    assert "unknown backend 'none'; known: local" in err


def test_deeply_nested_files_and_broken_cases_are_data_errors(cli, tmp_path):
    split = tmp_path / "split.json"
    split.write_text("[" * 100_000 + "]" * 100_000)
    base = ("run", "--data", "mini", "--out", tmp_path / "r", "--part", "dev", "--split-file")
    assert f"{split}: unreadable split file (" in refused(cli, *base, split)
    folder = tmp_path / "data" / "kb" / "mini_01"
    shutil.copytree(mini_path() / "kb" / "mini_01", folder)
    queries = json.loads((folder / "queries.json").read_text())
    queries["queries"][1]["query"] = "Book \ud800"
    (folder / "queries.json").write_text(json.dumps(queries))
    code, out, _ = cli("data", "validate", tmp_path / "data")
    assert code == 2
    assert "queries.json, row 2, field 'query', value 'Book \\ud800': character 6 (U+D800) is half of" in out
