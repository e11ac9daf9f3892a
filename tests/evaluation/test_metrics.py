import json
import random
from pathlib import Path

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import RR, P, R, Success

from pace_dspy.evaluation.metrics import (
    decision_metrics,
    gold_at_k,
    hit_at_k,
    judge_micro,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
    retrieval_metrics,
    score_request,
    verdict_metrics,
)
from pace_dspy.evaluation.scores import grouped

PARITY = json.loads((Path(__file__).parents[1] / "parity" / "metrics.json").read_text(encoding="utf-8"))
CASES = PARITY["cases"]
PERSONAS = PARITY["aggregate"]["personas"]
REPEATED = [case for case in CASES if len(set(case["pred"])) < len(case["pred"])]


def ours(expected):
    """The reference calls Gold@k all_gold@k."""
    return {name.replace("all_gold", "gold"): value for name, value in expected.items()}


def make_row(case_id="c1", query_id="q1", **fields):
    row = {
        "case_id": case_id,
        "query_id": query_id,
        "label": "conflict",
        "situation_type": "personal",
        "gold_doc_ids": ["g"],
        "evidence": [],
        "cited": [],
        "decision": "conflict",
        "response": "No.",
        "trace": None,
        "error": None,
    }
    return row | fields


TIMEOUT = {"kind": "BackendTimeoutError", "message": "no answer in 60 s"}


@pytest.mark.parametrize("case", CASES, ids=[case["note"] for case in CASES])
def test_single_metrics_equal_the_reference(case):
    pred, gold = case["pred"], case["gold"]
    got = {"mrr": reciprocal_rank(pred, gold)}
    for k in PARITY["ks"]:
        got |= {
            f"hit@{k}": hit_at_k(pred, gold, k),
            f"recall@{k}": recall_at_k(pred, gold, k),
            f"precision@{k}": precision_at_k(pred, gold, k),
            f"gold@{k}": gold_at_k(pred, gold, k),
        }
    assert got == ours(case["expected"])


@pytest.mark.parametrize("case", [c for c in CASES if c not in REPEATED], ids=lambda case: case["note"])
def test_score_request_equals_the_reference_without_repeats(case):
    assert score_request(case["pred"], case["gold"], PARITY["ks"]) == ours(case["expected"])


def test_score_request_drops_repeats_where_the_reference_counts_them():
    # The only three fixture cases with repeats, and what changes once they are dropped:
    #  1. [451 451 812 451 092 812 946 200 799 946] -> [451 812 092 946 200 799], gold 451 and 946:
    #     first five now hold both (recall 1, gold 1, precision 2/5); the list is 6 long: precision@10 2/6.
    #  2. ten times 823 -> [823], gold 823 and 665: precision 1/1 at both cuts.
    #  3. [531 710 710] -> [531 710], gold 710 and 541: precision 1/2 at both cuts.
    changes = [
        {"recall@5": 1.0, "gold@5": 1.0, "precision@5": 0.4, "precision@10": 2 / 6},
        {"precision@5": 1.0, "precision@10": 1.0},
        {"precision@5": 0.5, "precision@10": 0.5},
    ]
    assert len(REPEATED) == 3
    for case, change in zip(REPEATED, changes, strict=True):
        assert score_request(case["pred"], case["gold"]) == ours(case["expected"]) | change


def parity_rows(persona):
    known = {query["query_id"]: query for query in persona["queries"]}
    return [
        make_row(
            persona["case"],
            prediction["query_id"],
            evidence=prediction["pred"],
            gold_doc_ids=known.get(prediction["query_id"], {}).get("gold", []),
            label=known.get(prediction["query_id"], {}).get("label"),
        )
        for prediction in persona["predictions"]
    ]


def test_macro_over_cases_equals_the_reference():
    rows = [row for persona in PERSONAS for row in parity_rows(persona)]
    scores = retrieval_metrics(rows, PARITY["ks"])
    expected = ours(PARITY["aggregate"]["expected"]["retrieval_macro"])
    assert {name: round(value, 4) for name, value in scores.macro.items()} == expected
    assert scores.n_cases == PARITY["aggregate"]["expected"]["num_cases_with_retrieval"]
    # acase00/q00, acase01/q03, and acase01/qxx, predicted but not in the queries
    assert scores.n_no_gold == 3


