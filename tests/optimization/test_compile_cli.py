"""``pace-dspy compile`` without a model call, and ``pace-dspy program``."""

import json

import pytest
from hash_embedder import HashEmbedder
from scripted import GOOD, scripted_lm
from tracked_helpers import client_of, sqlite_uri
from typer.testing import CliRunner

from pace_dspy.artifacts import save_program
from pace_dspy.cli.app import app
from pace_dspy.cli.compile_progress import Pace
from pace_dspy.errors import ConfigError, MissingKeyError
from pace_dspy.optimization.snapshot import PredictorState, apply
from pace_dspy.program import PaceMakerProgram
from pace_dspy.retrieval import clear_kbs


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def compiled(tmp_path):
    program = PaceMakerProgram()
    demo = {
        "persona": "A",
        "today": "t",
        "request": "r",
        "evidence": "[1] [b]x[/b]",
        "response": "No.",
        "cited": [1],
        "decision": "conflict",
    }
    apply(program, {"answerer.predict": PredictorState("Decide slowly.", (demo,))})
    groups = [{"name": "answerer", "before": 0.5, "after": 0.75}]
    facts = {"optimizer": "gepa", "groups": groups, "calibration": {"threshold": 0.25}}
    save_program(program, tmp_path / "made", backend="local", **facts)
    return tmp_path / "made"


def test_show_prints_instructions_demos_and_origin(compiled):
    shown = call("program", "show", compiled)
    assert shown.exit_code == 0
    assert (
        "optimizer gepa, backend local, config paper, answerer 0.500 -> 0.750 on dev, threshold 0.250" in shown.stdout
    )
    assert "Decide slowly." in shown.stdout
    assert "[1] [b]x[/b]" in shown.stdout
    plain = json.loads(call("program", "show", compiled / "program.json", "--json").stdout)
    assert plain["predictors"]["answerer.predict"]["demos"][0]["decision"] == "conflict"


def test_diff_against_the_uncompiled_program_and_against_itself(compiled):
    found = call("program", "diff", compiled)
    assert "+Decide slowly." in found.stdout
    assert "== answerer.predict" in found.stdout
    assert "== planner.predict" not in found.stdout
    assert call("program", "diff", compiled, compiled).stdout.strip() == "no difference"


def test_a_missing_program_is_refused(tmp_path):
    assert isinstance(call("program", "show", tmp_path / "none").exception, ConfigError)


