"""Every optimizer on a model whose skill is known: the best program is reached, and only the stage at fault changes."""

import json

import pytest
from known_skill import HINT, always, answers, compilation, dataset, facts_in, hinted, in_memory, script
from scripted import prompt_of, scripted_lm

from pace_dspy.artifacts import load_program
from pace_dspy.config import PaceMakerConfig
from pace_dspy.optimization import OPTIMIZERS, run
from pace_dspy.optimization.snapshot import DEMO_LINES, snapshot
from pace_dspy.retrieval import clear_kbs

TEXTS_OF_TEST = ("elena", "farid", "Elena", "Farid")


@pytest.fixture(autouse=True)
def _fresh_registry():
    clear_kbs()
    yield
    clear_kbs()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_optimizer_reaches_the_known_best_answerer(tmp_path, optimizer):
    extra = {"labeled": {"max_demos": 8}, "simba": {"calls": 300}}.get(optimizer, {})
    made, lm = compilation(tmp_path, optimizer, **extra)
    result = run(made)
    (group,) = result.groups
    assert (group.before, group.after) == pytest.approx((0.5 * 0.8 + 0.0, 1.0), abs=0.2)
    assert group.after == 1.0
    assert result.changed
    assert group.metric_calls <= made.forecasts[0].plan.metric_calls
    assert group.decisions_before.rates.conflict_recall == 0.0
    assert group.decisions_after.rates.conflict_recall == 1.0
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    assert (manifest["optimizer"], manifest["data_hash"]) == (optimizer, made.data_hash)
    assert manifest["groups"][0]["after"] == 1.0
    saved = (tmp_path / "made" / "program.json").read_text()
    assert HINT in saved or '"conflict"' in saved
    assert not any(name in saved for name in TEXTS_OF_TEST)
    prompts = [prompt_of(request) for _, request in lm.engine.requests]
    assert not any(name in prompt for name in TEXTS_OF_TEST for prompt in prompts)
    loaded = load_program(tmp_path / "made", PaceMakerConfig(), backend="openai-compatible")
    assert answers(loaded, made.sets.dev) == answers(in_memory(result), made.sets.dev), "reloaded, it says the same"
    assert_no_demo_holds_a_whole_kb(loaded)


def assert_no_demo_holds_a_whole_kb(program):
    sizes = {case.case_id: len(case.facts) for case in dataset().cases}
    for _, predictor in program.named_predictors():
        for demo in predictor.demos:
            for case_id, facts in facts_in(demo).items():
                assert len(facts) <= DEMO_LINES < sizes[case_id]


@pytest.mark.parametrize(
    ("optimizer", "fault"),
    [
        *(("gepa", fault) for fault in ("pre_filter", "post_filter", "answerer")),
        *(("bootstrap-rs", fault) for fault in ("pre_filter", "post_filter", "answerer")),
        ("bootstrap", "post_filter"),
        pytest.param("mipro", "post_filter", marks=pytest.mark.slow),
        pytest.param("simba", "answerer", marks=pytest.mark.slow),  # needs examples that are right already
    ],
)
def test_only_the_stage_at_fault_improves(tmp_path, optimizer, fault):
    made, _ = compilation(tmp_path, optimizer, lm=scripted_lm(script(**{fault: hinted})), stages="all", calls=1500)
    before = snapshot(made.program)
    result = run(made)
    loaded = load_program(tmp_path / "made", PaceMakerConfig(), backend="openai-compatible")
    assert_no_demo_holds_a_whole_kb(loaded)
    after = snapshot(loaded)
    changed = [name for name in before if before[name] != after[name]]
    assert changed == [f"{fault}.predict"]
    assert [group.name for group in result.groups if group.changed] == [fault]
    assert next(group for group in result.groups if group.name == fault).after == 1.0


@pytest.mark.parametrize(
    "optimizer",
    ["bootstrap", pytest.param("mipro", marks=pytest.mark.slow), pytest.param("simba", marks=pytest.mark.slow)],
)
def test_end_to_end_on_one_stage_freezes_the_others(tmp_path, optimizer):
    made, _ = compilation(tmp_path, optimizer, end_to_end=True)
    before = snapshot(made.program)
    result = run(made)
    after = snapshot(load_program(tmp_path / "made", PaceMakerConfig(), backend="openai-compatible"))
    assert {name for name in before if before[name] != after[name]} <= {"answerer.predict"}
    assert result.groups[0].name == "end to end"
    assert result.groups[0].after >= result.groups[0].before
    if optimizer == "mipro":
        assert result.groups[0].after > result.groups[0].before


@pytest.mark.parametrize("optimizer", ["gepa", "bootstrap"])
def test_a_program_that_cannot_be_improved_is_called_unchanged(tmp_path, optimizer):
    never = scripted_lm(script(answerer=lambda prompt, shown: False))
    made, _ = compilation(tmp_path, optimizer, lm=never)
    result = run(made)
    assert not result.changed
    assert not result.groups[0].changed
    assert result.groups[0].candidates
    assert "unchanged" in result.to_text()["program"]
    perfect, _ = compilation(tmp_path, optimizer, lm=scripted_lm(script(answerer=always)), name="perfect")
    result = run(perfect)
    assert result.groups[0].skipped == "every dev example scores 1 already"
    assert not result.changed


@pytest.mark.parametrize(
    ("config", "groups"),
    [("lite", ["answerer"]), ("plus", ["planner,views", "second_look", "post_filter", "answerer"])],
)
def test_other_configs_compile_the_agents_they_ask(tmp_path, config, groups):
    made, _ = compilation(tmp_path, "bootstrap", stages="all", config=config, calls=300)
    result = run(made)
    assert [group.name for group in result.groups] == groups
    assert result.groups[-1].after == 1.0
    load_program(tmp_path / "made", PaceMakerConfig.load(config), backend="openai-compatible")


def test_filters_learn_on_frozen_lists_with_one_call_a_sample(tmp_path):
    made, lm = compilation(tmp_path, "bootstrap-rs", lm=scripted_lm(script(post_filter=hinted)), stages="filters")
    result = run(made)
    n = len(made.sets.train) + len(made.sets.dev)
    assert [group.name for group in result.groups] == ["pre_filter", "post_filter"]
    assert [lm.engine.calls(stage) for stage in ("planner", "views", "answerer")] == [n, n, 0]
    assert result.groups[0].skipped
    for group in result.groups:
        assert 0.0 <= group.by_rank <= 1.0
        assert f"the first by rank would score {group.by_rank:.3f}" in group.to_text()
    assert result.groups[1].before < result.groups[1].by_rank, "this one is worse than the order it was shown"