@pytest.mark.parametrize("persona", PERSONAS, ids=lambda persona: persona["case"])
def test_mean_of_one_persona_equals_the_reference(persona):
    scores = retrieval_metrics(parity_rows(persona), PARITY["ks"])
    assert scores.micro == pytest.approx(ours(persona["expected_report"]["retrieval"]), abs=1e-15)
    assert scores.macro == scores.micro


def judged_rows(persona):
    return [
        make_row(persona["case"], one["query_id"], label=one["label"], verdict=one["judge"])
        for one in persona["judgements"] or []
    ]


def test_judge_micro_equals_the_reference():
    rows = [row for persona in PERSONAS for row in judged_rows(persona)]
    assert judge_micro(rows) == PARITY["aggregate"]["expected"]["judge_micro"]


def test_judge_micro_of_one_persona_equals_the_reference():
    for persona in PERSONAS:
        expected = persona["expected_report"].get("judge_eval")
        if expected:
            table = judge_micro(judged_rows(persona))
            assert {name: table[name] for name in expected if "_rate" not in name} == {
                name: value for name, value in expected.items() if "_rate" not in name
            }


def test_random_rankings_agree_with_ir_measures():
    rng = random.Random(7)
    docs = [f"d{i}" for i in range(40)]
    for _ in range(150):
        pred = rng.sample(docs, rng.randint(1, 30))
        gold = rng.sample(docs, rng.randint(1, 8))
        run = {"q": {doc_id: 1 / rank for rank, doc_id in enumerate(pred, start=1)}}
        qrels = {"q": dict.fromkeys(gold, 1)}
        scores = score_request(pred, gold, (1, 5, 10, 20))
        assert scores["mrr"] == pytest.approx(ir_measures.calc_aggregate([RR], qrels, run)[RR])
        for k in (1, 5, 10, 20):
            other = ir_measures.calc_aggregate([Success @ k, R @ k, P @ k], qrels, run)
            assert scores[f"hit@{k}"] == pytest.approx(other[Success @ k])
            assert scores[f"recall@{k}"] == pytest.approx(other[R @ k])
            # trec_eval divides by k, the reference by the length of the list when that is shorter
            assert scores[f"precision@{k}"] * min(k, len(pred)) / k == pytest.approx(other[P @ k])
            assert scores[f"gold@{k}"] == float(other[R @ k] == 1.0)


IDS = st.lists(st.sampled_from([f"d{i}" for i in range(12)]), max_size=20)


@given(pred=IDS, gold=IDS)
def test_retrieval_invariants(pred, gold):
    ks = tuple(range(1, 22))
    scores = score_request(pred, gold, ks)
    assert all(0.0 <= value <= 1.0 for value in scores.values())
    for name in ("hit", "recall", "gold"):
        values = [scores[f"{name}@{k}"] for k in ks]
        assert values == sorted(values)
    for k in ks:
        assert scores[f"gold@{k}"] == float(bool(gold) and scores[f"recall@{k}"] == 1.0)
        assert scores[f"hit@{k}"] == float(scores[f"recall@{k}"] > 0)
        assert scores[f"hit@{k}"] == float(scores["mrr"] >= 1 / k)


def test_k_below_one_is_refused():
    with pytest.raises(ValueError, match="k must be at least 1, received 0"):
        recall_at_k(["a"], ["a"], 0)


def test_failures_are_counted_beside_the_score_and_never_in_it():
    rows = [
        make_row("c1", "q1", evidence=["g"], situation_type="state"),  # recall 1
        make_row("c1", "q2", evidence=["x"]),  # recall 0
        make_row("c2", "q1", evidence=["g"], label="non_conflict"),  # recall 1
        make_row("c2", "q2", error=TIMEOUT),
    ]
    scores = retrieval_metrics(rows)
    assert (scores.n, scores.n_cases, scores.n_failed, scores.reasons) == (3, 2, 1, {"BackendTimeoutError": 1})
    assert scores.micro["recall@5"] == pytest.approx(2 / 3)
    assert scores.macro["recall@5"] == pytest.approx((0.5 + 1.0) / 2)
    groups = grouped(rows, retrieval_metrics)
    assert list(groups.by_label) == ["conflict", "non_conflict"]
    assert list(groups.by_type) == ["personal", "state"]
    assert groups.by_label["conflict"].micro["recall@5"] == 0.5
    assert groups.by_label["conflict"].n_failed == 1
    assert groups.by_type["state"].n == 1


