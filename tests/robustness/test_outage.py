"""Rate limits, outages and hanging servers, seen by the command line of this process."""

import sys
import time

import pytest
from servers import Fault

from pace_dspy.cli import main
from pace_dspy.retrieval import clear_kbs

N = 24


@pytest.fixture
def run(server, release, tmp_path, monkeypatch, capsys):
    """Run ``pace-dspy run`` in this process; returns (exit code, stdout, stderr)."""
    monkeypatch.setenv("PACE_BASE_URL", server.url)
    monkeypatch.setenv("PACE_MODEL", "scripted")
    monkeypatch.setenv("COLUMNS", "200")

    def call(*more, method="hybrid"):
        clear_kbs()
        arguments = ["run", "--data", release, "--out", tmp_path / "r", "--method", method, "--no-cache"]
        arguments += ["--backend", "openai-compatible", "--embedder", f"openai:hash@{server.url}", *more]
        monkeypatch.setattr(sys, "argv", ["pace-dspy", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code or 0, " ".join(captured.out.split()), " ".join(captured.err.split())

    yield call
    clear_kbs()


def once(fault, when=lambda call: True):
    """A fault for the first call that fits."""
    left = [fault]
    return lambda call: left.pop() if left and when(call) else None


def test_retry_after_is_obeyed(run, server, rows_of):
    server.fault = once(Fault(429, retry_after="1"), lambda call: len(server.calls) == 5)
    code, _, err = run("--limit", 8, "--concurrency", 2)
    assert code == 0, err
    limited = next(call for call in server.calls if call.status == 429)
    again = next(call for call in server.calls if call.request == limited.request and call.status == 200)
    assert again.at - limited.answered_at >= 1.0
    assert len(server.requests("answerer")) == 9
    assert all(row["error"] is None for row in rows_of().values())


def test_a_server_error_that_passes_is_no_failure(run, server, rows_of):
    server.fault = once(Fault(500))
    code, _, err = run("--limit", 4)
    assert code == 0, err
    assert len(server.requests("answerer")) == 5
    assert all(row["error"] is None for row in rows_of().values())


def down_for(*numbers):
    """An outage that meets the requests of these guests, however often they are asked."""
    return lambda call: Fault(503) if any(f"dinner number {n}." in call.request for n in numbers) else None


@pytest.fixture
def impatient(monkeypatch):
    """No waiting between attempts."""
    monkeypatch.setattr(time, "sleep", lambda seconds, really=time.sleep: really(min(seconds, 0.02)))
    monkeypatch.setattr("pace_dspy.backends.retry.sleep", lambda seconds: None, raising=False)


def test_an_outage_leaves_failures_that_are_counted_and_resumable(run, server, rows_of, impatient):
    server.fault = down_for(1, 3, 5)
    code, out, err = run("--concurrency", 2)
    assert code == 1
    rows = rows_of()
    failed = [row for row in rows.values() if row["error"]]
    assert (len(rows), len(failed)) == (N, 9)
    assert {row["error"]["kind"] for row in failed} == {"ServerError"}
    assert all(row["decision"] is None for row in failed)
    # Every answer is non_conflict: right for the 12 non-conflicts, wrong for the 3 conflicts that were answered.
    assert "requests 24, failed 9 ServerError 9" in out
    assert "failed requests are in no score" in out
    assert "decision accuracy 0.800 (n=15)" in out
    assert "9 requests failed; the same command asks them again and repeats nothing that is finished" in err
    server.fault = lambda call: None
    seen = len(server.calls)
    code, out, _ = run("--concurrency", 2)
    assert code == 0
    assert sorted(server.requests("answerer", since=seen)) == sorted(row["query"] for row in failed)
    assert "decision accuracy 0.500 (n=24)" in out
    assert all(row["error"] is None for row in rows_of().values())


def test_a_dead_backend_ends_the_run_early(run, server, rows_of, impatient):
    server.fault = lambda call: Fault(503) if len(server.calls) > 2 else None
    code, out, err = run("--concurrency", 1)
    assert code == 1
    assert "stopped early: the backend failed 20 times in a row" in err
    assert len(rows_of()) == 22
    assert "requests 22, failed 20 ServerError 20" in out
    server.fault = lambda call: None
    assert run()[0] == 0
    assert len(rows_of()) == N


def test_a_refused_key_stops_at_once(run, server, rows_of):
    server.fault = lambda call: Fault(401)
    code, _, err = run("--concurrency", 1)
    assert code == 1
    assert len(server.calls) == 1
    assert "stopped early" in err
    assert len(rows_of()) == 1


def test_react_runs_on_a_real_server(run, server, rows_of):
    seen = {}

    def act(call):
        seen[call.request] = seen.get(call.request, 0) + 1
        tool = {1: "search_dense", 2: "search_sparse"}.get(seen[call.request], "finish")
        arguments = {} if tool == "finish" else {"query": call.request}
        return {"next_thought": "look", "next_tool_name": tool, "next_tool_args": arguments}

    server.replies["react"] = act
    code, _, err = run("--limit", 4, method="react")
    assert code == 0, err
    for row in rows_of().values():
        assert {stage["stage"]: stage["calls"] for stage in row["trace"]["usage"]} == {"react": 3, "answerer": 1}
        assert 5 <= len(row["evidence"]) <= 10
        assert row["trace"]["fallbacks"] == []
