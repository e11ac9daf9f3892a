"""``experiments/compare_backends.py`` on scripted servers: good ones, and ones that are down, die or lack a key."""

import importlib.util
import json
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from hash_embedder import HashEmbedder
from servers import REPLIES, Fault, LoopbackServer
from tracked_helpers import client_of, make_template, sqlite_uri

from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_pace
from pace_dspy.evaluation import plan as plan_module
from pace_dspy.evaluation.backend_comparison import (
    comparison_page,
    comparison_tables,
    groups_of,
    money,
    names_of,
    shown_of,
    spent,
)
from pace_dspy.evaluation.experiment import main
from pace_dspy.evaluation.experiment_tables import CellResult, problems_of
from pace_dspy.evaluation.flight import Outcome
from pace_dspy.evaluation.grid import Cell
from pace_dspy.evaluation.plan import RunSettings
from pace_dspy.retrieval import clear_kbs

ROOT = Path(__file__).parents[2]
CONFIG = """
name = "compare"
title = "Backends"
cache = false
[[cells]]
method = "oracle"
[[cells]]
method = "hybrid"
"""
N = 4
REFUSES = {"response": "No, it clashes with another plan.", "cited": [1], "decision": "conflict"}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setattr(plan_module, "make_embedder", lambda spec: HashEmbedder())
    yield
    clear_kbs()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def uri(tmp_path, template, monkeypatch):
    uri = sqlite_uri(tmp_path / "db", template)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture
def compare(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "compare.toml").write_text(CONFIG)

    def run(*arguments, **texts):
        shown = []
        common = ("--case", "mini_04", "--sample", str(N), "--index", str(tmp_path / "indexes"), "--trace-share", "0")
        code = main(
            tmp_path / "compare.py",
            shown.append,
            extra=comparison_tables,
            page=comparison_page,
            argv=[*common, "--out", str(tmp_path / "out"), *arguments],
            **texts,
        )
        return SimpleNamespace(code=code, text="\n".join(shown), out=tmp_path / "out")

    return run


def entry(server, name, *settings):
    url = server if isinstance(server, str) else server.url
    return ("--backend", ",".join([f"openai-compatible:base_url={url}", "model=scripted", f"name={name}", *settings]))


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def right_answers():
    """Replies of a server that always decides as the gold label says."""
    labels = {request.query: request.label for request in load_pace("mini").case("mini_04").requests}

    def answer(call):
        return REFUSES if labels[call.request] == "conflict" else REPLIES["answerer"]

    return {**REPLIES, "answerer": answer}


