"""Scores by hand, feedback in words, and metrics that are refused."""

import dspy
import pytest
from hash_embedder import HashEmbedder
from known_skill import DAY, case

from pace_dspy.errors import ConfigError
from pace_dspy.optimization import STAGE_SCORES, ScoreWeights, check_metric, feedback_for
from pace_dspy.optimization.feedback import FEEDBACK
from pace_dspy.optimization.metrics import (
    answer_score,
    filter_score,
    program_score,
    second_look_score,
    views_score,
)
from pace_dspy.retrieval import KbIndex, register_kb
from pace_dspy.types import FusedHit, Hit, PoolFact, Trace, View, ViewHits

W = ScoreWeights()


def example(part="train"):
    return dspy.Example(
        request="Book visit0 for anna", kb_id="anna", case_id="anna", query_id="q0", part=part, label="conflict",
        gold_doc_ids=("anna-g0a", "anna-g0b"), judgment="It blocks.",
    )  # fmt: skip


def prediction(trace, decision=None, cited=()):
    return dspy.Prediction(decision=decision, response="r", evidence=trace.evidence, cited=cited, trace=trace)


@pytest.fixture(autouse=True)
def _kb():
    register_kb(KbIndex.build("anna", case("anna").facts, HashEmbedder()), replace=True)


def test_stage_scores_by_hand():
    assert views_score(["a", "b"], ["b", "x"]) == 0.5
    assert filter_score(["a", "b", "c"], ["a", "b", "x"], ["b", "x"]) == 0.5  # c was never offered
    assert filter_score(["a"], ["x", "y"], ["x"]) == 1.0  # nothing to keep
    # missing before: b, c, of which b is found: 1/2; of what was read only a is gold and was kept: 1
    assert second_look_score(["a", "b", "c"], ["a"], ["a", "b"], ["a"], ["a"]) == 0.75
    # right 0.8 + 0.2 * F1; cited a, x of gold a, b: F1 = 2*1/(2+2)
    assert answer_score("conflict", "conflict", ["a", "b"], ["a", "b", "x"], ["a", "x"], W) == pytest.approx(0.9)
    assert answer_score("conflict", None, ["a"], ["a"], [], W) == 0.0
    assert answer_score("conflict", "conflict", ["a"], ["x"], [], W) == 1.0


def test_program_score_by_hand():
    # conflict, right, half the gold: (0.5 * 1 + 0.3 * 0.5) / 0.8
    assert program_score("conflict", "conflict", ["a", "b"], ["a"], W) == pytest.approx(0.65 / 0.8)
    # non-conflict refused: only the recall counts
    assert program_score("non_conflict", "conflict", ["a"], ["a"], W) == pytest.approx(0.3)
    assert program_score("non_conflict", None, ["a"], [], W) == 0.0
    assert program_score("non_conflict", "non_conflict", ["a"], ["a"], W) == 1.0
    judged = ScoreWeights(judge_pass=1.0)
    assert program_score("conflict", "conflict", ["a"], ["a"], judged, passed=False) == pytest.approx(0.8 / 1.8)


def test_every_stage_has_a_score_and_feedback():
    assert set(STAGE_SCORES) == set(FEEDBACK)


def metric_of(value):
    def metric(example, prediction, trace=None):
        return value

    return metric


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (metric_of(None), "returned None"),
        (metric_of(True), r"returned True \(bool\)"),
        (metric_of("0.5"), r"returned '0.5' \(str\)"),
        (metric_of(1.5), "returned 1.5; it must be from 0 to 1"),
        (metric_of(-0.1), "returned -0.1"),
        (metric_of(float("nan")), "returned nan"),
        (lambda example: 1.0, "cannot be called as"),
        (lambda example, prediction, trace=None: prediction.nothing, "fails on an empty answer"),
    ],
)
def test_a_bad_metric_is_refused_in_one_line(metric, says):
    with pytest.raises(ConfigError, match=says) as caught:
        check_metric(metric, example(), prediction(Trace("anna", DAY)))
    assert "\n" not in str(caught.value)


def test_a_good_metric_passes():
    check_metric(metric_of(1), example(), prediction(Trace("anna", DAY)))


def views_trace():
    hits = ViewHits((Hit("anna-g0a", 1.0), Hit("anna-f9", 0.5)), ())
    views = (View("original", "Book visit0"), View("counter", "other plans"))
    return Trace("anna", DAY, views=views, hits=(hits, hits), fused=(FusedHit("anna-f9", 1.0),))


def test_views_hear_what_no_query_found_and_what_fusion_cut():
    text = feedback_for("views", example(), prediction(views_trace()))
    assert 'No query found these deciding notes: "anna decisive note 0b blocks visit0 entirely."' in text
    assert 'too low in the lists to be kept: "anna decisive note 0a' in text
    assert "other plans" in text


def test_a_filter_hears_what_it_dropped_and_what_it_preferred():
    fused = tuple(FusedHit(doc, 1.0) for doc in ("anna-g0a", "anna-f9", "anna-f10"))
    trace = Trace("anna", DAY, fused=fused, seeds=("anna-f9",), pool=(PoolFact("anna-g0b", 0),), evidence=("anna-g0b",))
    pre, post = (feedback_for(stage, example(), prediction(trace)) for stage in ("pre_filter", "post_filter"))
    assert 'dropped: "anna decisive note 0a' in pre
    assert "although they settle nothing" in pre
    assert "plain thing number 9" in pre
    assert "0b" not in pre, "what the other filter was offered is none of its business"
    assert post == "Good: all 1 deciding notes among the candidates were kept."


def test_the_answerer_hears_the_reason_and_false_citations():
    trace = Trace("anna", DAY, evidence=("anna-g0a", "anna-f9"))
    text = feedback_for("answerer", example(), prediction(trace, "non_conflict", ("anna-f9",)))
    assert "should be 'conflict', not 'non_conflict'" in text
    assert "It blocks." in text
    assert "do not support the decision" in text
    assert "plain thing number 9" in text
    assert 'shown and not cited: "anna decisive note 0a' in text
    assert "1 deciding notes were not shown" in text


@pytest.mark.parametrize("part", ["test", None])
def test_no_feedback_on_the_test_split(part):
    with pytest.raises(ConfigError, match="optimizers see train and dev only"):
        feedback_for("answerer", example(part), prediction(Trace("anna", DAY)))
