import pytest
from hypothesis import given
from hypothesis import strategies as st

from pace_dspy.evaluation.coverage import coverage_metrics, coverage_of


def make_row(query_id, evidence, gold="ab", decision="conflict", **fields):
    row = {"case_id": "c", "query_id": query_id, "label": "conflict", "decision": decision, "error": None}
    return row | {"evidence": list(evidence), "gold_doc_ids": list(gold)} | fields


ROWS = [
    make_row("q1", "ab", verdict="PASS"),  # full
    make_row("q2", "bxa", verdict="WRONG_RATIONALE"),  # full at 3, partial at 2
    make_row("q3", "xb", decision="non_conflict", verdict="FAIL"),  # partial
    make_row("q4", "xa", decision=None, judge_error={"kind": "ReplyError", "message": ""}),  # partial, no outcome
    make_row("q5", "xy", decision="non_conflict", verdict="FAIL"),  # none
    make_row("q6", "xy", gold=""),
    make_row("q7", "", error={"kind": "ServerError", "message": ""}),
]


def test_decision_accuracy_by_coverage():
    report = coverage_metrics(ROWS)
    assert [(one.coverage, one.n_requests, one.n, one.n_unscored) for one in report.levels] == [
        ("none", 1, 1, 0),
        ("partial", 2, 1, 1),
        ("full", 2, 2, 0),
    ]
    assert [one.value for one in report.levels] == [0.0, 0.0, 1.0]
    assert [one.share for one in report.levels] == [0.2, 0.4, 0.4]
    assert (report.n_failed, report.n_no_gold, report.reasons) == (1, 1, {"ServerError": 1})


def test_pass_by_coverage_and_cut():
    assert [one.value for one in coverage_metrics(ROWS, outcome="pass").levels] == [0.0, 0.0, 0.5]
    at_two = coverage_metrics(ROWS, k=2)
    assert [one.n_requests for one in at_two.levels] == [1, 3, 1]
    assert at_two.k == 2


def test_an_empty_level_has_no_value():
    level = coverage_metrics(ROWS[:1]).levels[0]
    assert (level.coverage, level.n_requests, level.value) == ("none", 0, None)


def test_k_below_one_is_refused():
    with pytest.raises(ValueError, match="k must be at least 1, received 0"):
        coverage_metrics(ROWS, k=0)


@given(st.lists(st.sampled_from("abcx")), st.sets(st.sampled_from("abc"), min_size=1), st.integers(1, 6))
def test_coverage_grows_with_k(evidence, gold, k):
    order = ["none", "partial", "full"]
    assert order.index(coverage_of(evidence, gold, k)) <= order.index(coverage_of(evidence, gold, k + 1))
