"""What MLflow holds after a compile, read back from a fresh store; that it can be loaded, and that it harms nothing."""

import json
from pathlib import Path

import dspy
import pytest
from known_skill import HINT, answers, compilation, hinted, in_memory, script
from scripted import scripted_lm
from test_compile import dying_script
from tracked_helpers import all_bytes, client_of, make_template, sqlite_uri

from pace_dspy.artifacts import load_program
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.optimization import Budget, CompileLog, Watch, run
from pace_dspy.optimization.meter import Spent
from pace_dspy.retrieval import clear_kbs
from pace_dspy.tracking import Tracker

CANARY = "sk-canary-4711-never-store-me"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def uri(tmp_path, template, monkeypatch):
    made = sqlite_uri(tmp_path / "store", template)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", made)
    return made


@pytest.fixture(autouse=True)
def _fresh_registry():
    clear_kbs()
    yield
    clear_kbs()


def tracked(made, uri, said=None):
    """Compile under a log; returns (result, log, address of the program)."""
    notes = [] if said is None else said
    with CompileLog(Tracker("tuning", uri=uri, on_trouble=notes.append), made) as log:
        result = run(made, Watch(candidate=log.candidate))
    return result, log, log.finish(result)


def children_of(client, run_id):
    experiment = client.get_run(run_id).info.experiment_id
    found = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'")
    return {(run.data.tags["group"], int(run.data.tags["number"])): run for run in found}


def text_of(client, run_id, path):
    return Path(client.download_artifacts(run_id, path)).read_text()


