"""A run on two real Ray workers, one killed on the way, is the thread run row for row."""

import json
import os
import re
import signal
from importlib.util import find_spec

import pytest
from servers import LoopbackServer

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.flight import Limits
from pace_dspy.evaluation.plan import RunSettings, prepare
from pace_dspy.evaluation.recording import Recording
from pace_dspy.evaluation.run_card import sampled
from pace_dspy.retrieval import clear_kbs

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")


@pytest.fixture
def server():
    with LoopbackServer() as running:
        yield running
    clear_kbs()


def settings_for(server, tmp_path, *, executor="threads", method="hybrid", config="paper", **more):
    return RunSettings(
        "mini",
        method,
        "none",
        config=config,
        embedder=f"openai:hash@{server.url}",
        index=tmp_path / f"indexes-{executor}",
        executor=executor,
        workers=2 if executor == "ray" else None,
        **more,
    )


def rows_without_times(plan):
    rows = plan.store.rows()
    plan.store.close()
    for row in rows:
        row["trace"] = {**row["trace"], "retrieval_ms": 0, "total_ms": 0}
    return [json.dumps(row, sort_keys=True) for row in rows]


def run(settings, folder, on_row=None, notes=None, spans=None):
    """Run and return (rows without times, outcome, keys in the order in which their rows were committed)."""
    plan, committed = prepare(settings, folder, on_note=(notes if notes is not None else []).append), []

    def seen(row, outcome):
        committed.append((row["case_id"], row["query_id"]))
        if on_row is not None:
            on_row(len(committed))

    outcome = plan.run(Limits(), seen, Recording(0.3, spans.append) if spans is not None else None)
    return rows_without_times(plan), outcome, committed


def test_two_workers_one_killed_give_the_rows_of_the_thread_run(server, tmp_path):
    expected, _, _ = run(settings_for(server, tmp_path), tmp_path / "threads")
    assert len(expected) == 90
    notes, spans = [], []

    def kill_one(done):
        pids = re.findall(r"pid (\d+) on", notes[0])
        if done == 15:
            os.kill(int(pids[1]), signal.SIGSTOP)  # what it is given now cannot end
        elif done == 30:
            os.kill(int(pids[1]), signal.SIGKILL)

    settings = settings_for(server, tmp_path, executor="ray", concurrency=4)
    rows, outcome, committed = run(settings, tmp_path / "ray", kill_one, notes, spans)
    assert rows == expected
    assert (outcome.done, outcome.failed, outcome.stopped) == (90, 0, None)
    assert len(committed) == len(set(committed)) == 90
    recorded = [(one.request.case_id, one.request.query_id) for one in spans]
    assert sorted(recorded) == sorted(key for key in committed if sampled(*key, 0.3))
    assert notes[0].startswith("2 Ray workers ready in ")
    assert len(notes) == 2, notes
    assert re.match(r"worker pid \d+ on .* was lost \(.*\): pid \d+ on .* takes its place", notes[1])
    # A finished run needs no worker, whoever asks for it.
    rows, outcome, committed = run(settings, tmp_path / "ray", notes=notes)
    assert (rows == expected, outcome.skipped, committed, len(notes)) == (True, 90, [], 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "config"),
    [("sparse", "paper"), ("dense", "paper"), ("oracle", "paper"), ("full-kb", "paper"), ("pacemaker", "lite")],
)
def test_every_method_without_a_model(method, config, server, tmp_path):
    expected, _, _ = run(settings_for(server, tmp_path, method=method, config=config), tmp_path / "threads")
    settings = settings_for(server, tmp_path, executor="ray", method=method, config=config)
    rows, outcome, _ = run(settings, tmp_path / "ray")
    assert rows == expected
    assert outcome.done == len(rows) == 90


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://10.0.0.1:10001", "Ray Client is not supported"),
        ("head", "give HOST:PORT of the head"),
        ("127.0.0.1:1", "no Ray cluster at RAY_ADDRESS=127.0.0.1:1 .* start one with `ray start --head`"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(address, message, server, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=message):
        run(settings_for(server, tmp_path, executor="ray"), tmp_path / "ray")