def test_nothing_scored_is_none_and_not_zero():
    scores = retrieval_metrics([make_row(error=TIMEOUT)])
    assert (scores.n, scores.n_failed, scores.macro["mrr"], scores.micro["mrr"]) == (0, 1, None, None)


def test_rows_without_a_record_of_failures_are_refused():
    row = make_row()
    del row["error"]
    with pytest.raises(ValueError, match="row c1/q1 has no field 'error', so failures were not recorded"):
        retrieval_metrics([row])


def test_decision_metrics_by_hand():
    def row(number, label, decision, **fields):
        return make_row("c1", f"q{number}", label=label, decision=decision, **fields)

    rows = [
        row(1, "conflict", "conflict"),
        row(2, "conflict", "conflict"),
        row(3, "conflict", "non_conflict"),
        row(4, "non_conflict", "conflict"),
        row(5, "non_conflict", "non_conflict"),
        row(6, "conflict", None, error=TIMEOUT),
        row(7, "non_conflict", None),
        row(8, None, "conflict"),
    ]
    scores = decision_metrics(rows)
    assert (scores.n, scores.n_conflict, scores.n_non_conflict) == (5, 3, 2)
    assert (scores.n_failed, scores.n_undecided, scores.n_unlabelled) == (1, 1, 1)
    assert scores.reasons == {"BackendTimeoutError": 1}
    # scored: 3 of 5 right; conflicts 2 of 3; 1 of 2 non-conflicts refused
    assert scores.rates.accuracy == pytest.approx(3 / 5)
    assert scores.rates.conflict_recall == pytest.approx(2 / 3)
    assert scores.rates.over_refusal_rate == pytest.approx(1 / 2)
    assert scores.rates.balanced_accuracy == pytest.approx((2 / 3 + 1 / 2) / 2)
    # the failed conflict and the undecided non-conflict as wrong answers: 3 of 7, 2 of 4, 2 of 3
    wrong = scores.rates_failures_counted_as_wrong
    assert wrong.accuracy == pytest.approx(3 / 7)
    assert wrong.conflict_recall == pytest.approx(2 / 4)
    assert wrong.over_refusal_rate == pytest.approx(2 / 3)
    assert wrong.balanced_accuracy == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_a_method_that_decides_nothing_has_no_decision_scores():
    scores = decision_metrics([make_row(decision=None)])
    assert (scores.n, scores.n_undecided) == (0, 1)
    assert scores.rates.accuracy is None
    assert scores.rates_failures_counted_as_wrong.accuracy is None


def test_an_unknown_decision_is_refused():
    with pytest.raises(ValueError, match="row c1/q1: decision is 'maybe'; allowed: conflict, non_conflict, or null"):
        decision_metrics([make_row(decision="maybe")])


def test_judge_errors_are_a_third_outcome():
    unreadable = {"kind": "ReplyError", "message": "no verdict"}
    rows = [
        make_row(query_id="q1", verdict="PASS", judge_error=None),
        make_row(query_id="q2", verdict="PASS", judge_error=None),
        make_row(query_id="q3", verdict="FAIL", judge_error=None),
        make_row(query_id="q4", verdict=None, judge_error=unreadable),
        make_row(query_id="q5", error=TIMEOUT),
        make_row(query_id="q6"),
    ]
    scores = verdict_metrics(rows)
    assert (scores.n, scores.n_judge_errors, scores.n_failed, scores.n_unjudged) == (3, 1, 1, 1)
    assert scores.counts == {"PASS": 2, "WRONG_RATIONALE": 0, "FAIL": 1}
    assert scores.rates == {"PASS": 2 / 3, "WRONG_RATIONALE": 0.0, "FAIL": 1 / 3}
    assert scores.rates_with_judge_errors == {"PASS": 0.5, "WRONG_RATIONALE": 0.0, "FAIL": 0.25}
    assert scores.pass_rate_failures_counted_as_wrong == 0.5
    assert (scores.reasons, scores.judge_error_reasons) == ({"BackendTimeoutError": 1}, {"ReplyError": 1})


def test_an_unknown_verdict_is_refused():
    with pytest.raises(ValueError, match="verdict is 'OK'; allowed: PASS, WRONG_RATIONALE, FAIL"):
        verdict_metrics([make_row(verdict="OK")])
