"""Limits, interrupts and other processes; tracking and reports beside paused requests."""

import os
import signal

import filelock
import pytest
from hash_embedder import HashEmbedder
from rounds import STAGES, answer, requests_of, rows_of, said_rounds, stages, texts
from tracked_helpers import client_of, make_template, run_tracked, sqlite_uri

from pace_dspy.backends.lm import make_lm
from pace_dspy.backends.preflight import preflight
from pace_dspy.batch import folder as folder_module
from pace_dspy.batch.folder import BatchFolder
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation import plan as plan_module
from pace_dspy.evaluation.plan import RunSettings, prepare
from pace_dspy.evaluation.runner import Limits
from pace_dspy.modules.judge import Judge


def test_money_stops_the_next_round_not_the_replies_that_are_there(run, tmp_path):
    run(limit=2)
    answer(tmp_path / "r")
    # 2 replies: each 60 fresh and 40 cached tokens read, 10 written, at half the price of gpt-5.4-mini
    spent = 2 * (60 * 0.375 + 40 * 0.0375 + 10 * 2.25) / 1e6
    code, out, err = run("--max-usd", spent, limit=2)
    assert code == 1
    assert said_rounds(out) == []
    assert f"stopped early: reached --max-usd {spent}: the replies so far cost $0.00" in err
    assert not (tmp_path / "r/batch/round-2.requests.jsonl").exists()
    code, out, _ = run("--max-usd", spent * 1.5, limit=2)
    assert (code, said_rounds(out)) == (0, [2])
    for _ in STAGES[1:]:
        answer(tmp_path / "r")
        code, out, err = run(limit=2)
    code, out, err = run("--max-usd", 0, limit=2)
    assert (code, len(rows_of(tmp_path / "r"))) == (0, 2), err


def test_time_ends_a_start_and_the_prompts_found_go_out(run, tmp_path):
    code, out, err = run("--max-minutes", 0)
    assert code == 1
    assert "stopped early: reached --max-minutes 0.0" in err
    assert said_rounds(out) == [1]
    assert len(requests_of(tmp_path / "r")) == 1
    answer(tmp_path / "r")
    code, out, _ = run()
    assert (code, said_rounds(out)) == (0, [2])
    assert stages(requests_of(tmp_path / "r")) == ["views"] + ["planner"] * 9


def test_an_interrupted_start_writes_no_round_and_the_next_one_all_of_it(run, tmp_path, monkeypatch):
    asked = []
    answer_of = BatchFolder.answer

    def interrupted(self, body):
        asked.append(body)
        if len(asked) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return answer_of(self, body)

    with monkeypatch.context() as patched:
        patched.setattr(BatchFolder, "answer", interrupted)
        code, out, err = run()
    assert code == 130
    assert "interrupted; run the same command again to continue" in err
    assert said_rounds(out) == []
    assert not list((tmp_path / "r" / "batch").glob("*.jsonl"))
    code, out, _ = run()
    assert (code, said_rounds(out), len(requests_of(tmp_path / "r"))) == (0, [1], 10)


