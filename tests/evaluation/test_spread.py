"""Spreading a run without Ray: shards, a crew that loses workers, and what one worker builds from plain data."""

import dataclasses
import datetime as dt
import json
import pickle
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from hash_embedder import HashEmbedder
from run_folder import answered, make_run
from scripted import GOOD, scripted_lm

from pace_dspy.data import load_pace
from pace_dspy.errors import ConfigError, MissingExtraError, PaceError, WorkerLostError
from pace_dspy.evaluation import plan as plan_module
from pace_dspy.evaluation import worker as worker_module
from pace_dspy.evaluation.crew import Crew
from pace_dspy.evaluation.experiment_options import parse_options
from pace_dspy.evaluation.flight import Limits
from pace_dspy.evaluation.grid import load_grid
from pace_dspy.evaluation.plan import RunSettings, prepare
from pace_dspy.evaluation.queues import Shards
from pace_dspy.evaluation.runner import Job
from pace_dspy.evaluation.spread import run_on
from pace_dspy.evaluation.worker import Done, Worker, WorkerSpec
from pace_dspy.retrieval import clear_kbs
from pace_dspy.types import Case, Request


@pytest.fixture(autouse=True)
def _fresh_registry():
    clear_kbs()
    yield
    clear_kbs()


@pytest.fixture
def hashed(monkeypatch):
    for module in (plan_module, worker_module):
        monkeypatch.setattr(module, "make_embedder", lambda spec: HashEmbedder())


def make_jobs(*counts):
    """``counts[i]`` requests of persona ``p<i>``."""
    asked = [(f"p{i}", n) for i, count in enumerate(counts) for n in range(count)]
    return [
        Job(Request(case_id, f"q{n:03}", "Book", dt.date(2026, 3, 18)), case_id, None, position)
        for position, (case_id, n) in enumerate(asked)
    ]


CASES = {f"p{i}": Case(f"p{i}", None, None, None, None, (), ()) for i in range(9)}


@pytest.mark.parametrize("slots", [(1,), (1, 1), (3, 2, 2)])
def test_a_persona_goes_to_one_worker_and_all_is_given_out_once(slots):
    jobs, rng = make_jobs(5, 1, 7, 3, 4, 4, 2, 9, 1), random.Random(1)
    shards, running, given = Shards(jobs, slots), [], []
    assert len(shards) == len(jobs)
    while len(shards) or running:
        while (job := shards.take()) is not None:
            running.append((shards.worker_of(job), job))
            given.append(running[-1])
            assert all(held <= slots[worker] for worker, held in Counter(worker for worker, _ in running).items())
        # No slot is free while a persona waits.
        assert len(running) == sum(slots) or len(shards) < max(job.position for job in jobs)
        _, job = running.pop(rng.randrange(len(running)))
        shards.ended(job)
    assert sorted(job.position for _, job in given) == list(range(len(jobs)))
    homes = {(worker, job.kb_id) for worker, job in given}
    assert len(homes) == 9
    for kb_id in CASES:
        mine = [job.position for _, job in given if job.kb_id == kb_id]
        assert mine == sorted(mine)


def test_workers_begin_with_different_personas_and_a_slow_one_keeps_nobody_waiting():
    shards = Shards(make_jobs(3, 3, 3, 3), (1, 1))
    slow, fast = shards.take(), shards.take()
    assert (slow.kb_id, fast.kb_id) == ("p0", "p1")
    assert shards.take() is None
    seen = []
    for _ in range(8):
        shards.ended(fast)
        fast = shards.take()
        seen.append(fast.kb_id)
    assert seen == ["p1"] * 2 + ["p2"] * 3 + ["p3"] * 3  # p0 stays with the slow one
    shards.ended(fast)
    assert (shards.take(), len(shards)) == (None, 2)


class FakeWorker:
    """Answers each request; ``dies_at`` ends it at that request of its own, for this and every later call."""

    def __init__(self, name, dies_at=None):
        self.name, self.dies_at, self.runs, self.sent, self.dead = name, dies_at, 0, [], False
        self.lock = threading.Lock()

    def run(self, job, case):
        with self.lock:
            self.runs += 1
            self.dead = self.dead or self.runs == self.dies_at
            if self.dead:
                raise WorkerLostError("it was killed")
            self.sent.append((job.kb_id, case is not None))
        assert case is None or case.requests == ()
        return Done(answered(int(job.request.query_id[1:]), case=job.kb_id))

    def stop(self):
        self.dead = True


