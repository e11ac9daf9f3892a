"""The run store and the loop of work in flight: commits, limits, money of failures, locks, leftovers of a kill."""

import datetime as dt
import sqlite3
import threading
import time
from dataclasses import dataclass

import pytest
from run_folder import answered, make_run

from pace_dspy.backends.usage import CallRecord, record_call, stage_scope
from pace_dspy.errors import AuthError, ConfigError, ServerError
from pace_dspy.evaluation.flight import Limits, run_work
from pace_dspy.evaluation.runner import Job, run_one
from pace_dspy.evaluation.store import MANIFEST_NAME, RunStore
from pace_dspy.types import Request

JOB = Job(Request("p1", "q000", "Book a table", dt.date(2026, 3, 18)), "p1", None, 0)
DOWN = {"kind": "ServerError", "message": "down", "fatal": False, "cost_usd": 0.5}


@dataclass(frozen=True)
class Piece:
    position: int

    @property
    def key(self):
        return ("p1", f"q{self.position:03}")


def work(n):
    return [Piece(position) for position in range(n)]


def row(piece, **more):
    return answered(piece.position, **more)


def test_each_row_is_committed_before_the_next_is_counted(tmp_path):
    store, seen = make_run(tmp_path / "r", []), []

    def committed(*_):
        with sqlite3.connect(tmp_path / "r" / "run.sqlite") as other:
            seen.append(other.execute("SELECT COUNT(*) FROM results").fetchone()[0])

    outcome = run_work(row, work(5), store, concurrency=2, on_row=committed)
    assert seen == [1, 2, 3, 4, 5]
    assert (outcome.planned, outcome.done, outcome.skipped) == (5, 5, 0)
    asked = []
    outcome = run_work(lambda piece: asked.append(piece) or row(piece), work(6), store)
    assert (asked, outcome.skipped) == ([Piece(5)], 5)


def test_never_more_in_flight_than_asked_for(tmp_path):
    lock, now, most = threading.Lock(), [0], [0]

    def busy(piece):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        return row(piece)

    run_work(busy, work(12), make_run(tmp_path / "r", []), concurrency=3)
    assert most == [3]


def test_failures_are_replaced_and_their_money_counts(tmp_path):
    store = make_run(tmp_path / "r", [])
    outcome = run_work(lambda piece: row(piece, error=DOWN), work(5), store, limits=Limits(max_usd=1.0))
    assert (outcome.failed, outcome.failures, outcome.cost_usd) == (2, {"ServerError": 2}, 1.0)
    assert outcome.stopped == "reached --max-usd 1.0"
    outcome = run_work(row, work(5), store)
    assert (outcome.done, outcome.skipped) == (5, 0)
    assert [found["error"] for found in store.rows()] == [None] * 5


@pytest.mark.parametrize(("fails", "stopped"), [(19, None), (20, "the backend failed 20 times in a row; last: down")])
def test_an_outage_stops_the_run_after_twenty_failures_in_a_row(fails, stopped, tmp_path):
    store = make_run(tmp_path / "r", [])
    outcome = run_work(lambda p: row(p, error=DOWN if p.position < fails else None), work(30), store)
    assert outcome.stopped == stopped
    assert outcome.failed == fails


def test_time_is_a_limit(tmp_path):
    outcome = run_work(row, work(5), make_run(tmp_path / "r", []), limits=Limits(max_minutes=0.0))
    assert (outcome.done, outcome.stopped) == (1, "reached --max-minutes 0.0")


@pytest.mark.parametrize("limits", [Limits(max_minutes=0.0), Limits(max_usd=0.0)])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_limit_that_leaves_nothing_stops_nothing(limits, concurrency, tmp_path):
    n = concurrency  # all are started before the first ends
    outcome = run_work(row, work(n), make_run(tmp_path / "r", []), limits=limits, concurrency=concurrency)
    assert (outcome.done, outcome.stopped) == (n, None)


def test_a_failed_request_tells_what_it_spent():
    def check(request, kb_id, persona):
        with stage_scope("planner"):
            record_call(CallRecord("planner", "b", cost_usd=0.25))
        raise ServerError("down")

    error = run_one(check, JOB)["error"]
    assert error == {"kind": "ServerError", "message": "down", "fatal": False, "cost_usd": 0.25}


def test_a_fatal_error_says_so():
    def check(request, kb_id, persona):
        raise AuthError("key refused")

    assert run_one(check, JOB)["error"]["fatal"] is True


def test_a_run_is_worked_on_by_one_process(tmp_path):
    store = make_run(tmp_path / "r", [])
    with RunStore(tmp_path / "r").exclusive(), pytest.raises(ConfigError, match=r"another process works on .* \(run\)"):
        run_work(row, work(1), store)
    assert run_work(row, work(1), store).done == 1


def test_a_kill_before_the_manifest_leaves_a_usable_folder(tmp_path):
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / f".{MANIFEST_NAME}.123.partial").write_text("{")
    assert make_run(folder, [answered(0)]).finished() == {("p1", "q000")}
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty and holds no run"):
        make_run(other, [])


def test_rows_of_an_unjudged_run_have_empty_verdicts(tmp_path):
    (found,) = make_run(tmp_path / "r", [answered(0)]).rows()
    assert (found["verdict"], found["verdict_reason"], found["judge_error"]) == (None, None, None)


def test_concurrency_below_one_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="concurrency must be at least 1, received 0"):
        run_work(row, work(1), make_run(tmp_path / "r", []), concurrency=0)
