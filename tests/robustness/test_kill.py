"""``kill -9`` and Ctrl-C of a real run: nothing finished is lost, doubled or asked again."""

import random
import signal
import time
from functools import partial

import pytest
from servers import Fault

N = 24
CONCURRENCY = 3


def wait_for(process, condition, seconds=40):
    limit = time.monotonic() + seconds
    while not condition():
        assert process.process.poll() is None, process.end()
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.01)


def begun(server, seen, answers):
    return len(server.calls) > seen and len(server.requests("answerer", since=seen)) >= answers


@pytest.mark.slow
def test_kill_nine_at_random_moments(server, start, rows_of, tmp_path):
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    server.delay_s = 0.06
    for kill, answers in enumerate(moments.sample([0, 1, 2, 3, 4], 5)):
        seen = len(server.calls)
        done = {query for query, row in rows_of().items() if row["error"] is None}
        process = start("--concurrency", CONCURRENCY)
        wait_for(process, partial(begun, server, seen, answers))
        time.sleep(moments.uniform(0.0, 0.15))
        assert process.process.poll() is None, f"seed {seed}: ended before kill {kill}"
        process.process.kill()
        process.process.communicate()
        assert not done & set(server.requests(since=seen)), f"seed {seed}: finished work was asked again"
        assert done <= set(rows_of()), f"seed {seed}: a finished row was lost"
    seen = len(server.calls)
    done = {query for query, row in rows_of().items() if row["error"] is None}
    assert 0 < len(done) < N
    code, _, err = start("--concurrency", CONCURRENCY).end()
    assert code == 0, err
    rows = rows_of()
    assert len(rows) == N
    assert all(row["error"] is None and row["decision"] == "non_conflict" for row in rows.values())
    assert set(server.requests(since=seen)) == set(rows) - done
    # Each request was carried through once; only what was in flight at a kill has calls beyond that.
    assert N <= len(server.requests("answerer")) <= N + 5 * CONCURRENCY
    assert len((tmp_path / "r" / "results.jsonl").read_text().splitlines()) == N
    seen = len(server.calls)
    code, _, err = start("--concurrency", CONCURRENCY).end()
    assert code == 0, err
    assert len(server.calls) == seen
    assert rows_of() == rows


@pytest.mark.slow
def test_kill_nine_while_judging(server, start, rows_of, tmp_path):
    code, _, err = start(method="hybrid").end()
    assert code == 0, err
    server.delay_s = 0.05
    judge = ["evaluate", tmp_path / "r", "--judge-backend", "openai-compatible", "--no-cache", "--concurrency", 2]
    for _ in range(2):
        seen, judged = len(server.calls), {query for query, row in rows_of().items() if row["verdict"]}
        process = start(command=judge)
        wait_for(process, lambda seen=seen: len(server.calls) > seen + 3)
        process.process.kill()
        process.process.communicate()
        assert not judged & set(server.requests("judge", since=seen))
    judged, seen = {query for query, row in rows_of().items() if row["verdict"]}, len(server.calls)
    assert 0 < len(judged) < N
    code, out, err = start(command=judge).end()
    assert code == 0, err
    assert "PASS 1.000, WRONG_RATIONALE 0.000, FAIL 0.000 (n=24, judge errors 0)" in out
    assert set(server.requests("judge", since=seen)) == set(rows_of()) - judged


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_a_summary_and_a_second_start_goes_on(number, server, start, rows_of):
    server.delay_s = 0.1
    process = start("--concurrency", CONCURRENCY)
    wait_for(process, lambda: len(server.requests("answerer")) >= 4)
    process.process.send_signal(number)
    code, out, err = process.end()
    assert code == 130
    assert "stopping: waiting for the requests in flight" in err
    assert "stopped early: interrupted; run the same command again to continue" in err
    assert "Traceback" not in err
    done = rows_of()
    assert 4 <= len(done) < N
    assert f"requests {len(done)}" in out
    assert all(row["error"] is None for row in done.values())
    # What was in flight was finished, not abandoned: every request that was begun has its row.
    assert set(server.requests()) == set(done)
    seen = len(server.calls)
    code, _, err = start("--concurrency", CONCURRENCY).end()
    assert code == 0, err
    assert not set(done) & set(server.requests(since=seen))
    assert len(rows_of()) == N


@pytest.mark.slow
def test_a_second_ctrl_c_abandons_what_is_in_flight(server, start, rows_of):
    server.fault = lambda call: Fault(hang_s=30) if len(server.calls) > 12 else None
    process = start("--concurrency", 1)
    wait_for(process, lambda: len(server.calls) > 12)
    process.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.process.poll() is None
    process.process.send_signal(signal.SIGINT)
    code, _, err = process.end(timeout=10)
    assert code == 130
    assert "abandoned; finished work is kept" in err
    assert len(rows_of()) == 2
    server.fault = lambda call: None
    code, _, err = start().end()
    assert code == 0, err
    assert len(rows_of()) == N


@pytest.mark.slow
def test_a_second_process_in_the_same_folder_is_refused(server, start, rows_of):
    server.delay_s = 0.2
    first = start("--concurrency", 2)
    wait_for(first, lambda: len(server.calls) > 0)
    code, _, err = start("--concurrency", 2).end()
    assert code == 2
    assert "another process works on" in err
    first.process.kill()
    first.process.communicate()
    server.delay_s = 0.0
    code, _, err = start().end()
    assert code == 0, err
    assert len(rows_of()) == N
