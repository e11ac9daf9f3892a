"""What compiling costs on PACE: sizes of the sides, one line by hand, and the script that prints it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.backends.profiles import get_profile
from pace_dspy.evaluation.entries import parse_entry
from pace_dspy.optimization import OPTIMIZERS
from pace_dspy.optimization.cost import call_size
from pace_dspy.optimization.price_table import FACT_CHARS, pace_material, price_rows, table_lines
from pace_dspy.program import PaceMakerProgram

SCRIPT = Path(__file__).parents[2] / "experiments" / "compile_cost.py"


def test_paces_sides_follow_our_split():
    whole, limited = pace_material(), pace_material(300)
    # 3,249 requests, 40% train and 20% dev
    assert (whole.n_train, whole.n_dev) == (1300, 650)
    assert (limited.n_train, limited.n_dev) == (300, 300)
    assert (whole.n_gold, whole.n_facts) == (4.01, 2035)


def test_one_line_by_hand():
    (row,) = [
        row for row in price_rows(pace_material(100), [parse_entry("openai")], ["labeled"], proposals=1)
        if row.stages == "answerer"
    ]  # fmt: skip
    # dev before and dev of the one candidate, one call each
    cost = row.costs["openai"]
    assert (cost.calls, row.plans[0].expected) == (200, 200)
    size = call_size(PaceAdapter(), PaceMakerProgram().answerer, 4.01 + 6, FACT_CHARS)
    read = 200 * (size.fixed + 3 * size.demo + size.fresh)
    assert cost.prompt_tokens == read
    profile = get_profile("openai")
    assert cost.usd == pytest.approx((read * profile.price_prompt + 200 * size.reply * profile.price_completion) / 1e6)


def test_the_size_of_a_call_is_near_the_measured_one():
    """The embedded model read 640 tokens for the answerer and 3,310 for a pool of 122 facts (90 requests, `paper`)."""
    program, adapter = PaceMakerProgram(), PaceAdapter()
    answer, pool = (
        call_size(adapter, getattr(program, s), n, 79) for s, n in (("answerer", 10), ("post_filter", 122.5))
    )
    assert answer.fixed + answer.fresh == pytest.approx(645, rel=0.05)
    assert pool.fixed + pool.fresh == pytest.approx(3310, rel=0.05)


def test_what_cannot_be_done_is_no_line():
    rows = price_rows(pace_material(50), [parse_entry("gemini")], ["labeled", "gepa"], proposals=2, config="lite")
    assert {(row.stages, row.optimizer) for row in rows} == {
        ("answerer", "labeled"), ("answerer", "gepa"), ("all", "gepa"), ("end to end", "gepa"),
    }  # fmt: skip


def test_more_proposals_and_more_requests_cost_more():
    def price(limit, proposals):
        rows = price_rows(pace_material(limit), [parse_entry("openai")], ["gepa"], proposals=proposals)
        return next(row for row in rows if row.stages == "filters").costs["openai"].usd

    assert price(100, 5) < price(100, 10) < price(200, 10)


def test_a_model_without_price_is_said_and_one_of_your_own_is_counted():
    entries = [parse_entry("vllm"), parse_entry("vllm:price_prompt=1,price_completion=2,name=rented")]
    lines = table_lines(price_rows(pace_material(50), entries, ["labeled"], proposals=1))
    assert "| no price | $" in lines[2]
    assert "rented" in lines[0]


def test_the_script_prints_the_table_and_refuses_nonsense():
    def call(*arguments):
        return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)

    done = call("--limit", "100", "--optimizer", "gepa", "--backend", "gemini")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PACE, 100 train and 100 dev requests, config paper\n")
    assert "| answerer | gepa | 10 |" in done.stdout
    refused = call("--backend", "nobody")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "unknown backend 'nobody'" in refused.stderr


README = Path(__file__).parents[2] / "README.md"
NAMES = {"all stages one by one": "all", "answerer": "answerer", "filters": "filters", "end to end": "end to end"}


def test_the_readmes_numbers_are_those_of_the_script():
    rows = rf"^\| ([a-z ]+), `({'|'.join(OPTIMIZERS)})` \| (.*) \|$"
    lines = re.findall(rows, README.read_text(encoding="utf-8"), flags=re.M)
    assert len(lines) >= 5
    optimizers = list(dict.fromkeys(optimizer for _, optimizer, _ in lines))
    entries = [parse_entry("openai"), parse_entry("gemini")]
    computed = price_rows(pace_material(300), entries, optimizers, proposals=10)
    found = {(row.stages, row.optimizer): row for row in computed}
    for stages, optimizer, cells in lines:
        row = found[NAMES[stages], optimizer]
        cost = row.costs["openai"]
        tokens = f"{cost.prompt_tokens / 1e6:.1f} M, {cost.completion_tokens / 1e6:.2f} M"
        money = [f"${one.usd:,.2f}" for one in row.costs.values()]
        assert cells.split(" | ") == [f"{sum(plan.expected for plan in row.plans):,}", tokens, *money]