def cells_of(html, table):
    """The rows of a table of the report, each a list of texts."""
    body = re.search(rf'<table id="table-{table}">.*?</table>', html, re.DOTALL)[0]
    rows = re.findall(r"<tr class.*?</tr>", body, re.DOTALL)
    return [
        [re.sub(r"<.*?>", " ", cell).split() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]


def test_good_and_bad_backends_beside_each_other(compare, uri, capsys, monkeypatch):
    with LoopbackServer(replies=right_answers()) as good, LoopbackServer() as yes:
        bad = (*entry(closed_port(), "down"), *entry(yes, "other", "model=absent"), "--backend", "openai")
        backends = (*entry(good, "right"), *entry(yes, "yes", "price_prompt=1", "price_completion=10"), *bad)
        done = compare(*backends)
        n_asked = len(good.calls) + len(yes.calls)
        assert n_asked == 2 * 2 * N
    assert done.code == 1
    said = capsys.readouterr().err
    assert said.count("cannot run") == 3  # once a backend, although each has two runs
    assert "4 of 10 runs" in said
    listed = done.text.split("Not run, or not to the end")[1]
    lines = [line for line in listed.splitlines() if line.startswith("| ")][2:]
    assert [line.split("|")[1].strip() for line in lines] == ["down", "other", "openai"]
    assert "oracle-down-s0, hybrid-down-s0" in lines[0]
    assert "cannot be reached" in lines[0]
    assert "the server does not serve this model; it serves scripted" in lines[1]
    assert "OPENAI_API_KEY is not set" in lines[2]
    # the always-yes server is half right on the two conflicts and two non-conflicts of the sample
    assert re.search(r"oracle: difference from right .*\n\n.*balanced accuracy.*\n.*\n\| yes +\| -0\.500", done.text)
    assert "| yes: hybrid " in done.text
    html = (done.out / "report.html").read_text()
    rows = {" ".join(row[0]).removesuffix(" 4 requests"): row for row in cells_of(html, "backends")}
    assert list(rows) == ["right: oracle", "yes: oracle", "right: hybrid", "yes: hybrid"]
    assert rows["right: oracle"][1][0] == "100.0"
    assert rows["yes: hybrid"][1][0] == "50.0"
    assert rows["right: oracle"][-2] == ["–", "no", "price", "known"]
    assert rows["yes: oracle"][-2][0] == "0.00020"  # 100 read at $1 and 10 written at $10 a million
    assert [row[0][0] for row in cells_of(html, "not-run")] == ["down", "other", "openai"]
    assert len(cells_of(html, "differences-1")) == len(cells_of(html, "differences-2")) == 1
    assert (done.out / "report_plots" / "cost_quality.png").is_file()
    assert "seconds a request waits for the model (no price known for right: oracle, right: hybrid)" in html
    client = client_of(uri)
    runs = client.search_runs([client.get_experiment_by_name("compare").experiment_id])
    (parent,) = (one for one in runs if one.data.tags["pace.kind"] == "experiment")
    assert parent.data.tags["backends"] == "right yes down other openai"
    assert {item.path for item in client.list_artifacts(parent.info.run_id)} == {"results.md", "grid.json", "report"}
    children = {one.info.run_name for one in runs if one.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    assert children == {f"{method}, {name}, seed 0" for method in ("oracle", "hybrid") for name in ("right", "yes")}

    # the servers are gone: what is finished is read, nothing is asked, and without the bad ones all is well
    again = compare(*backends[:4], "--no-report")
    assert again.code == 0, capsys.readouterr().err
    assert "Not run" not in again.text
    assert "| oracle-right-s0" in again.text


def test_a_backend_that_dies_stops_only_its_own_runs_and_is_continued_later(compare, capsys):
    def refuse_from_the_third(call):
        return Fault(status=401) if len(dying.calls) > 2 else None

    with LoopbackServer(fault=refuse_from_the_third) as dying, LoopbackServer() as well:
        both = (*entry(dying, "dying", "slots=1"), *entry(well, "well"), "--no-track")
        first = compare(*both)
        assert first.code == 1
        assert len(dying.calls) == 3
        assert len(well.calls) == 2 * N
        assert "stopped after 2 of 4 requests: backend openai-compatible/scripted:" in first.text
        html = (first.out / "report.html").read_text()
        assert [row[0][:2] for row in cells_of(html, "backends")] == [["well:", "oracle"], ["well:", "hybrid"]]
        dying.fault = lambda call: None
        second = compare(*both, "--no-report")
        assert second.code == 0, capsys.readouterr().err
        assert len(dying.calls) == 3 + 2 * N - 2
        assert len(well.calls) == 2 * N
    assert "Not run" not in second.text


def test_failed_requests_are_named_and_end_with_exit_1(compare):
    def first_fails(call):
        return Fault(status=400) if len(server.calls) == 1 else None

    with LoopbackServer(fault=first_fails) as server:
        done = compare(*entry(server, "one", "slots=1"), "--no-track", "--only", "oracle")
    assert done.code == 1
    assert "1 of 4 requests failed (BadRequestError 1), the last one: backend openai-compatible/scripted:" in done.text
    assert cells_of((done.out / "report.html").read_text(), "backends")[0][0] == [
        "one",
        "4",
        "requests,",
        "1",
        "failed",
    ]


def test_a_dry_run_prices_every_backend_by_its_own_settings_and_asks_none(compare, monkeypatch):
    monkeypatch.setattr(plan_module, "make_embedder", None)
    with LoopbackServer() as server:
        cheap = entry(server, "cheap", "price_prompt=1", "price_completion=0")
        dear = entry(server, "dear", "price_prompt=100", "price_completion=0")
        done = compare(*cheap, *dear, "--backend", "openai", "--dry-run", "--only", "hybrid")
        assert server.calls == []
    assert done.code == 0
    assert not done.out.exists()
    prices = {line.split("|")[1].strip(): line.split("|")[6].strip() for line in done.text.splitlines() if "|" in line}
    tokens = int(re.search(r"hybrid-cheap-s0 +\| 4 +\| 4 +\| ([0-9,]+)", done.text)[1].replace(",", ""))
    assert prices["hybrid-dear-s0"] == f"{tokens * 100 / 1e6:.2f}"
    assert prices["hybrid-cheap-s0"] == f"{tokens / 1e6:.2f}"
    assert "not ready: openai: backend openai: no key: OPENAI_API_KEY is not set" in done.text


def test_set_is_for_every_backend_and_an_entry_wins(compare, monkeypatch):
    with LoopbackServer() as server:
        done = compare(
            *entry(server, "warm", "temperature=0.9"), *entry(server, "plain"), "--backend", "none",
            "--set", "temperature=0.4", "--no-track", "--no-report", "--only", "hybrid",
        )  # fmt: skip
    assert done.code == 0
    labels = {
        name: json.loads((done.out / f"hybrid-{name}-s0" / "manifest.json").read_text())["backends"]["agents"]
        for name in ("warm", "plain", "none")
    }
    assert labels["warm"].endswith(", temperature=0.9")
    assert labels["plain"].endswith(", temperature=0.4")
    assert labels["none"] is None


def test_judged_runs_show_pass(compare):
    with LoopbackServer() as server:
        judge = ("--judge-backend", "openai-compatible", "--judge-set", f"base_url={server.url}")
        done = compare(*entry(server, "one"), *judge, "--judge-set", "model=scripted", "--no-track", "--only", "oracle")
    assert done.code == 0
    html = (done.out / "report.html").read_text()
    assert "PASS and seconds a request waits for the model" in html
    assert cells_of(html, "backends")[0][5][0] == "100.0"


def test_a_judge_that_is_down_is_refused_before_the_first_request(compare, capsys):
    with LoopbackServer() as server:
        judge = ("--judge-backend", "openai-compatible", "--judge-set", f"base_url={closed_port()}")
        done = compare(*entry(server, "one"), *judge, "--judge-set", "model=scripted", "--no-track")
        assert server.calls == []
    assert done.code == 1
    assert "cannot be reached" in capsys.readouterr().err


def test_a_typo_is_refused_before_anything_runs(compare, capsys):
    done = compare("--backend", "local", "--backend", "vlm:model=x")
    assert (done.code, done.text) == (2, "")
    assert "unknown backend 'vlm'; known: local" in capsys.readouterr().err
    assert not done.out.exists()


def result(backend="a", *, method="oracle", rows=(), planned=None, seed=0, **more):
    cell = Cell(
        f"{method}-{backend}-s{seed}", RunSettings("mini", method=method, seed=seed), PaceMakerConfig(), None, backend
    )
    outcome = Outcome(planned=len(rows) if planned is None else planned)
    return CellResult(cell, Path(cell.name), tuple(rows), outcome if "error" not in more else None, **more)


def row(number, *, error=None, ms=1000.0, cost=0.002, calls=1, cached=0):
    usage = {"stage": "answerer", "calls": calls, "cached_calls": cached, "cost_usd": cost, "latency_ms": ms}
    trace = None if error else {"total_ms": 9e9, "usage": [usage], "fallbacks": []}
    return {"case_id": "c", "query_id": f"q{number}", "error": error, "trace": trace}


def test_time_and_money_of_a_request_by_hand():
    failed = row(2, error={"kind": "ServerError", "message": "down"})
    assert vars(spent([row(0, ms=1000, cost=0.002), row(1, ms=3000, cost=0.004), failed])) == pytest.approx(
        {"seconds": 2.0, "usd": 0.003, "n_reused": 0}
    )
    assert spent([row(0), row(1, cost=None)]).usd is None
    assert vars(spent([row(0), row(1, ms=0.0, cost=None, calls=0, cached=1)])) == pytest.approx(
        {"seconds": 0.5, "usd": 0.001, "n_reused": 1}
    )
    assert (spent([failed]).seconds, spent([failed]).usd) == (None, None)


def test_money_has_two_digits_that_count():
    assert [money(usd) for usd in (0, 0.000012345, 0.0001, 0.00995, 0.123, 12.345)] == [
        "0", "0.000012", "0.00010", "0.0100", "0.12", "12.35",
    ]  # fmt: skip


def test_runs_are_grouped_and_named_by_what_differs():
    one = [result("a", rows=[row(0)]), result("b", rows=[row(0)])]
    assert names_of(one) == ["a", "b"]
    two = [*one, result("a", method="hybrid"), result("b", method="hybrid")]
    assert names_of(two) == ["a: oracle", "b: oracle", "a: hybrid", "b: hybrid"]
    assert [[each.cell.name for each in group] for group in groups_of(two)] == [
        ["oracle-a-s0", "oracle-b-s0"], ["hybrid-a-s0", "hybrid-b-s0"],
    ]  # fmt: skip
    seeds = [result("a", rows=[row(0)]), result("a", seed=1, rows=[row(0)])]
    assert names_of(seeds) == ["a: seed 0", "a: seed 1"]
    assert len(groups_of(seeds)) == 2


def test_a_run_that_broke_off_does_not_shrink_the_comparison():
    whole, part = result("a", rows=[row(0), row(1)]), result("b", rows=[row(0)], planned=2)
    assert shown_of([whole, part]) == [whole]
    assert shown_of([part]) == [part]
    gone = result("c", error="no\nkey")
    same = result("c", method="hybrid", error="no key")
    batch = result("d", planned=3)
    batch.outcome.paused, batch.outcome.rounds = 3, [{"requests": "out/round-1.requests.jsonl"}]
    assert problems_of([batch])[0].reason == (
        "3 of 3 requests wait for replies to out/round-1.requests.jsonl; have them answered and start again"
    )
    assert [(one.backend, one.runs, one.reason) for one in problems_of([whole, part, gone, same])] == [
        ("b", ("oracle-b-s0",), "1 of 2 requests not answered yet"),
        ("c", ("oracle-c-s0", "hybrid-c-s0"), "no key"),
    ]


def test_the_script_is_thin_and_its_file_lists_backends():
    spec = importlib.util.spec_from_file_location("compare_backends", ROOT / "experiments" / "compare_backends.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = []
    argv = ["--part", "test", "--sample", "12", "--dry-run"]
    code = main(ROOT / "experiments" / "compare_backends.py", shown.append, page=module.comparison_page, argv=argv)
    assert code == 0
    assert "| oracle-local-s0 " in shown[0]
    assert "| pacemaker-paper-local-small-s0 " in shown[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--max-usd", "nan"), "--max-usd must be 0 or more, received nan"),
        (("--max-minutes", "-1"), "--max-minutes must be 0 or more, received -1.0"),
        (("--concurrency", "0"), "--concurrency must be at least 1, received 0"),
        (("--out", str(Path(__file__))), "cannot be a folder to write to"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(arguments, told, capsys):
    script = Path(__file__).parents[2] / "experiments" / "compare_backends.py"
    asked = ("--only", "oracle", "--backend", "vllm:base_url=http://127.0.0.1:9/v1,model=m", "--no-track", *arguments)
    try:
        code = main(script, print, argv=asked)
    except SystemExit as exc:
        code = exc.code
    assert (code, told in capsys.readouterr().err) == (2, True)
