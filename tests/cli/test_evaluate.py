"""``evaluate``: verdicts, agreement, humans, and what is refused before a call."""

import json

import pytest
from run_folder import FAILED, answered, make_run
from scripted import scripted_lm

PASS, FAIL = ({"reason": "r", "verdict": verdict} for verdict in ("PASS", "FAIL"))


@pytest.fixture
def judges(monkeypatch):
    """Judges by backend name; returns their scripts, to be filled."""
    scripts = {"ollama": [], "vllm": []}
    made = {}

    def make(name, *_, **__):
        lm = scripted_lm({"judge": scripts[name]})
        lm.identity, made[name] = f"{name}@test", lm
        return lm

    monkeypatch.setattr("pace_dspy.cli.evaluate.make_lm", make)
    scripts["made"] = made
    return scripts


def test_evaluate_judges_twice_compares_and_repeats_nothing(cli, judges, tmp_path):
    make_run(tmp_path / "r", [answered(0), answered(1), answered(2, **FAILED)]).close()
    judges["ollama"], judges["vllm"] = [PASS, FAIL], [PASS, PASS]
    human = tmp_path / "h.csv"
    human.write_text("case_id,query_id,verdict\np1,q000,PASS\np1,q001,FAIL\n")
    options = ("--judge-backend", "ollama", "--second-judge", "vllm", "--human", human, "--concurrency", 1)
    code, out, err = cli("evaluate", tmp_path / "r", *options, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["scores"]["overall"]["counts"] == {"PASS": 1, "WRONG_RATIONALE": 0, "FAIL": 1}
    assert told["scores"]["overall"]["n_failed"] == 1
    assert set(told["scores"]["by_label"]) == {"conflict"}
    assert told["second"]["agreement"]["raw"] == 0.5
    assert told["human"]["agreement"]["raw"] == 1.0
    exported = [json.loads(line) for line in (tmp_path / "r" / "results.jsonl").read_text().splitlines()]
    assert [row["verdict"] for row in exported] == ["PASS", "FAIL", None]
    judges["ollama"], judges["vllm"] = [], []
    code, out, _ = cli("evaluate", tmp_path / "r", *options)
    out = " ".join(out.split())
    assert code == 0
    assert "PASS 0.500, WRONG_RATIONALE 0.000, FAIL 0.500 (n=2, judge errors 0)" in out
    assert "0.500, kappa 0.000 (n=2)" in out
    assert all(lm.engine.requests == [] for lm in judges["made"].values())


def test_judge_errors_end_with_exit_1_and_are_told_apart(cli, judges, tmp_path):
    make_run(tmp_path / "r", [answered(0), answered(1)]).close()
    judges["ollama"] = [PASS, "?", "?"]
    code, out, err = cli("evaluate", tmp_path / "r", "--judge-backend", "ollama", "--concurrency", 1)
    out = " ".join(out.split())
    assert code == 1
    assert "1, judge errors 1 ReplyError 1" in out
    assert "PASS 0.500 of judged and judge errors" in out
    assert "1 judge errors; the same command asks them again and repeats no verdict" in err


def test_refused_before_the_first_call(cli, judges, tmp_path):
    make_run(tmp_path / "r", [answered(0, judgment=None)]).close()
    code, out, err = cli("evaluate", tmp_path / "r", "--judge-backend", "ollama")
    assert (code, out) == (2, "")
    assert "have no gold rationale (first: p1/q000)" in err
    make_run(tmp_path / "good", [answered(0)]).close()
    code, _, err = cli("evaluate", tmp_path / "good", "--judge-backend", "ollama", "--second-judge", "ollama")
    assert code == 2
    assert "--second-judge ollama is the first judge again" in err
    assert not any(lm.engine.requests for lm in judges["made"].values())


def test_unknown_backend_and_no_run(cli, tmp_path):
    code, _, err = cli("evaluate", tmp_path, "--judge-backend", "local")
    assert code == 2
    assert "is not a run folder" in err
    make_run(tmp_path / "r", [answered(0)]).close()
    code, _, err = cli("evaluate", tmp_path / "r", "--judge-backend", "gpt")
    assert code == 2
    assert "unknown backend 'gpt'; known: local, " in err


def test_human_labels_of_other_requests_are_refused_before_a_call(cli, judges, tmp_path):
    make_run(tmp_path / "r", [answered(0), answered(1)]).close()
    human = tmp_path / "h.csv"
    for verdict, more, shown in (
        ("PASS", (), "p9/q000"),
        ("conflict", (), "p9/q000"),
        ("PASS", ("--limit", 1), "p1/q001"),
    ):
        case, query = shown.split("/")
        human.write_text(f"case_id,query_id,verdict\n{case},{query},{verdict}\n")
        code, out, err = cli("evaluate", tmp_path / "r", "--judge-backend", "ollama", "--human", human, *more)
        assert (code, out) == (2, "")
        assert " ".join(err.split()) == (
            f"error: {human}: none of its 1 requests is one that this run compares: {shown}. Give case_id and query_id "
            "of the run's results.jsonl, as in p1/q000"
        )
    assert judges["made"] == {}


def test_each_judge_has_settings_of_its_own(cli, monkeypatch, tmp_path):
    made = []

    def make(name, settings, **_):
        lm = scripted_lm({"judge": [PASS]}, **settings)
        lm.identity = f"{settings['model']}@test"
        made.append((name, settings))
        return lm

    monkeypatch.setattr("pace_dspy.cli.evaluate.make_lm", make)
    make_run(tmp_path / "r", [answered(0)]).close()
    first = ("--judge-backend", "vllm", "--set", "model=one", "--judge-set", "temperature=0.5")
    second = ("--second-judge", "vllm", "--second-judge-set", "model=two")
    code, out, err = cli("evaluate", tmp_path / "r", *first, *second)
    assert code == 0, err
    assert made == [("vllm", {"model": "one", "temperature": "0.5"}), ("vllm", {"model": "two"})]
    assert "one@test, temperature=0.5, prompt" in " ".join(out.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--second-judge-set", "model=x"), "--second-judge-set needs --second-judge"),
        (("--judge-set", "answer.model=x"), "--judge-set answer.model: answer. settings are for the answerer of a run"),
        (("--judge-set", "modle=x"), "--judge-set: unknown setting 'modle'; known: provider, model"),
        (
            ("--second-judge", "ollama", "--second-judge-set", "model"),
            "--second-judge-set takes KEY=VALUE, such as --second-judge-set temperature=0.2",
        ),
    ],
)
def test_wrong_settings_of_a_judge_are_refused(cli, judges, tmp_path, options, message):
    make_run(tmp_path / "r", [answered(0)]).close()
    code, _, err = cli("evaluate", tmp_path / "r", "--judge-backend", "vllm", *options)
    assert code == 2
    assert message in " ".join(err.split())
