"""Invariants of a compile run: budget, seed, resume, own feedback, uncalled predictors, and every bad input."""

import json
from collections import Counter

import dspy
import pytest
from known_skill import always, compilation, hinted, script
from scripted import prompt_of, scripted_lm

from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import AuthError, BackendError, ConfigError
from pace_dspy.optimization import OPTIMIZERS, Budget, ScoreWeights, run
from pace_dspy.optimization.budget import Size, least_metric_calls, plan_optimizer
from pace_dspy.optimization.optimizers import CalledInTurn
from pace_dspy.retrieval import clear_kbs


@pytest.fixture(autouse=True)
def _fresh_registry():
    clear_kbs()
    yield
    clear_kbs()


def state(tmp_path, name):
    return (tmp_path / name / "program.json").read_text()


SEARCHES = [
    "labeled",
    "bootstrap",
    "bootstrap-rs",
    "gepa",
    pytest.param("mipro", marks=pytest.mark.slow),
    pytest.param("simba", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("optimizer", SEARCHES)
def test_same_seed_same_program(tmp_path, optimizer):
    for name in ("one", "two"):
        made, _ = compilation(tmp_path, optimizer, name=name, threads=2 if name == "two" else 1)
        run(made)
    assert state(tmp_path, "one") == state(tmp_path, "two")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_metric_calls_stay_within_the_budget(tmp_path, optimizer):
    calls = least_metric_calls(optimizer, Size(8, 8, 1, 3))
    scored = Counter()

    def metric(example, prediction, trace=None):
        scored[example.query_id] += 1
        return 0.5

    made, _ = compilation(tmp_path, optimizer, calls=calls, metric=metric)
    scored.clear()
    result = run(made)
    assert result.groups[0].metric_calls <= calls
    # feedback asks the score again for an example that is already counted
    assert sum(scored.values()) <= calls * (2 if optimizer == "gepa" else 1)


class Killed(KeyboardInterrupt):
    """As if the process was ended."""


def dying_script(after):
    plain, seen = script(answerer=hinted), Counter()

    def die(stage):
        def reply(prompt):
            seen["calls"] += 1
            if seen["calls"] > after:
                raise Killed
            return plain[stage](prompt)

        return reply

    return {stage: die(stage) for stage in plain}


@pytest.mark.parametrize(
    ("optimizer", "after"),
    [
        ("labeled", 11),
        ("bootstrap", 12),
        ("bootstrap-rs", 13),
        ("gepa", 22),
        pytest.param("mipro", 25, marks=pytest.mark.slow),
        pytest.param("simba", 25, marks=pytest.mark.slow),
    ],
)
def test_kill_and_resume_continues(tmp_path, optimizer, after):
    whole, lm = compilation(tmp_path, optimizer, name="whole")
    expected = run(whole)
    n_calls = len(lm.engine.requests)
    killed, dying = compilation(tmp_path, optimizer, name="killed", lm=scripted_lm(dying_script(after)))
    with pytest.raises(KeyboardInterrupt):
        run(killed)
    assert not (tmp_path / "killed" / "program.json").exists()
    again, living = compilation(tmp_path, optimizer, name="killed")
    result = run(again)
    assert state(tmp_path, "killed") == state(tmp_path, "whole")
    assert len(living.engine.requests) == n_calls - after, "nothing paid twice"
    assert after + 1 <= len(dying.engine.requests) <= after + 2, "at most one more was on its way"
    assert result.spent["calls"] == expected.spent["calls"]
    assert result.groups[0].metric_calls == expected.groups[0].metric_calls


def test_a_finished_run_repeats_at_no_cost(tmp_path):
    made, _ = compilation(tmp_path, "bootstrap-rs")
    run(made)
    first = state(tmp_path, "made")
    again, lm = compilation(tmp_path, "bootstrap-rs")
    run(again)
    assert lm.engine.requests == []
    assert state(tmp_path, "made") == first


def test_a_work_folder_of_other_settings_is_refused(tmp_path):
    made, _ = compilation(tmp_path, "bootstrap-rs")
    run(made)
    other, lm = compilation(tmp_path, "bootstrap-rs", seed=1)
    with pytest.raises(ConfigError, match="belongs to another compile run: seed: 0 -> 1"):
        run(other)
    assert lm.engine.requests == []


def test_an_outage_ends_the_run_as_an_error_and_it_can_be_continued(tmp_path):
    down = {**script(answerer=hinted), "answerer": [AuthError("HTTP 401: no")]}
    made, lm = compilation(tmp_path, "bootstrap-rs", lm=scripted_lm(down))
    lm.engine.script["answerer"] = lambda _: AuthError("HTTP 401: no")
    with pytest.raises(BackendError, match="401"):
        run(made)
    assert not (tmp_path / "made" / "program.json").exists()
    again, _ = compilation(tmp_path, "bootstrap-rs")
    assert run(again).groups[0].after == 1.0


def test_a_metric_that_turns_bad_on_the_way_stops_the_run(tmp_path):
    def metric(example, prediction, trace=None):
        return None if prediction.response == "Looked at closely." else 0.5

    made, _ = compilation(tmp_path, "gepa", metric=metric)
    with pytest.raises(ConfigError, match="returned None"):
        run(made)


def test_each_predictor_receives_only_its_own_feedback(tmp_path):
    lm = scripted_lm(script(pre_filter=hinted, answerer=hinted))
    made, _ = compilation(tmp_path, "gepa", lm=lm, stages="all", end_to_end=True, calls=100)
    run(made)
    proposals = [prompt_of(request) for stage, request in lm.engine.requests if stage is None]
    assert proposals
    for prompt in proposals:
        about_answer, about_filter = '"decision": "' in prompt, '"keep": [' in prompt or '"selected": [' in prompt
        assert about_answer + about_filter + ('"cues": [' in prompt or '"queries": [' in prompt) == 1
        assert ("The decision should be" in prompt or "is right. The reason" in prompt) == about_answer
        if not about_filter:
            assert "Deciding notes that were dropped" not in prompt


@pytest.mark.parametrize("optimizer", ["gepa", "bootstrap-rs", pytest.param("mipro", marks=pytest.mark.slow)])
def test_a_predictor_never_called_is_skipped_and_counted(tmp_path, optimizer):
    # a second look needs candidates to read and a filter more than it keeps: with 8 facts a KB it is never asked
    small = PaceMakerConfig.parse({"retrieval": {"max_hops": 0}, "agents": {"seeds": 20}}, source="test")
    (tmp_path / "small.json").write_text(json.dumps({"retrieval": {"max_hops": 0}, "agents": {"seeds": 20}}))
    made, lm = compilation(
        tmp_path, optimizer, stages="all", end_to_end=True, calls=90, config=str(tmp_path / "small.json")
    )
    result = run(made)
    assert small.agents.seeds == 20
    assert result.groups[0].uncalled == ("pre_filter.predict",)
    assert lm.engine.calls("pre_filter") == 0
    others = result.groups[0].candidates[1:]
    assert others
    assert not any("pre_filter.predict" in one.state for one in others), "frozen: no optimizer saw it"
    if optimizer == "gepa":
        assert result.groups[0].after > result.groups[0].before


def test_gepa_improves_only_predictors_that_the_examples_reached():
    class Both(dspy.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = dspy.Predict("a -> b"), dspy.Predict("a -> c")

    program = Both()
    select = CalledInTurn(program)
    candidate = {"one": "same words", "two": "same words"}
    reached = [{"trace": [(program.two, {}, {})]}]
    assert [select(None, reached, [], 0, candidate) for _ in range(3)] == [["two"]] * 3
    assert select(None, [{"trace": []}], [], 0, candidate) == []


# ---------------------------------------------------------------- budget


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_budget_for_less_than_one_proposal_is_refused_with_the_least(optimizer):
    size = Size(30, 20, 1, 3)
    least = least_metric_calls(optimizer, size)
    with pytest.raises(ConfigError, match=f"at least {least} are needed"):
        plan_optimizer(optimizer, size, least - 1)
    plan = plan_optimizer(optimizer, size, least)
    assert plan.proposals >= 1
    assert plan.metric_calls == least


def test_more_budget_gives_more_proposals():
    size = Size(30, 20, 1, 3)
    for optimizer in ("bootstrap-rs", "mipro", "gepa", "simba"):
        small, large = (plan_optimizer(optimizer, size, calls) for calls in (200, 800))
        assert small.proposals < large.proposals, optimizer
        assert large.expected <= 800, optimizer


def test_a_budget_in_usd_stops_paying(tmp_path):
    priced = {"price_prompt": "1000", "price_completion": "1000"}  # 100 read + 10 written: $0.11 a call
    made, lm = compilation(
        tmp_path, "bootstrap-rs", lm=scripted_lm(script(answerer=hinted), **priced), budget=Budget(usd=400.0)
    )
    made.forecasts[0].plan.__dict__["metric_calls"] = 10_000
    made.settings.__dict__["budget"] = Budget(usd=2.0)
    result = run(made)
    assert len(lm.engine.requests) <= 20
    assert "budget of $2 is used up" in result.groups[0].stopped


@pytest.mark.parametrize(
    ("texts", "budget"),
    [
        (("300",), Budget(300)),
        (("300calls", "2usd"), Budget(300, None, 2.0)),
        (("45min",), Budget(None, 45.0)),
        (("1.5 minutes",), Budget(None, 1.5)),
    ],
)
def test_budgets_in_words(texts, budget):
    assert Budget.parse(texts) == budget


@pytest.mark.parametrize("texts", [("many",), ("0calls",), ("-3",), ("3eur",), ("30", "40calls")])
def test_other_budgets_are_refused(texts):
    with pytest.raises(ConfigError, match="budget"):
        Budget.parse(texts)


# ---------------------------------------------------------------- bad input, all before the first paid call


def refused(tmp_path, says, error=ConfigError, **settings):
    lm = scripted_lm(script(answerer=always))
    with pytest.raises(error, match=says) as caught:
        compilation(tmp_path, settings.pop("optimizer", "bootstrap"), lm=lm, **settings)
    assert "\n" not in str(caught.value)
    assert lm.engine.requests == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"optimizer": "copro"}, "unknown optimizer 'copro'; optimizers: labeled, bootstrap"),
        ({"stages": "judge"}, "unknown stages 'judge'; stages: all"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"optimizer": "labeled", "stages": "planner,views"}, "labeled needs gold outputs"),
        ({"optimizer": "labeled", "end_to_end": True}, "labeled needs gold outputs"),
        ({"calibrate": True, "stages": "filters"}, "fits the answerer"),
        ({"refusal_cost": 0.0}, "refusal_cost must be a number above 0"),
        ({"prompt_backend": "openai"}, "bootstrap proposes nothing"),
        ({"calls": 3}, "cannot do one full proposal of bootstrap"),
        ({"config": "no-selection", "stages": "filters"}, "asks no model in stages filters"),
        ({"weights": ScoreWeights(judge_pass=1.0)}, "needs a judge"),
        ({"budget": Budget(usd=1.0)}, "its price is unknown"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, settings, says):
    refused(tmp_path, says, **settings)
