"""Grids, what they are expected to cost, and an experiment from command to tables, MLflow and report; all offline."""

import datetime as dt
import json
from dataclasses import replace

import pytest
from scripted import GOOD, scripted_lm
from tracked_helpers import client_of, go_offline, make_template, sqlite_uri

from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation import experiment_judge
from pace_dspy.evaluation.entries import BackendEntry
from pace_dspy.evaluation.estimate import StageEstimate, estimate, measure
from pace_dspy.evaluation.experiment import main
from pace_dspy.evaluation.experiment_tables import estimate_table, markdown
from pace_dspy.evaluation.grid import Cell, load_grid, make_cells, with_rules
from pace_dspy.evaluation.plan import RunSettings
from pace_dspy.retrieval import clear_kbs
from pace_dspy.types import Case, Dataset, Fact, Request

DAY = dt.date(2026, 3, 18)
FACTS = tuple(Fact(f"f{i}", "x" * 40) for i in range(100))
"""100 facts of 40 characters: 10 tokens and 3 for the number, each."""
REQUESTS = tuple(Request("p", f"q{i}", "Book a table", DAY, gold_doc_ids=("f1", "f2")) for i in range(3))
DATA = Dataset("toy", (Case("p", "Ines", None, DAY, None, FACTS, REQUESTS),), "hash")

GRID = """
name = "trial"
title = "A trial (Table 0)"
[[cells]]
method = "sparse"
[[cells]]
method = "hybrid"
[[cells]]
method = "oracle"
[[cells]]
config = "paper"
[cells.vary]
"retrieval.max_hops" = [0, 5]
"""


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    go_offline(monkeypatch)
    yield
    clear_kbs()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def script(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "trial.toml").write_text(GRID)
    return tmp_path / "trial.py"


@pytest.fixture
def uri(tmp_path, template, monkeypatch):
    uri = sqlite_uri(tmp_path / "db", template)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


def cell(method="pacemaker", config="paper", backend="openai", **settings):
    return Cell("c", RunSettings("toy", method=method, backend=backend, **settings), PaceMakerConfig.load(config))


def run(script, *arguments, extra=None):
    shown = []
    common = ("--case", "mini_04", "--limit", "3", "--index", str(script.parent / "indexes"))
    common += ("--out", str(script.parent / "out"), "--no-report")
    code = main(script, shown.append, extra=extra, argv=[*common, *arguments])
    return code, "\n".join(shown)


def test_the_paper_config_is_estimated_by_hand():
    one = estimate(cell(), REQUESTS, DATA)
    prompts = 265 + 250 + (235 + 20 * 13) + (240 + 85 * 13) + (330 + 10 * 13)
    replies = 120 + 70 + 40 + 40 + 110
    assert (one.n_requests, one.calls) == (3, 15)
    assert one.prompt_tokens == pytest.approx(3 * prompts)
    assert one.completion_tokens == 3 * replies
    assert one.cost_usd == pytest.approx((3 * prompts * 0.75 + 3 * replies * 4.5) / 1e6)
    assert one.seconds == pytest.approx(3 * (5 * 0.8 + replies / 80) / 8)
    assert set(one.basis.values()) == {"assumed"}


def test_a_filter_with_nothing_to_choose_is_not_counted():
    one = estimate(cell(config="no-multi-hop"), REQUESTS, DATA)
    assert one.calls == 3 * 4
    assert one.prompt_tokens == pytest.approx(3 * (265 + 250 + 235 + 20 * 13 + 330 + 10 * 13))


def test_baselines_and_judges_are_estimated_by_hand():
    def tokens(method, **more):
        return estimate(cell(method, **more), REQUESTS, DATA).prompt_tokens / 3

    assert tokens("hybrid") == pytest.approx(330 + 10 * 13)
    assert tokens("oracle") == pytest.approx(330 + 2 * 13)
    assert tokens("full-kb") == pytest.approx(330 + 100 * 13)
    assert tokens("full-kb", backend="ollama") == pytest.approx(330 + 1300)
    small = estimate(cell("full-kb", backend="ollama"), REQUESTS, replace(DATA, cases=(
        replace(DATA.cases[0], facts=FACTS * 10),
    )))  # fmt: skip
    assert small.prompt_tokens / 3 == pytest.approx(4096 - 110)
    judged = estimate(cell("hybrid"), REQUESTS, DATA, judges=(BackendEntry("gemini"), BackendEntry("openai")))
    assert judged.calls == 9
    assert judged.cost_usd == pytest.approx(
        3 * ((460 * 0.75 + 110 * 4.5) + (600 * 0.25 + 60 * 1.5) + (600 * 0.75 + 60 * 4.5)) / 1e6
    )


