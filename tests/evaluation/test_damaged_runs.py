"""Run folders that are damaged or cannot be written: one line with the path and the reason, never a crash."""

import json
import sqlite3

import pytest
from run_folder import answered, make_run

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.report import build_report
from pace_dspy.evaluation.report.runs import load_runs
from pace_dspy.evaluation.store import MANIFEST_NAME, RESULTS_NAME, STORE_NAME, RunStore
from pace_dspy.evaluation.stored import ROW_FIELDS

REMEDY = r"; use another --out, or delete it$"


@pytest.fixture
def run(tmp_path):
    make_run(tmp_path / "r", [answered(n) for n in range(30)]).close()
    return tmp_path / "r"


def garbage(run):
    (run / STORE_NAME).write_bytes(b"no database at all, but long enough " * 50)


def truncated(run):
    path = run / STORE_NAME
    path.write_bytes(path.read_bytes()[:5000])


def replaced_by_a_folder(run):
    (run / STORE_NAME).unlink()
    (run / STORE_NAME).mkdir()


def other_columns(run):
    (run / STORE_NAME).unlink()
    with sqlite3.connect(run / STORE_NAME) as db:
        db.execute("CREATE TABLE results (a, b)")


def row(text):
    def change(run):
        with sqlite3.connect(run / STORE_NAME) as db:
            db.execute("UPDATE results SET row = ? WHERE position = 3", (text,))

    return change


def results_is_a_folder(run):
    (run / RESULTS_NAME).mkdir()


def manifest_not_utf8(run):
    (run / MANIFEST_NAME).write_bytes(b"\xff\xfe{")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (garbage, r"run\.sqlite is damaged \(file is not a database\)"),
        (truncated, r"run\.sqlite is damaged \(database disk image is malformed\)"),
        (replaced_by_a_folder, r"run\.sqlite is damaged \(it is a folder\)"),
        (other_columns, r"run\.sqlite is damaged \(table results has the columns a, b, not case_id, .*\)"),
        (row("{bad"), r"run\.sqlite is damaged \(Expecting property name.*\)"),
        (row("{}"), r"run\.sqlite is damaged \(a row has no field 'case_id': '\{\}'\)"),
        (row("[1]"), r"run\.sqlite is damaged \(a row is no JSON object: '\[1\]'\)"),
        (row(None), r"run\.sqlite is damaged \(.*NoneType\)"),
        (results_is_a_folder, r"results\.jsonl is damaged \(it is a folder\)"),
        (manifest_not_utf8, r"manifest\.json is damaged \('utf-8' codec .*\)"),
    ],
)
def test_damage_is_one_line_for_run_evaluate_and_report(damage, message, run):
    damage(run)
    # `run` opens with `RunStore.open`, `evaluate` reads the rows, `report` loads the runs
    for use in (lambda: make_run(run, []), lambda: RunStore(run).rows(), lambda: load_runs([run])):
        with pytest.raises(ConfigError, match=message + REMEDY) as refused:
            use()
        assert refused.value.exit_code == 2
        assert "\n" not in str(refused.value)


def test_a_damaged_row_of_a_published_run_is_refused(run):
    (run / STORE_NAME).unlink()
    (run / RESULTS_NAME).write_text("{}\n")
    with pytest.raises(ConfigError, match=r"results\.jsonl is damaged \(a row has no field 'case_id'"):
        load_runs([run])


def test_rows_hold_the_fields_that_every_row_must():
    assert set(ROW_FIELDS) <= set(answered(0))


def test_a_lone_surrogate_is_stored_exported_and_judged(tmp_path):
    store = make_run(tmp_path / "r", [answered(0, response="caf\u00e9 \ud83d \U0001f600")])
    assert store.rows()[0]["response"] == "caf\u00e9 \ufffd \U0001f600"
    found = json.loads(store.export().read_text(encoding="utf-8"))
    assert found["response"] == "caf\u00e9 \ufffd \U0001f600"
    verdicts = store.verdicts("j")
    verdict = {"verdict": "PASS", "reason": "so \udc00", "error": None, "usage": []}
    verdicts.put({"case_id": "p1", "query_id": "q000", **verdict}, 0)
    assert verdicts.rows()[("p1", "q000")]["reason"] == "so \ufffd"


def test_a_run_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for folder, reason in (
        (tmp_path / "file", "File exists"),
        (tmp_path / "file" / "r", "Not a directory"),
    ):
        with pytest.raises(ConfigError, match=rf"{folder} cannot be written \({reason}\); give another --out"):
            make_run(folder, [])


def test_a_report_that_cannot_be_written_is_named(run, tmp_path):
    (tmp_path / "good.txt").write_text("")
    out = tmp_path / "good.txt" / "x.html"
    message = r"x\.html cannot be written \((File exists|Not a directory)\); give another --out"
    with pytest.raises(ConfigError, match=message) as refused:
        build_report([run], out)
    assert refused.value.exit_code == 2
    (tmp_path / "y_plots").write_text("")
    with pytest.raises(ConfigError, match=r"y_plots cannot be written \(File exists\); give another --out"):
        build_report([run], tmp_path / "y.html")