def test_parent_children_curve_before_and_after_are_read_back(tmp_path, uri):
    made, _ = compilation(tmp_path, "gepa")
    result, log, _ = tracked(made, uri)
    (group,) = result.groups
    client = client_of(uri)
    parent = client.get_run(log.run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["pace.kind"] == "compile"
    assert parent.data.tags["changed"] == "yes"
    assert (parent.data.params["optimizer"], parent.data.params["n_dev"]) == ("gepa", "8")
    assert parent.data.params["budget.metric_calls"] == "90"
    values = parent.data.metrics
    assert (values["before/answerer"], values["after/answerer"]) == (group.before, group.after)
    assert (values["before_decision/conflict_recall"], values["after_decision/conflict_recall"]) == (0.0, 1.0)
    assert values["metric_calls/answerer"] == group.metric_calls
    assert values["spent/calls"] == result.spent["calls"] > 0
    assert {item.dataset.name for item in parent.inputs.dataset_inputs} == {"known"}
    curve = client.get_metric_history(log.run_id, "dev/answerer")
    assert [(point.step, point.value) for point in curve] == [(one.number, one.score) for one in group.candidates]
    best = client.get_metric_history(log.run_id, "dev_best/answerer")
    assert [point.value for point in best] == [
        max(one.score for one in group.candidates[: n + 1]) for n in range(len(group.candidates))
    ]
    children = children_of(client, log.run_id)
    assert sorted(children) == [("answerer", one.number) for one in group.candidates]
    assert len(children) >= 2
    for one in group.candidates:
        child = children["answerer", one.number]
        assert child.info.status == "FINISHED"
        assert child.data.metrics["dev/score"] == one.score
        scores = client.get_metric_history(child.info.run_id, "dev/example_score")
        assert tuple(point.value for point in sorted(scores, key=lambda point: point.step)) == one.scores
        words = text_of(client, child.info.run_id, "instructions/answerer.predict.txt")
        assert words == one.state["answerer.predict"].instructions + "\n"
        assert child.data.tags["kept"] == ("yes" if one.number == group.chosen else "no")
    kept = children["answerer", group.chosen].info.run_id
    assert HINT in text_of(client, kept, "instructions/answerer.predict.txt")
    assert f"+Do the task well and {HINT}." in text_of(client, log.run_id, "changes.txt")
    assert json.loads(text_of(client, log.run_id, "result.json"))["groups"][0]["after"] == group.after


def test_demos_are_readable_texts(tmp_path, uri):
    made, _ = compilation(tmp_path, "bootstrap-rs")
    result, log, _ = tracked(made, uri)
    client = client_of(uri)
    child = children_of(client, log.run_id)["answerer", result.groups[0].chosen].info.run_id
    demos = [item.path for item in client.list_artifacts(child, "demos")]
    assert demos
    text = text_of(client, child, demos[0])
    assert text.startswith("[persona]\n  ")
    assert "[decision]\n  " in text


def test_the_program_is_loaded_from_mlflow_and_predicts_identically(tmp_path, uri):
    made, _ = compilation(tmp_path, "bootstrap-rs")
    result, _, address = tracked(made, uri)
    assert result.changed
    expected = answers(in_memory(result), made.sets.dev)
    assert {decision for decision, *_ in expected[0]} == {"conflict", "non_conflict"}
    (tmp_path / "made" / "program.json").unlink()  # only the store is left
    loaded = load_program(Path(address), PaceMakerConfig(), backend="openai-compatible")
    assert answers(loaded, made.sets.dev) == expected
    import mlflow.pyfunc

    model = mlflow.pyfunc.load_model(address)
    assert answers(model.get_raw_model(), made.sets.dev) == expected
    example = made.sets.dev[0]
    asked = {"request": example.request, "reference_date": "2026-03-18", "kb_id": example.kb_id, "persona": "Clara"}
    with dspy.context(lm=scripted_lm(script(answerer=hinted))):
        (record,) = model.predict([asked])
    assert (record["decision"], record["evidence"]) == (expected[0][0][0], expected[0][0][2])
    with pytest.raises(ConfigError, match="kb_id is missing"):
        model.predict([{"request": "x", "reference_date": "2026-03-18"}])


def test_nothing_in_the_store_is_a_pickle_and_no_key_is_in_it(tmp_path, uri, monkeypatch):
    monkeypatch.setenv("PACE_API_KEY", CANARY)
    lm = scripted_lm(script(answerer=hinted))
    told = script(answerer=hinted)
    lm.engine.script["answerer"] = lambda prompt: {**told["answerer"](prompt), "response": f"The key is {CANARY}."}
    made, _ = compilation(tmp_path, "bootstrap", lm=lm)
    tracked(made, uri)
    names = [path.name for path in (tmp_path / "store").rglob("*")]
    assert "program.json" in names
    assert not [name for name in names if name.endswith((".pkl", ".pickle"))]
    stored = all_bytes(tmp_path / "store")
    assert b"The key is ***" in stored
    assert CANARY.encode() not in stored


def test_a_program_that_is_not_there_is_refused_in_one_line(tmp_path, uri, monkeypatch):
    client_of(uri)
    for address in ("runs:/0123456789abcdef0123456789abcdef/program", "runs:/none"):
        with pytest.raises(ConfigError, match=f"no program at {address} in the MLflow store") as caught:
            load_program(Path(address), PaceMakerConfig(), backend="local")
        assert "\n" not in str(caught.value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/missing.db")
    with pytest.raises(ConfigError, match="does not exist; set MLFLOW_TRACKING_URI"):
        load_program(Path("runs:/another/program"), PaceMakerConfig(), backend="local")
    assert not (tmp_path / "missing.db").exists()


# ---------------------------------------------------------------- continued, other settings


def test_a_killed_compile_continues_in_the_same_runs(tmp_path, uri):
    killed, _ = compilation(tmp_path, "bootstrap-rs", lm=scripted_lm(dying_script(25)))
    with pytest.raises(KeyboardInterrupt):
        tracked(killed, uri)
    client = client_of(uri)
    (experiment,) = [one for one in client.search_experiments() if one.name == "tuning"]
    (parent,) = client.search_runs([experiment.experiment_id], "tags.`pace.kind` = 'compile'")
    assert parent.info.status == "KILLED"
    before = children_of(client, parent.info.run_id)
    assert len(before) >= 1
    again, _ = compilation(tmp_path, "bootstrap-rs")
    result, log, _ = tracked(again, uri)
    assert log.run_id == parent.info.run_id
    after = children_of(client, log.run_id)
    assert {key: run.info.run_id for key, run in before.items()}.items() <= {
        key: run.info.run_id for key, run in after.items()
    }.items()
    assert len(after) == len(result.groups[0].candidates) > len(before)
    curve = client.get_metric_history(log.run_id, "dev/answerer")
    assert [point.step for point in curve] == [one.number for one in result.groups[0].candidates]
    assert client.get_run(log.run_id).info.status == "FINISHED"


def test_a_refused_compile_does_not_touch_the_runs_of_another(tmp_path, uri):
    made, _ = compilation(tmp_path, "bootstrap")
    _, log, _ = tracked(made, uri)
    other, _ = compilation(tmp_path, "bootstrap", seed=1)
    with pytest.raises(ConfigError, match="belongs to another compile run"):
        tracked(other, uri)
    assert client_of(uri).get_run(log.run_id).info.status == "FINISHED"


# ---------------------------------------------------------------- trouble

BROKEN = {
    "not a database": lambda folder: f"sqlite:///{folder / 'text.db'}",
    "nobody listens": lambda folder: "http://127.0.0.1:9",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_store_is_told_once_and_changes_nothing(tmp_path, name):
    (tmp_path / "text.db").write_text("this is not a database" * 100)
    plain, _ = compilation(tmp_path, "bootstrap-rs", name="plain")
    expected = run(plain)
    made, _ = compilation(tmp_path, "bootstrap-rs", name="tracked")
    said = []
    result, _, address = tracked(made, BROKEN[name](tmp_path), said)
    assert address is None
    assert len(said) == 1
    assert said[0].startswith("MLflow tracking is off for the rest of this run (")
    assert result.groups == expected.groups
    assert (tmp_path / "tracked" / "program.json").read_bytes() == (tmp_path / "plain" / "program.json").read_bytes()


def test_a_store_that_breaks_halfway_is_told_once_and_healed_by_the_same_command(tmp_path, uri, monkeypatch):
    def full(*_):
        raise OSError("disk full")

    made, _ = compilation(tmp_path, "bootstrap-rs")
    said = []
    with monkeypatch.context() as patched:
        patched.setattr(Tracker, "_program", full)
        result, log, address = tracked(made, uri, said)
    assert (address, len(said)) == (None, 1)
    assert "OSError: disk full" in said[0]
    again, lm = compilation(tmp_path, "bootstrap-rs")
    _, healed, address = tracked(again, uri)
    assert healed.run_id == log.run_id
    assert lm.engine.requests == []
    assert len(children_of(client_of(uri), log.run_id)) == len(result.groups[0].candidates)
    assert load_program(Path(address), PaceMakerConfig(), backend="openai-compatible")


def test_a_slow_store_uses_up_no_budget(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("pace_dspy.optimization.meter.time.monotonic", lambda: now[0])
    spent = Spent(tmp_path, Budget(minutes=1.0))
    now[0] = 59.0
    with spent.paused():
        now[0] += 100.0
    assert spent.seconds == 59.0
    assert spent.reason() is None
    now[0] += 1.0
    assert spent.reason() == "the budget of 1 minutes is used up"
