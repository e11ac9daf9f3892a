"""What MLflow holds after a run, read back; and that it can neither leak nor harm."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from dspy.lm15 import ServerError as WireServerError
from scripted import ANSWER, GOOD, scripted_lm
from tracked_helpers import all_bytes, client_of, go_offline, make_template, run_tracked, sqlite_uri

from pace_dspy.data import load_pace
from pace_dspy.evaluation.metrics import score_request
from pace_dspy.evaluation.run_card import MAX_PARAM, persona_metrics, run_card, sampled
from pace_dspy.evaluation.spans import LIST_LIMIT, bounded
from pace_dspy.evaluation.store import read_manifest
from pace_dspy.retrieval import clear_kbs
from pace_dspy.tracking import Tracker, default_uri, tracking_uri

CANARY = "sk-canary-4711-never-store-me"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def uri(tmp_path, template):
    return sqlite_uri(tmp_path, template)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    go_offline(monkeypatch)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield
    clear_kbs()


def test_params_tags_metrics_steps_and_artifacts_are_read_back(tmp_path, uri):
    rows, run_id, _ = run_tracked(tmp_path, uri, cases=("mini_04", "mini_05"), limit=12)
    client = client_of(uri)
    run = client.get_run(run_id)
    scores = [score_request(row["evidence"], row["gold_doc_ids"]) for row in rows]
    micro = sum(score["recall@10"] for score in scores) / 12
    first, second = (sum(score["recall@10"] for score in part) / len(part) for part in (scores[:10], scores[10:]))
    metrics = run.data.metrics
    assert metrics["retrieval_micro/recall_at_10"] == pytest.approx(micro)
    assert metrics["retrieval/recall_at_10"] == pytest.approx((first + second) / 2)
    assert (metrics["requests/n"], metrics["requests/failed"], metrics["decision/n"]) == (12, 0, 0)
    assert "decision/undecided" not in metrics
    assert metrics["funnel/recall_evidence"] == pytest.approx(1 - sum(
        metrics[f"funnel_lost/{fate}"] for fate in ("no_view", "fusion", "post_filter")
    ))  # fmt: skip
    history = client.get_metric_history(run_id, "persona/recall_at_10")
    assert [(point.step, point.value) for point in history] == [(0, pytest.approx(first)), (1, pytest.approx(second))]
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("mini", run.data.tags["data_hash"][:12])
    assert run.data.params["method"] == "hybrid"
    assert run.data.params["setting.retrieval.rrf_k"] == "60"
    tags = run.data.tags
    manifest = read_manifest(tmp_path / "run")
    assert tags["data"] == "mini"
    assert tags["data_hash"] == manifest.dataset_hash
    assert (tags["part"], tags["split"], tags["program"]) == ("all", "none", "uncompiled")
    assert tags["commit"] == (manifest.git_commit or "unknown")
    assert {item.path for item in client.list_artifacts(run_id)} == {
        "config.json", "manifest.json", "program", "requests.json", "results.jsonl", "steps.json"
    }  # fmt: skip
    table = json.loads(Path(client.download_artifacts(run_id, "requests.json")).read_text())
    record = dict(zip(table["columns"], table["data"][0], strict=True))
    assert (record["case_id"], record["query_id"]) == ("mini_04", rows[0]["query_id"])
    assert record["recall_at_10"] == scores[0]["recall@10"]
    assert json.loads(Path(client.download_artifacts(run_id, "steps.json")).read_text()) == {
        "0": "mini_04",
        "1": "mini_05",
    }
    assert list((tmp_path / "mlflow-artifacts").rglob(f"{run_id}/artifacts/results.jsonl"))


def test_a_run_is_a_child_of_its_experiment_and_both_end(tmp_path, uri):
    _, first, _ = run_tracked(tmp_path / "a", uri)
    _, second, _ = run_tracked(tmp_path / "b", uri, method="sparse")
    client = client_of(uri)
    parents = {client.get_run(run_id).data.tags["mlflow.parentRunId"] for run_id in (first, second)}
    assert len(parents) == 1
    assert [client.get_run(run_id).info.status for run_id in (first, second, *parents)] == ["FINISHED"] * 3
    assert client.get_run(second).info.run_name == "sparse, no model, seed 0"


def test_a_continued_run_continues_there_and_repeats_no_point(tmp_path, uri):
    _, first, _ = run_tracked(tmp_path, uri, limit=2)
    ended = client_of(uri).get_run(first).info.end_time
    _, again, _ = run_tracked(tmp_path, uri, limit=2)
    assert client_of(uri).get_run(first).info.end_time == ended
    _, longer, _ = run_tracked(tmp_path, uri, limit=4)
    assert first == again == longer
    client = client_of(uri)
    assert client.get_run(first).data.metrics["requests/n"] == 4
    assert [point.value for point in client.get_metric_history(first, "requests/n")] == [2, 4]
    assert [point.value for point in client.get_metric_history(first, "requests/failed")] == [0]


def test_a_traced_request_shows_every_stage_and_the_model_calls(tmp_path, uri):
    rows, run_id, _ = run_tracked(tmp_path, uri, share=1.0, method="pacemaker", backend="local", limit=1)
    client = client_of(uri)
    experiment = client.get_experiment_by_name("trial")
    (trace,) = client.search_traces(locations=[experiment.experiment_id])
    assert trace.info.trace_metadata["mlflow.sourceRun"] == run_id
    assert trace.info.client_request_id == f"mini_04/{rows[0]['query_id']}"
    assert trace.info.response_preview == f"non_conflict: {ANSWER['response']}"
    spans = trace.data.spans
    root = next(span for span in spans if span.parent_id is None)
    children = sorted((s for s in spans if s.parent_id == root.span_id), key=lambda span: span.start_time_ns)
    assert [span.name for span in children] == [
        "planner", "views", "retrieve", "pre_filter", "walk", "post_filter", "answerer"
    ]  # fmt: skip
    assert root.outputs["evidence"] == rows[0]["evidence"]
    calls = [span for span in spans if span.span_type == "CHAT_MODEL"]
    assert len(calls) == 5
    assert calls[0].inputs["messages"][0]["role"] == "system"
    assert calls[0].attributes["mlflow.chat.tokenUsage"]["input_tokens"] == 100
    assert trace.info.token_usage["total_tokens"] == 5 * 110


def test_a_call_is_priced_by_its_profile(tmp_path, uri, monkeypatch):
    go_offline(monkeypatch, lm=scripted_lm(GOOD, price_prompt="2", price_cached="1", price_completion="10"))
    run_tracked(tmp_path, uri, share=1.0, method="pacemaker", backend="local", limit=1)
    client = client_of(uri)
    (trace,) = client.search_traces(locations=[client.get_experiment_by_name("trial").experiment_id])
    call = next(span for span in trace.data.spans if span.span_type == "CHAT_MODEL")
    assert call.attributes["mlflow.llm.model"] == "openai/scripted"
    # 60 fresh tokens at 2 $, 40 cached at 1 $, 10 written at 10 $, all a million
    assert call.attributes["mlflow.llm.cost"] == pytest.approx(
        {"input_cost": 160e-6, "output_cost": 100e-6, "total_cost": 260e-6}
    )


def test_tracing_changes_no_row(tmp_path, uri):
    def plain(rows):
        return [{**row, "trace": {**row["trace"], "usage": 0, "retrieval_ms": 0, "total_ms": 0}} for row in rows]

    settings = {"method": "pacemaker", "backend": "local", "limit": 3}
    traced, _, _ = run_tracked(tmp_path / "a", uri, share=1.0, **settings)
    untraced, _, _ = run_tracked(tmp_path / "b", uri, share=0.0, **settings)
    assert plain(traced) == plain(untraced)


def test_the_sample_of_traces_is_the_same_every_time_and_nested():
    ids = [("mini_04", f"q{n:03}") for n in range(1000)]
    tenth = {key for key in ids if sampled(*key, 0.1)}
    half = {key for key in ids if sampled(*key, 0.5)}
    assert tenth < half
    assert 70 < len(tenth) < 130
    assert not any(sampled(*key, 0.0) for key in ids)
    assert all(sampled(*key, 1.0) for key in ids)


@pytest.mark.parametrize(("method", "backend"), [("full-kb", "local"), ("pacemaker", "local"), ("full-kb", "none")])
def test_no_span_holds_a_whole_knowledge_base(tmp_path, uri, method, backend):
    run_tracked(tmp_path, uri, share=1.0, method=method, backend=backend, limit=1)
    client = client_of(uri)
    (trace,) = client.search_traces(locations=[client.get_experiment_by_name("trial").experiment_id])
    texts = [fact.text for fact in load_pace("mini").case("mini_04").facts]
    ids = [fact.doc_id for fact in load_pace("mini").case("mini_04").facts]
    for span in trace.data.spans:
        content = json.dumps(span.to_dict(), ensure_ascii=False)
        assert sum(text in content for text in texts) <= len(texts) / 2
        assert sum(f'"{doc_id}' in content.replace("\\", "") for doc_id in ids) <= 2 * LIST_LIMIT
        assert len(content) < 30_000


def test_unknown_objects_are_named_not_shown():
    class Client:
        def __repr__(self):
            return CANARY

    cut = bounded({"client": Client(), "facts": list(range(LIST_LIMIT + 5)), "text": "x" * 10_000})
    assert cut["client"] == "<Client>"
    assert cut["facts"][-1] == "... 5 more"
    assert "[... 4500 characters ...]" in cut["text"]


def test_no_key_reaches_database_artifacts_or_traces(tmp_path, template, monkeypatch):
    monkeypatch.setenv("PACE_API_KEY", CANARY)
    lm = scripted_lm({**GOOD, "answerer": lambda _: {**ANSWER, "response": f"The key is {CANARY}."}})
    lm.kwargs["api_key"] = CANARY
    lm.kwargs["extra_headers"] = {"Authorization": CANARY}
    go_offline(monkeypatch, lm=lm)
    _, run_id, _ = run_tracked(
        tmp_path, sqlite_uri(tmp_path / "db", template), share=1.0, method="pacemaker", backend="local"
    )
    assert run_id is not None
    stored = all_bytes(tmp_path / "db")
    assert b"The key is ***" in stored
    assert CANARY.encode() not in stored


def test_failed_requests_are_counted_and_traced_as_errors(tmp_path, uri, monkeypatch):
    script = {**GOOD, "planner": lambda _: WireServerError("down")}
    go_offline(monkeypatch, script)
    rows, run_id, _ = run_tracked(tmp_path, uri, share=1.0, method="pacemaker", backend="local")
    assert [row["error"]["kind"] for row in rows] == ["ServerError"] * 4
    client = client_of(uri)
    metrics = client.get_run(run_id).data.metrics
    assert (metrics["requests/n"], metrics["requests/failed"], metrics["retrieval/n"]) == (4, 4, 0)
    assert "retrieval/recall_at_10" not in metrics
    traces = client.search_traces(locations=[client.get_experiment_by_name("trial").experiment_id])
    assert {trace.info.state.value for trace in traces} == {"ERROR"}


BROKEN = {
    "not a database": lambda folder: f"sqlite:///{folder / 'text.db'}",
    "a folder store": lambda folder: str(folder / "mlruns"),
    "nobody listens": lambda folder: "http://127.0.0.1:9",
    "unknown scheme": lambda folder: "carrier-pigeon://coop",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_store_is_reported_once_and_changes_nothing(tmp_path, uri, name):
    (tmp_path / "text.db").write_text("this is not a database" * 100)
    said = []
    rows, run_id, outcome = run_tracked(tmp_path, BROKEN[name](tmp_path), trouble=said, share=1.0)
    assert run_id is None
    assert (outcome.done, outcome.failed, len(rows)) == (4, 0, 4)
    assert len((tmp_path / "run" / "results.jsonl").read_text().splitlines()) == 4
    assert len(said) == 1
    assert said[0].startswith("MLflow tracking is off for the rest of this run (")
    _, healed, _ = run_tracked(tmp_path, uri)
    assert client_of(uri).get_run(healed).data.metrics["requests/n"] == 4


def test_a_store_that_breaks_halfway_is_reported_once(tmp_path, uri, monkeypatch):
    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(Tracker, "_table", full)
    said = []
    rows, run_id, _ = run_tracked(tmp_path, uri, trouble=said)
    assert (run_id, len(rows), len(said)) == (None, 4, 1)
    assert "OSError: disk full" in said[0]


def test_long_params_become_artifacts(tmp_path, uri):
    run_tracked(tmp_path, uri)
    manifest = read_manifest(tmp_path / "run").model_copy(update={"embedder": "e" * (MAX_PARAM + 1)})
    card = run_card(manifest)
    assert set(card.long_params) == {"embedder"}
    assert "embedder" not in card.params


def test_persona_metrics_are_in_data_order():
    def row(case, evidence):
        return {"case_id": case, "query_id": "q", "label": None, "gold_doc_ids": ["g"], "evidence": evidence,
                "cited": [], "decision": None, "trace": None, "error": None}  # fmt: skip

    found = persona_metrics([row("b", ["g"]), row("a", ["x", "g"])])
    assert [(case, values["persona/mrr"]) for case, values in found] == [("b", 1.0), ("a", 0.5)]


def test_the_default_database_is_in_the_project_folder(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert tracking_uri() == default_uri() == f"sqlite:///{tmp_path.resolve()}/artifacts/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking_uri() == "http://127.0.0.1:5000"


def test_tracking_opens_no_connection(tmp_path, uri, monkeypatch):
    def refuse(self, address):
        raise AssertionError(f"a connection to {address}")

    def ask_for_price(model, *_):  # LiteLLM, which fetches its price list
        asked.add(model)

    asked = set()
    monkeypatch.setattr(socket.socket, "connect", refuse)
    said = []
    monkeypatch.setattr("mlflow.tracing.otel.translation.calculate_cost_by_model_and_token_usage", ask_for_price)
    _, run_id, _ = run_tracked(tmp_path, uri, share=1.0, trouble=said, method="pacemaker", backend="local", limit=1)
    assert asked <= {None}
    from mlflow.telemetry import get_telemetry_client

    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] == "true"

    assert (said, run_id is not None, get_telemetry_client()) == ([], True, None)


def test_the_package_and_its_command_start_without_mlflow():
    code = "import sys, pace_dspy, pace_dspy.cli.app; print('mlflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


WORKER = """
import sys
from pace_dspy.tracking import Tracker
name, uri = sys.argv[1:]
said = []
tracker = Tracker("together", uri=uri, on_trouble=said.append)
parent = tracker.group("together", "together", {})
run_id = tracker.start(None, parent, name, {"who": name})
for step in range(20):
    tracker.metrics(run_id, [(f"m{i}", float(step), step) for i in range(5)])