def test_without_a_model_or_a_price_nothing_is_invented():
    free = estimate(cell("hybrid", backend="none"), REQUESTS, DATA)
    assert (free.calls, free.prompt_tokens, free.cost_usd, free.seconds) == (0, 0, 0.0, 0.0)
    unknown = estimate(cell(backend="vllm"), REQUESTS, DATA)
    assert unknown.cost_usd is None
    assert "no price known" in estimate_table([(cell(), unknown)])
    priced = estimate(cell("hybrid", limit=3), REQUESTS, DATA)
    both = estimate_table([(cell(), unknown), (cell(), replace(priced, cost_usd=0.5))])
    assert both.splitlines()[-1].split("|")[6].strip() == "0.50 and unknown"


def test_measured_means_take_the_place_of_assumptions():
    def row(tokens, cached_calls=0):
        usage = {"stage": "answerer", "calls": 1, "cached_calls": cached_calls, "prompt_tokens": tokens,
                 "completion_tokens": 20, "latency_ms": 2000.0}  # fmt: skip
        return {"error": None, "trace": {"usage": [usage]}}

    failed = {"error": {"kind": "ServerError"}, "trace": None}
    found = measure([row(400), row(600), row(0, cached_calls=1), failed])
    assert found == {"answerer": StageEstimate(1, 500, 20, 2.0)}
    one = estimate(cell("hybrid"), REQUESTS, DATA, found)
    assert (one.prompt_tokens, one.seconds, one.basis) == (1500, 3 * 2.0 / 8, {"answerer": "measured"})


def test_a_grid_gives_each_run_once_and_names_what_is_left_out(script):
    grid = load_grid(script.parent / "configs" / "trial.toml")
    cells, left_out = make_cells(grid, RunSettings("mini", backend="local"), seeds=(0, 1))
    assert [one.name for one in cells[:2]] == ["sparse-local-s0", "sparse-local-s1"]
    assert [one.name for one in cells if one.name.endswith("s0")] == [
        "sparse-local-s0", "hybrid-local-s0", "oracle-local-s0", "pacemaker-paper-local-s0",
        "pacemaker-paper-max_hops-0-local-s0",
    ]  # fmt: skip
    assert left_out == []
    cells, left_out = make_cells(grid, RunSettings("mini", backend="none"))
    assert left_out == ["oracle: needs a model, left out with --backend none"]
    assert cells[-1].config.retrieval.max_hops == 0
    assert cells[-1].config.agents.post_filter == "rules"
    cells, _ = make_cells(grid, RunSettings("mini", backend="local"), configs=("lite", "no-planning"))
    assert [one.config.name for one in cells if one.settings.method == "pacemaker" and not one.varied] == [
        "lite",
        "no-planning",
    ]


