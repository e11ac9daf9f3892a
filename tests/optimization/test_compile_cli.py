"""``pace-dspy compile`` without a model call, and ``pace-dspy program``."""

import json

import pytest
from typer.testing import CliRunner

from pace_dspy.artifacts import save_program
from pace_dspy.cli.app import app
from pace_dspy.errors import ConfigError, MissingKeyError
from pace_dspy.optimization.snapshot import PredictorState, apply
from pace_dspy.program import PaceMakerProgram


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
