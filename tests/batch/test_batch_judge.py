"""``pace-dspy evaluate --judge-backend batch``: the same rounds, and the verdicts of a direct judge."""

import json

import pytest
from rounds import MODEL, answer, completion, requests_of, said_rounds, stages, texts
from scripted import scripted_lm

from pace_dspy.evaluation.store import RunStore

ROLE = "judge-gpt-5.4-mini"


@pytest.fixture
def judged(direct, cli, monkeypatch, tmp_path):
    """The run folder, judged directly by a scripted judge; returns the verdicts by request."""
    with monkeypatch.context() as patched:
        patched.setattr("pace_dspy.cli.evaluate.make_lm", lambda *_, **__: scripted_lm(MODEL))
        code, _, err = cli("evaluate", tmp_path / "direct", "--judge-backend", "ollama", "--no-cache")
    assert code == 0, err
    return verdicts(tmp_path / "direct")


def verdicts(folder):
    store = RunStore(folder)
    rows = {row["query_id"]: (row["verdict"], row["verdict_reason"]) for row in store.rows()}
    store.close()
    return rows


def test_a_batch_judge_gives_the_verdicts_of_a_direct_one(judged, cli, tmp_path):
    run, place = tmp_path / "direct", tmp_path / "direct" / "batch" / ROLE
    code, out, err = cli("evaluate", run, "--judge-backend", "batch")
    assert code == 0, err
    assert said_rounds(out) == [1]
    assert "10 of 10 requests are paused" in out
    assert stages(requests_of(place)) == ["judge"] * 10

    def damage(lines):
        lines[2]["response"]["body"] = completion("I cannot say.")
        return texts(line for n, line in enumerate(lines) if n != 5)

    answer(place, change=damage)
    code, out, err = cli("evaluate", run, "--judge-backend", "batch", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["scores"]["overall"]["n"] == 8
    [outcome] = told["outcomes"]
    assert (outcome["done"], outcome["paused"], outcome["rounds"][0]["prompts"]) == (8, 2, 2)
    assert len(requests_of(place)[0]["body"]["messages"]) + len(requests_of(place)[1]["body"]["messages"]) == 6
    answer(place)
    code, out, err = cli("evaluate", run, "--judge-backend", "batch")
    assert code == 0, err
    assert said_rounds(out) == []
    assert {verdict for verdict, _ in judged.values()} == {"PASS", "WRONG_RATIONALE", "FAIL"}
    found = verdicts(run)
    broken = [name for name in judged if found[name] != judged[name]]
    assert len(broken) <= 1  # the repair prompt is another prompt to the scripted model
    code, out, _ = cli("evaluate", run, "--judge-backend", "batch")
    assert (code, said_rounds(out)) == (0, [])


def test_judge_replies_that_never_come_are_judge_errors(direct, cli, tmp_path):
    run, place = tmp_path / "direct", tmp_path / "mine" / ROLE
    command = ("evaluate", run, "--judge-backend", "batch", "--limit", 2, "--batch", tmp_path / "mine")
    for _ in range(3):
        code, _, err = cli(*command)
        assert code == 0, err
        lost = requests_of(place)[0]["custom_id"]
        answer(
            place,
            change=lambda lines, lost=lost: texts(
                {**line, "response": None} if line["custom_id"] == lost else line for line in lines
            ),
        )
    code, out, err = cli(*command)
    assert code == 1
    assert said_rounds(out) == []
    assert "1, judge errors 1 ServerError 1" in " ".join(out.split())
    assert "1 judge errors" in err
    assert not (run / "batch").exists()