def run_crew(folder, jobs, workers, slots=(2, 2), limits=None):
    """Run on these workers, more hired from the end of the list; returns (store, outcome, notes, rows seen)."""
    waiting, notes, seen = list(workers), [], []

    def hire():
        if not waiting:
            raise PaceError("the cluster is full")
        return waiting.pop(0)

    store = make_run(folder, [])
    with Crew(hire, len(slots), CASES, None, notes.append) as crew:
        outcome = run_on(crew, jobs, store, slots, limits or Limits(), lambda row, _: seen.append(row))
    assert len({(row["case_id"], row["query_id"]) for row in seen}) == len(seen)
    return store, outcome, notes, seen


def test_a_lost_worker_is_replaced_and_its_requests_are_run_again(tmp_path):
    jobs = make_jobs(*[10] * 9)
    workers = [FakeWorker("one"), FakeWorker("two", dies_at=7), FakeWorker("three", dies_at=20), FakeWorker("four")]
    store, outcome, notes, seen = run_crew(tmp_path / "r", jobs, workers)
    assert (outcome.done, outcome.failed, outcome.stopped) == (90, 0, None)
    assert len(seen) == 90
    assert [(row["case_id"], row["query_id"]) for row in store.rows()] == [job.key for job in jobs]
    assert notes == [
        "worker two was lost (it was killed): three takes its place; its requests in flight are run again",
        "worker three was lost (it was killed): four takes its place; its requests in flight are run again",
    ]
    assert sum(len(worker.sent) for worker in workers) == 90  # answered once each
    for worker in workers:  # the facts of a persona come with its first requests on a worker
        first = {kb_id: number for number, (kb_id, _) in reversed(list(enumerate(worker.sent)))}
        assert all(worker.sent[number][1] for number in first.values())
    assert all(worker.dead for worker in workers)


def test_when_none_can_be_hired_the_others_do_the_work(tmp_path):
    workers = [FakeWorker("one"), FakeWorker("two", dies_at=5)]
    store, outcome, notes, _ = run_crew(tmp_path / "r", make_jobs(6, 6, 6, 6), workers)
    assert (outcome.done, outcome.failed) == (24, 0)
    assert len(store.finished()) == 24
    assert "no other can be started (the cluster is full), so one does its work too" in notes[0]


def test_when_all_are_lost_the_run_stops_and_is_continued(tmp_path):
    jobs = make_jobs(6, 6, 6)
    store, outcome, _, _ = run_crew(tmp_path / "r", jobs, [FakeWorker("one", dies_at=5)], slots=(1,))
    assert (outcome.done, outcome.failed) == (4, 1)
    assert outcome.stopped == "the last worker was lost (it was killed) and cannot be replaced: the cluster is full"
    store.close()
    store, outcome, _, seen = run_crew(tmp_path / "r", jobs, [FakeWorker("again")], slots=(1,))
    assert (outcome.skipped, outcome.done, outcome.stopped) == (4, 14, None)
    assert [row["error"] for row in store.rows()] == [None] * 18
    assert len(seen) == 14


def test_a_request_that_ends_every_worker_fails_alone(tmp_path):
    class Poisoned(FakeWorker):
        def run(self, job, case):
            if job.key == ("p1", "q002"):
                self.dead = True
            if self.dead:
                raise WorkerLostError("out of memory")
            return super().run(job, case)

    workers = [Poisoned(f"w{number}") for number in range(8)]
    store, outcome, notes, _ = run_crew(tmp_path / "r", make_jobs(4, 4, 4), workers, slots=(1, 1))
    assert (outcome.done, outcome.failed, outcome.failures) == (11, 1, {"WorkerLostError": 1})
    (bad,) = (row for row in store.rows() if row["error"])
    assert (bad["case_id"], bad["query_id"]) == ("p1", "q002")
    assert bad["error"]["message"] == "3 workers were lost with this request; last: out of memory"
    assert len(notes) == 3


def test_limits_hold(tmp_path):
    workers = [FakeWorker("one"), FakeWorker("two")]
    _, outcome, _, _ = run_crew(tmp_path / "r", make_jobs(6, 6, 6), workers, limits=Limits(max_minutes=0.0))
    assert outcome.stopped == "reached --max-minutes 0.0"
    assert outcome.done == 4  # what was in flight


def test_a_worker_that_cannot_start_ends_the_run_before_the_first_request(tmp_path):
    with pytest.raises(PaceError, match="the cluster is full"):
        run_crew(tmp_path / "r", make_jobs(2), [FakeWorker("one")])


def without_times(row):
    trace = {**row["trace"], "retrieval_ms": 0, "total_ms": 0}
    usage = [{**stage, "latency_ms": 0} for stage in trace["usage"]]
    return json.dumps({**row, "trace": {**trace, "usage": usage}}, sort_keys=True)