tracker.finish(run_id)
assert not said, said
print(run_id, parent)
"""


@pytest.mark.slow
def test_four_processes_start_on_a_fresh_database_at_once(tmp_path):
    fresh = sqlite_uri(tmp_path)
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, f"w{n}", fresh], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env=dict(os.environ), cwd=Path(__file__).parents[1])
        for n in range(4)
    ]  # fmt: skip
    ended = [worker.communicate(timeout=240) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4, [errors[-2000:] for _, errors in ended]
    runs, parents = zip(*(out.split() for out, _ in ended), strict=True)
    assert len(set(parents)) == 1
    client = client_of(fresh)
    for run_id in runs:
        assert client.get_run(run_id).info.status == "FINISHED"
        for i in range(5):
            history = client.get_metric_history(run_id, f"m{i}")
            assert sorted((point.step, point.value) for point in history) == [(step, step) for step in range(20)]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("mlflow.db", r"IsADirectoryError: .*mlflow\.db\.lock"),  # stands for a folder that can't be written: root may
        ("folder.db", r"OperationalError: unable to open database file"),
        ("file/mlflow.db", r"(FileExistsError|NotADirectoryError): .*file"),
    ],
)
def test_a_database_that_cannot_be_made_is_told_at_once(place, reason, tmp_path):
    (tmp_path / "mlflow.db.lock").mkdir()
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "file").write_text("")
    told = []
    tracker = Tracker("e", uri=f"sqlite:///{tmp_path / place}", on_trouble=told.append)
    tracker.has("warm")
    assert len(told) == 1
    assert re.match(rf"MLflow tracking is off for the rest of this run \({reason}", told[0])