def test_a_round_is_written_whole_or_not_at_all(run, tmp_path, monkeypatch):
    def full(path, text):
        path.with_name(f".{path.name}.1.partial").write_text(text[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "write_atomic", full)
        code, out, err = run(limit=2)
    assert code == 2
    assert "cannot be used (No space left on device)" in err
    assert not list((tmp_path / "r" / "batch").glob("*.jsonl"))
    code, out, err = run(limit=2)
    assert (code, said_rounds(out)) == (0, [1]), err


@pytest.mark.parametrize("content", ["", "half a li", '{"custom_id": "pace-1"}\n'])
def test_a_damaged_file_of_prompts_is_refused_and_written_again_once_deleted(run, cli, tmp_path, content):
    path = tmp_path / "r/batch/round-1.requests.jsonl"
    run(limit=1)
    whole = path.read_text()
    path.write_text(content)
    for code, _, err in (run(limit=1), cli("batch", "submit", tmp_path / "r")):
        assert (code, "is damaged (line 1 is no prompt); delete it, and it is written again" in err) == (2, True), err
    path.unlink()
    assert run(limit=1)[0] == 0
    assert path.read_text() == whole


def test_one_process_a_folder_and_one_model_a_folder(run, tmp_path):
    run(limit=1)
    with filelock.FileLock(tmp_path / "r" / "batch" / ".lock"):
        code, _, err = run(limit=1)
    assert (code, "another process works on" in err) == (2, True)
    place = ("--batch", tmp_path / "r" / "batch")
    code, _, err = run(*place, "--set", "model=gpt-other", limit=1, out="other")
    assert code == 2
    assert "ask openai/gpt-5.4-mini@batch, this command openai/gpt-other@batch; give another --batch" in err
    code, _, err = run(*place, limit=1, out="third", backend="none")
    assert code == 2
    code, out, err = run(*place, limit=1, out="same")
    assert (code, said_rounds(out)) == (0, [1]), err


def test_the_answerer_may_have_a_round_of_its_own(run, tmp_path):
    more = ("--set", "like=vllm", "--set", "answer.like=openai")
    for stage in STAGES[:4]:
        run(*more, limit=2)
        assert stages(answer(tmp_path / "r")) == [stage] * 2
    code, out, err = run(*more, limit=2)
    assert (code, said_rounds(out)) == (0, [1]), err
    prompts = answer(tmp_path / "r" / "batch" / "answer")
    assert {request["body"]["model"] for request in prompts} == {"gpt-5.4-mini"}
    code, out, err = run(*more, limit=2)
    assert (code, said_rounds(out)) == (0, []), err
    assert len(rows_of(tmp_path / "r")) == 2


def test_reports_and_evaluations_of_a_paused_run_are_one_line(run, cli, tmp_path):
    run(limit=2)
    for command in (
        ("report", tmp_path / "r", "--out", tmp_path / "p.html"),
        ("evaluate", tmp_path / "r", "--judge-backend", "batch"),
    ):
        code, _, err = cli(*command)
        assert code in {1, 2}
        assert "Traceback" not in err
        assert len(err.strip().splitlines()) == 1


def test_a_half_finished_run_can_be_reported(run, cli, tmp_path):
    for stage in STAGES:
        run(limit=3)
        answer(tmp_path / "r", change=_without_the_last if stage == "answerer" else None)
    code, out, _ = run(limit=3)
    assert (code, said_rounds(out)) == (0, [6])
    assert len(rows_of(tmp_path / "r")) == 2
    code, _, err = cli("report", tmp_path / "r", "--out", tmp_path / "p.html", "--data", tmp_path / "data")
    assert code == 0, err


def _without_the_last(lines):
    return texts(lines[:-1])


@pytest.mark.parametrize("data", ["mini"])
def test_paused_requests_are_tracked_once_when_they_are_finished(data, tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "make_embedder", lambda spec: HashEmbedder())
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    uri = sqlite_uri(tmp_path, make_template(tmp_path / "template"))
    trouble = []
    settings = {"method": "pacemaker", "backend": "batch", "limit": 2, "share": 1.0, "trouble": trouble}
    for _ in STAGES:
        rows, run_id, outcome = run_tracked(tmp_path, uri, **settings)
        assert (rows, outcome.paused) == ([], 2)
        answer(tmp_path / "run")
    rows, last_id, outcome = run_tracked(tmp_path, uri, **settings)
    assert (len(rows), outcome.paused, last_id, trouble) == (2, 0, run_id, [])
    client = client_of(uri)
    run = client.get_run(run_id)
    assert run.data.metrics["requests/n"] == 2
    assert run.data.metrics["calls/all"] == 2 * len(STAGES)
    traces = client.search_traces(locations=[run.info.experiment_id])
    assert len(traces) == 2


def test_where_there_are_no_rounds_the_backend_is_refused(cli, tmp_path):
    code, _, err = cli("backends", "test", "batch")
    assert (code, "backend batch works in rounds, with `pace-dspy run`" in err) == (2, True)
    lm = make_lm("batch")
    with pytest.raises(ConfigError, match="backend batch works in rounds"):
        preflight(lm, Judge())
    assert prepare(RunSettings("mini", backend="batch", limit=1), tmp_path / "r").run(Limits()).paused == 1