def test_rules_take_the_place_of_models_only():
    agents = with_rules(PaceMakerConfig.load("no-planning")).agents
    assert (agents.planner, agents.views, agents.pre_filter, agents.post_filter) == ("off", "rules", "rules", "rules")
    lite = PaceMakerConfig.load("lite")
    assert with_rules(lite) is lite
    assert with_rules(PaceMakerConfig.load("plus")).agents.rounds == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\ntitle = "x"\ncells = []', "cells: List should have at least 1 item"),
        ('name = "x"\ntitle = "x"\n[[cells]]\nmethode = "sparse"', "cells.0.methode: Extra inputs are not permitted"),
        ("name = ", "cannot be read"),
    ],
)
def test_a_bad_grid_is_refused_with_its_field(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_grid(path)


def test_a_swept_field_that_does_not_exist_is_refused_with_those_that_do(script):
    text = GRID.replace("retrieval.max_hops", "retrieval.hops")
    (script.parent / "configs" / "trial.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"cannot vary 'retrieval.hops'; fields: retrieval.top_k_per_view, "):
        make_cells(load_grid(script.parent / "configs" / "trial.toml"), RunSettings("mini"))


def test_the_shipped_experiments_load_and_give_runs():
    from pathlib import Path

    for path in sorted((Path(__file__).parents[2] / "experiments" / "configs").glob("*.toml")):
        grid = load_grid(path)
        for backend in ("none", "local", "openai"):
            cells, _ = make_cells(grid, RunSettings("mini", backend=backend))
            assert cells, (path, backend)
        assert path.with_suffix("").name == grid.name
        assert (path.parents[1] / f"{grid.name}.py").is_file()


def test_a_dry_run_spends_and_writes_nothing(script, monkeypatch):
    monkeypatch.setattr("pace_dspy.evaluation.plan.make_lm", None)
    monkeypatch.setattr("pace_dspy.evaluation.plan.make_embedder", None)
    code, text = run(script, "--backend", "openai", "--dry-run", "--judge-backend", "gemini")
    assert code == 0
    assert "| pacemaker-paper-openai-s0 " in text
    assert "tokens = characters / 4" in text
    assert not (script.parent / "out").exists()


def test_an_experiment_runs_once_is_continued_and_reads_back(script, uri):
    code, text = run(script, "--backend", "none")
    assert code == 0
    assert "| sparse-none-s0" in text
    assert "| 5 (default) |" in text
    out = script.parent / "out"
    rows = (out / "hybrid-none-s0" / "results.jsonl").read_text()
    assert len(rows.splitlines()) == 3
    assert text in (out / "results.md").read_text()
    code, again = run(script, "--backend", "none")
    assert code == 0
    assert (out / "hybrid-none-s0" / "results.jsonl").read_text() == rows
    assert again == text
    client = client_of(uri)
    runs = client.search_runs([client.get_experiment_by_name("trial").experiment_id])
    (parent,) = (one for one in runs if one.data.tags["pace.kind"] == "experiment")
    children = {one.info.run_name for one in runs if one.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    assert children == {
        "sparse, no model, seed 0", "hybrid, no model, seed 0", "pacemaker paper with rules, no model, seed 0",
        "pacemaker paper max_hops=0 with rules, no model, seed 0",
    }  # fmt: skip
    assert {one.info.status for one in runs} == {"FINISHED"}
    assert "R@10, 95% interval" in parent.data.tags["mlflow.note.content"]
    assert {item.path for item in client.list_artifacts(parent.info.run_id)} == {"results.md", "grid.json"}


def test_no_track_leaves_no_trace(script, uri):
    run(script, "--backend", "none", "--only", "sparse", "--no-track")
    assert client_of(uri).get_experiment_by_name("trial") is None
    assert not list((script.parent / "out").rglob("tracking.json"))


def test_a_run_that_cannot_start_is_named_and_does_not_stop_the_others(script, capsys):
    text = GRID + '[[cells]]\nmethod = "dense"\nconfig = "nowhere.json"\n'
    (script.parent / "configs" / "trial.toml").write_text(text)
    assert run(script, "--backend", "none", "--no-track")[0] == 2
    assert "unknown config 'nowhere.json'" in capsys.readouterr().err
    (script.parent / "configs" / "trial.toml").write_text(GRID)
    out = script.parent / "out" / "sparse-none-s0"
    out.mkdir(parents=True)
    (out / "holiday.jpg").touch()
    code, text = run(script, "--backend", "none", "--no-track")
    assert code == 1
    assert "sparse-none-s0 cannot run: folder" in capsys.readouterr().err
    assert "| hybrid-none-s0" in text


def test_answers_are_judged_when_a_judge_is_given(script, uri, monkeypatch):
    verdict = {"verdict": "PASS", "reason": "same reason"}
    monkeypatch.setattr(experiment_judge, "make_lm", lambda *_, **__: scripted_lm({"judge": lambda _: verdict}))
    code, text = run(script, "--backend", "local", "--only", "hybrid", "--judge-backend", "openai-compatible")
    assert code == 0
    assert "PASS" in text.splitlines()[0]
    client = client_of(uri)
    runs = client.search_runs([client.get_experiment_by_name("trial").experiment_id], "tags.method = 'hybrid'")
    assert runs[0].data.metrics["judge/pass"] == 1.0
    assert runs[0].data.metrics["judge/n"] == 3


def test_money_spent_counts_for_all_runs_together(script, monkeypatch):
    lm = scripted_lm(GOOD, price_prompt="1000", price_completion="1000")
    go_offline(monkeypatch, lm=lm)
    code, text = run(script, "--backend", "local", "--no-track", "--max-usd", "0.2", "--no-cache")
    assert code == 1
    assert "hybrid" not in text


def test_markdown_columns_are_aligned():
    assert markdown([["a", "long"], ["bbb", "c"]]) == "| a   | long |\n| --- | ---- |\n| bbb | c    |"


def test_results_are_json_ready_for_the_report(script):
    run(script, "--backend", "none", "--only", "hybrid", "--no-track")
    config = json.loads((script.parent / "out" / "configs" / "hybrid-none-s0.json").read_text())
    assert PaceMakerConfig.parse(config) == PaceMakerConfig.load("paper")
