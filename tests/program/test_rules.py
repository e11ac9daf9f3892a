"""The rule filter: hand-worked scores, discounts and ties."""

import datetime as dt
import math

import pytest
from hash_embedder import HashEmbedder

from pace_dspy.config import PaceMakerConfig
from pace_dspy.modules.rules import EmbeddingFilter
from pace_dspy.retrieval import KbIndex, register_kb
from pace_dspy.types import Candidate, Fact, Task

TEXTS = [
    "The cello of Jakob rests in its case.",
    "Jakob plays the cello for children.",
    "Milan hands nothing over before Saturday.",
    "The bridge came in the post.",
]
TASK = Task("Promise Jakob his cello", dt.date(2026, 5, 11), "rules", None)


@pytest.fixture(autouse=True)
def kb():
    # eighteen more facts, so that cello and jakob are in at most a tenth of the facts and count as words of the request
    facts = [*TEXTS, *(f"w{n}a w{n}b w{n}c" for n in range(18))]
    index = KbIndex.build("rules", [Fact(f"d{n}", text) for n, text in enumerate(facts)], HashEmbedder())
    register_kb(index, replace=True)


def candidates(*pairs):
    return [Candidate(f"d{n}", TEXTS[n], score, 0, restart) for n, (score, restart) in enumerate(pairs)]


def test_what_a_seed_owes_to_being_one_is_taken_off():
    # wording: d2 has negation ("nothing") and bounds ("before"), e^(2 * 0.4) = 2.2255; the others have none.
    # d0 0.30 - 0.25 = 0.05, d1 0.28 - 0.20 = 0.08, d2 0.03 * 2.2255 = 0.0668, d3 0.06
    pool = candidates((0.30, 0.25), (0.28, 0.20), (0.03, 0.0), (0.06, 0.0))
    assert 0.03 * math.exp(2 * 0.4) == pytest.approx(0.0668, abs=1e-4)
    assert EmbeddingFilter(4)(TASK, pool) == ("d1", "d2", "d3", "d0")
    assert EmbeddingFilter(2)(TASK, pool) == ("d1", "d2")
    assert EmbeddingFilter(4, wording=0)(TASK, pool) == ("d1", "d3", "d0", "d2")


def test_half_of_it_leaves_the_seeds_in_front_and_spread_parts_them():
    # d0 0.30 - 0.125 = 0.175, d1 0.28 - 0.10 = 0.18; then d0, about Jakob and the cello as d1 is, falls to 0.035
    pool = candidates((0.30, 0.25), (0.28, 0.20), (0.03, 0.0), (0.06, 0.0))
    assert EmbeddingFilter(4, restart_discount=0.5)(TASK, pool) == ("d1", "d0", "d2", "d3")
    assert EmbeddingFilter(4, restart_discount=0.5, penalty=0.2)(TASK, pool) == ("d1", "d2", "d3", "d0")


def test_fused_candidates_have_nothing_taken_off_and_ties_keep_their_order():
    pool = candidates((0.03, 0.0), (0.02, 0.0), (0.01, 0.0), (0.02, 0.0))
    assert EmbeddingFilter(4)(TASK, pool) == ("d0", "d2", "d1", "d3")
    assert EmbeddingFilter(4)(TASK, []) == ()


def test_lite_takes_off_all_of_it_and_paper_knows_nothing_of_it():
    lite, paper = PaceMakerConfig.load("lite"), PaceMakerConfig()
    assert (lite.agents.restart_discount, lite.agents.spread, lite.retrieval.second_walk) == (1.0, 1.0, 0.5)
    assert (paper.retrieval.walk, paper.retrieval.second_walk) == ("bfs", 0.0)