def test_a_dry_run_prints_the_cost_and_pays_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PACE_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("PACE_MODEL", "none")
    work = tmp_path / "work"
    done = call(
        "compile", "--out", tmp_path / "x", "--optimizer", "bootstrap-rs", "--backend", "openai-compatible",
        "--limit", 2, "--budget", "40calls", "--work", work, "--dry-run", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["optimizer"] == "bootstrap-rs on 2 train and 2 dev requests"
    assert "model calls" in plan["cost"]
    assert not work.exists()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (["--budget", "lots"], ConfigError, "is not a budget"),
        (["--budget", "5calls"], ConfigError, "at least"),
        (["--optimizer", "copro"], ConfigError, "unknown optimizer"),
        (["--backend", "openai"], MissingKeyError, "OPENAI_API_KEY"),
        (["--split-file", "missing.json"], Exception, "no such split file"),
        (["--optimizer", "gepa", "--prompt-backend", "gemini"], MissingKeyError, "GEMINI_API_KEY"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path, monkeypatch, arguments, error, says):
    monkeypatch.setenv("PACE_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("PACE_MODEL", "none")
    base = ["compile", "--out", tmp_path / "x", "--work", tmp_path / "w"]
    optimizer = [] if "--optimizer" in arguments else ["--optimizer", "bootstrap"]
    backend = [] if "--backend" in arguments else ["--backend", "openai-compatible"]
    failed = call(*base, *optimizer, *backend, *arguments)
    assert isinstance(failed.exception, error)
    assert says in str(failed.exception)
    assert "\n" not in str(failed.exception)


# ---------------------------------------------------------------- the whole command, on a scripted model


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr("pace_dspy.optimization.setup.make_lm", lambda *_: scripted_lm(GOOD))
    monkeypatch.setattr("pace_dspy.optimization.setup.make_embedder", lambda _: HashEmbedder())
    monkeypatch.setattr("pace_dspy.cli.compile.preflight", lambda *_: None)
    yield
    clear_kbs()


def compile_labeled(tmp_path, *arguments):
    return call(
        "compile", "--out", tmp_path / "made", "--work", tmp_path / "work", "--optimizer", "labeled", "--limit", 4,
        "--backend", "openai-compatible", "--index", tmp_path / "indexes", *arguments,
    )  # fmt: skip


def test_a_tracked_compile_by_its_flags_and_its_lines(tmp_path, monkeypatch, offline):
    uri = sqlite_uri(tmp_path / "store")
    (tmp_path / "store").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    done = compile_labeled(tmp_path, "--experiment", "tuned", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (group,) = found["groups"]
    lines = done.stderr.splitlines()
    assert "answerer: labeled, at most 300 metric calls" in lines
    first, second = (line for line in lines if " on dev" in line and "of about" in line)
    assert first.startswith(f"answerer: as it was, {group['before']:.3f} on dev; 4 of about 8 examples")
    assert second.startswith(f"answerer: candidate 1 {group['candidates'][1]['score']:.3f} on dev (")
    assert f"as it was {group['before']:.3f}), 3 demos, instructions as they were; 8 of about 8 examples" in second
    assert any(line.startswith("logged to MLflow; the program is runs:/") for line in lines)
    client = client_of(uri)
    (experiment,) = [one for one in client.search_experiments() if one.name == "tuned"]
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.data.tags["pace.kind"] for run in runs) == ["candidate", "candidate", "compile"]
    assert found["tracked"] == f"runs:/{runs[-1].data.tags.get('mlflow.parentRunId', runs[-1].info.run_id)}/program"
    shown = call("program", "show", found["tracked"])
    assert shown.exit_code == 0
    assert f"answerer {group['before']:.3f} -> {group['after']:.3f} on dev" in shown.stdout


@pytest.mark.parametrize("arguments", [[], ["--no-track"], ["--no-track", "--experiment", "tuned"]])
def test_nothing_is_logged_unless_asked(tmp_path, monkeypatch, offline, arguments):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    done = compile_labeled(tmp_path, *arguments)
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "none.db").exists()
    assert "MLflow" not in done.stderr


def test_trouble_of_the_store_is_one_line_and_the_exit_is_0(tmp_path, monkeypatch, offline):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    done = compile_labeled(tmp_path, "--track", "--json")
    assert done.exit_code == 0, done.output
    assert sum("MLflow" in line for line in done.stderr.splitlines()) == 1
    assert json.loads(done.stdout)["tracked"] is None
    assert (tmp_path / "made" / "program.json").is_file()


def test_the_threshold_alone_is_refused_without_probabilities(tmp_path, offline, monkeypatch):
    lm = scripted_lm(GOOD, supports_logprobs="false")
    monkeypatch.setattr("pace_dspy.optimization.setup.make_lm", lambda *_: lm)
    refused = compile_labeled(tmp_path, "--optimizer", "none", "--calibrate")
    assert "needs token log-probabilities" in str(refused.exception)
    assert lm.engine.requests == []


def test_the_time_left_follows_the_pace_of_the_last_examples():
    now = [0.0]
    pace = Pace({"pre_filter": 10, "post_filter": 20}, lambda: now[0])
    assert (pace.left_s(), pace.total) == (None, 30)
    for done in range(1, 5):
        now[0] += 6.0
        pace.scored("pre_filter", done)
    assert pace.left_s() == pytest.approx(26 * 6.0)
    assert pace.to_text() == "4 of about 30 examples, about 3 min left"
    now[0] += 6.0
    pace.scored("post_filter", 1)  # the first group ended early: its 10 count as done
    assert pace.done == 11
    pace.scored("post_filter", 25)  # more than expected
    assert (pace.done, pace.total) == (35, 35)
    assert pace.to_text() == "35 of about 35 examples, less than a minute left"