@pytest.mark.parametrize(
    ("method", "backend", "config"),
    [("sparse", "none", "paper"), ("pacemaker", "none", "lite"), ("pacemaker", "openai-compatible", "paper")],
)
def test_a_worker_gives_the_rows_of_the_thread_run(method, backend, config, hashed, monkeypatch, tmp_path):
    monkeypatch.setattr(plan_module, "make_lm", lambda *_, **__: scripted_lm(GOOD))
    monkeypatch.setattr(worker_module, "preflight", lambda *_: None)
    settings = RunSettings("mini", method, backend, config=config, cases=("mini_04",), limit=3, cache=False)
    plan = prepare(settings, tmp_path / "r")
    plan.run(Limits())
    expected = [without_times(row) for row in plan.store.rows()]
    clear_kbs()
    spec = WorkerSpec(dataclasses.replace(settings, index=tmp_path / "other"), plan.config.model_dump(mode="json"))
    worker, case = Worker(), load_pace("mini").case("mini_04")
    assert worker.start(pickle.loads(pickle.dumps(spec))) is None
    rows = [worker.run(job, case if number == 0 else None).row for number, job in enumerate(plan.jobs)]
    extra = {"verdict": None, "verdict_reason": None, "judge_error": None}
    assert [without_times({**json.loads(json.dumps(row)), **extra}) for row in rows] == expected


def test_a_worker_says_what_it_lacks_and_what_it_cannot_open(hashed, monkeypatch, tmp_path):
    settings = RunSettings("mini", "hybrid", "openai", cases=("mini_04",), limit=1)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-driver-only")
    config = plan_module.PaceMakerConfig.load("paper").model_dump(mode="json")
    assert b"sk-of-the-driver-only" not in pickle.dumps(WorkerSpec(settings, config))
    monkeypatch.delenv("OPENAI_API_KEY")
    error = Worker().start(WorkerSpec(settings, config))
    assert "OPENAI_API_KEY is not set" in error["message"]
    (tmp_path / "file").write_text("x")
    quiet = dataclasses.replace(settings, method="sparse", backend="none", index=tmp_path / "file")
    worker, case = Worker(), load_pace("mini").case("mini_04")
    assert worker.start(WorkerSpec(quiet, config)) is None
    row = worker.run(Job(case.requests[0], case.case_id, None, 0), case).row
    assert row["error"]["kind"] == "ConfigError"
    assert "is a file where a folder of indexes is needed" in row["error"]["message"]


def test_spans_come_back_with_the_row(hashed, tmp_path):
    settings = RunSettings("mini", "sparse", "none", cases=("mini_04",), index=tmp_path)
    config = plan_module.without_model("sparse", plan_module.PaceMakerConfig()).model_dump(mode="json")
    worker, case = Worker(), load_pace("mini").case("mini_04")
    assert worker.start(WorkerSpec(settings, config, trace_share=1.0)) is None
    done = pickle.loads(pickle.dumps(worker.run(Job(case.requests[0], case.case_id, None, 0), case)))
    assert done.spans.request == case.requests[0]
    assert done.spans.spans


def test_without_ray_one_line_says_what_to_install(hashed, monkeypatch, tmp_path):
    monkeypatch.setattr("pace_dspy.evaluation.spread.importlib.util.find_spec", lambda name: None)
    settings = RunSettings("mini", "sparse", "none", executor="ray")
    with pytest.raises(
        MissingExtraError, match=r"^ray is not installed. Run: pip install 'pace-dspy\[ray\]'$"
    ) as error:
        prepare(settings, tmp_path / "r")
    assert error.value.exit_code == 2
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"executor": "processes"}, "unknown executor 'processes'; executors: threads, ray"),
        ({"workers": 2}, "--workers needs --executor ray; threads take --concurrency"),
    ],
)
def test_wrong_executors_are_refused(more, message, hashed, tmp_path):
    with pytest.raises(ConfigError, match=message):
        prepare(RunSettings("mini", "sparse", "none", **more), tmp_path / "r")


def test_experiments_take_the_executor(capsys):
    grid = load_grid(Path(__file__).parents[2] / "experiments" / "configs" / "baseline.toml")
    base = parse_options(grid, ["--executor", "ray", "--workers", "3"]).base
    assert (base.executor, base.workers) == ("ray", 3)
    for wrong in (["--executor", "processes"], ["--workers", "0"]):
        with pytest.raises(SystemExit):
            parse_options(grid, wrong)
    assert "--workers must be at least 1, received 0" in capsys.readouterr().err
