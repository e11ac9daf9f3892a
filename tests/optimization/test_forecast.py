"""What a compile run will take: by hand, and inside its budget; and what happens when the budget ends early."""

import json

import pytest
from known_skill import compilation, hinted, script
from scripted import scripted_lm

from pace_dspy.backends.profiles import get_profile
from pace_dspy.evaluation.estimate import LOCAL_READ_PER_S, LOCAL_WRITE_PER_S
from pace_dspy.optimization import OPTIMIZERS, Budget, run
from pace_dspy.optimization.budget import Size, least_metric_calls, plan_optimizer, plan_proposals
from pace_dspy.optimization.cost import CallSize, estimate
from pace_dspy.optimization.meter import Spent
from pace_dspy.retrieval import clear_kbs


@pytest.fixture(autouse=True)
def _fresh_registry():
    clear_kbs()
    yield
    clear_kbs()


def test_cost_by_hand():
    call = CallSize(fixed=200, fresh=300, reply=100, demo=400)
    local = estimate(get_profile("local"), [call], 10, 2, demos=1)
    # every prompt: 200 fixed + 400 of one demo + 300; the 600 are read for each of 2 programs, else from the cache
    assert (local.calls, local.prompt_tokens, local.cached_tokens, local.completion_tokens) == (10, 9000, 4800, 1000)
    assert local.minutes * 60 == pytest.approx(4200 / LOCAL_READ_PER_S + 1000 / LOCAL_WRITE_PER_S)
    assert local.usd == 0
    gpt = get_profile("openai")
    paid = estimate(gpt, [call], 10, 2, demos=1)
    wanted = 9000 * gpt.price_prompt + 1000 * gpt.price_completion  # no discount is counted on
    assert paid.usd == pytest.approx(wanted / 1e6)
    assert estimate(get_profile("vllm"), [call], 10, 2).usd is None
    assert (paid + paid).usd == pytest.approx(2 * wanted / 1e6)
    # more in flight is faster, up to the slots of the backend
    assert estimate(gpt, [call], 10, 2, demos=1, in_flight=100).minutes == pytest.approx(paid.minutes / gpt.slots)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_smallest_plan_for_a_number_of_proposals(optimizer):
    size = Size(60, 40, 2, 3)
    plan = plan_proposals(optimizer, size, 5)
    least = least_metric_calls(optimizer, size)
    assert plan.proposals >= (5 if optimizer not in ("labeled", "bootstrap") else 1)
    if plan.metric_calls > least:
        assert plan_optimizer(optimizer, size, plan.metric_calls - 1).proposals < plan.proposals


@pytest.mark.parametrize("optimizer", ["bootstrap-rs", "mipro", "gepa"])
def test_a_plan_within_minutes_counts_proposals_and_calibration(tmp_path, optimizer):
    budget = Budget(minutes=30.0)
    slow = {"model": "scripted", "base_url": "http://127.0.0.1:1/v1", "supports_logprobs": "true"}
    made, _ = compilation(tmp_path, optimizer, lm=scripted_lm(script(), **slow), budget=budget, calibrate=True)
    assert made.cost.minutes <= 30.0
    text = made.describe()
    assert text["calibration"] == "on 8 dev requests"
    assert f"{made.cost.minutes:.0f} minutes" in text["cost"]


def test_lists_that_must_be_made_are_counted_and_recorded_ones_are_not(tmp_path):
    made, _ = compilation(tmp_path, "bootstrap", stages="post-filter")
    (one,) = made.forecasts
    # 16 requests times planner, views and pre-filter, before any example is scored
    assert one.cost.calls == one.plan.expected + 16 * 3


# ---------------------------------------------------------------- a budget in time that ends early


def stopped_after(monkeypatch, calls):
    """Make the budget in minutes end after this many paid calls, whatever the clock says."""

    def reason(self):
        return "the budget of 1 minutes is used up" if self.calls >= calls * self.share else None

    monkeypatch.setattr(Spent, "reason", reason)


def test_later_groups_are_left_as_they_were_and_what_was_found_is_kept(tmp_path, monkeypatch):
    lm = scripted_lm(script(pre_filter=hinted, post_filter=hinted))
    made, _ = compilation(tmp_path, "bootstrap-rs", lm=lm, stages="filters", calls=200)
    stopped_after(monkeypatch, 100)
    monkeypatch.setattr(Spent, "share", property(lambda self: 1.0, lambda self, value: None), raising=False)
    result = run(made)
    assert [group.name for group in result.groups] == ["pre_filter"]
    assert result.groups[0].after == 1.0
    assert result.unreached == ("post_filter",)
    assert "post_filter: the budget ended before" in result.to_text()["not reached"]
    assert json.loads((tmp_path / "made" / "manifest.json").read_text())["unreached"] == ["post_filter"]


def test_every_group_gets_its_share_of_the_time(tmp_path, monkeypatch):
    lm = scripted_lm(script(pre_filter=hinted, post_filter=hinted))
    made, _ = compilation(tmp_path, "bootstrap-rs", lm=lm, stages="filters", calls=200)
    stopped_after(monkeypatch, 150)
    result = run(made)
    assert [group.name for group in result.groups] == ["pre_filter", "post_filter"]
    assert result.unreached == ()


def test_a_budget_that_ends_at_once_is_refused(tmp_path, monkeypatch):
    from pace_dspy.errors import ConfigError

    made, _ = compilation(tmp_path, "bootstrap")
    stopped_after(monkeypatch, 2)
    with pytest.raises(ConfigError, match="before the program was scored once on dev; raise --budget"):
        run(made)
    assert not (tmp_path / "made" / "program.json").exists()
