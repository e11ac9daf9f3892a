import itertools
import math

import numpy as np
import pytest
import scipy.stats

from pace_dspy.evaluation.answers import decision_metrics
from pace_dspy.evaluation.samples import Sample, request_value, sample_of
from pace_dspy.evaluation.statistics import bootstrap_interval, compare, mcnemar_exact


def sample(cases, name="a", failed=(), unscored=(), metric="decision_accuracy"):
    """Cases: one list of values a persona."""
    values = {(f"c{i:03}", f"q{j}"): value for i, case in enumerate(cases) for j, value in enumerate(case)}
    return Sample(name, metric, values, dict.fromkeys(failed, "ServerError"), frozenset(unscored))


def make_row(case_id, query_id, label, decision, **fields):
    row = {"case_id": case_id, "query_id": query_id, "label": label, "decision": decision, "error": None}
    return row | {"evidence": [], "gold_doc_ids": []} | fields


def test_two_personas_by_hand():
    # Persona 0 scores 1 1 1, persona 1 scores 0. Drawing two of two: (0,0) 1, (0,1) and (1,0) 3/4 micro or 1/2 macro,
    # (1,1) 0, each pair with probability 1/4. So quantiles below 0.25 are 0, above 0.75 are 1, between the middle.
    two = sample([[1, 1, 1], [0]], failed=[("c001", "q9")], unscored=[("c001", "q8")])
    wide = bootstrap_interval(two)
    assert (wide.value, wide.low, wide.high) == (0.75, 0.0, 1.0)
    assert (wide.n, wide.n_cases, wide.n_failed, wide.n_unscored, wide.n_resamples) == (4, 2, 1, 1, 2000)
    assert wide.reasons == {"ServerError": 1}
    narrow = bootstrap_interval(two, level=0.3)
    assert (narrow.low, narrow.high) == (0.75, 0.75)
    macro = bootstrap_interval(two, average="macro", level=0.3)
    assert (macro.value, macro.low, macro.high) == (0.5, 0.5, 0.5)


def test_percentiles_converge_to_the_full_enumeration():
    # Four personas: all 4^4 = 256 draws are equally likely, so the bootstrap distribution is known exactly.
    cases = [[1, 0, 0.5], [0.2], [1, 1], [0, 0.3, 0, 0.1]]
    exact = [
        sum(sum(cases[i]) for i in draw) / sum(len(cases[i]) for i in draw)
        for draw in itertools.product(range(4), repeat=4)
    ]
    got = bootstrap_interval(sample(cases), level=0.8, n_resamples=60_000, seed=3)
    low, high = np.quantile(exact, [0.1, 0.9])
    assert got.low == pytest.approx(low, abs=0.01)
    assert got.high == pytest.approx(high, abs=0.01)


def test_interval_agrees_with_scipy_on_one_request_a_persona():
    values = np.random.default_rng(5).random(60)
    ours = bootstrap_interval(sample([[value] for value in values]), n_resamples=20_000)
    other = scipy.stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1)
    assert ours.low == pytest.approx(other.confidence_interval.low, abs=0.004)
    assert ours.high == pytest.approx(other.confidence_interval.high, abs=0.004)


def test_coverage_of_the_true_mean_and_the_need_for_clusters():
    # Personas share a level (uniform), their ten requests repeat it: requests are no independent evidence.
    # 40 personas, 200 data sets. The interval over personas must hold the true mean 0.5 about 95% of the time
    # (binomial sd 1.5%); drawing requests as if independent would be sqrt(10) too narrow.
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(200):
        interval = bootstrap_interval(sample([[level] * 10 for level in rng.random(40)]), n_resamples=400)
        inside += interval.low <= 0.5 <= interval.high
    assert 0.89 <= inside / 200 <= 0.99


def test_same_seed_same_interval_and_one_persona_none():
    data = sample([[0, 1], [1, 1], [0, 0.5]])
    assert bootstrap_interval(data, seed=4) == bootstrap_interval(data, seed=4)
    alone = bootstrap_interval(sample([[0, 1]]))
    assert (alone.value, alone.low, alone.high, alone.n_resamples) == (0.5, None, None, 0)
    assert bootstrap_interval(sample([])).value is None


def test_balanced_average_is_balanced_accuracy():
    rows = [
        make_row(f"c{i}", f"q{j}", label, "conflict" if (i * j) % 3 else "non_conflict")
        for i in range(6)
        for j, label in enumerate(["conflict", "conflict", "conflict", "non_conflict"])
    ]
    interval = bootstrap_interval(sample_of(rows, "decision_accuracy"), average="balanced")
    assert interval.value == pytest.approx(decision_metrics(rows).rates.balanced_accuracy)
    assert interval.low < interval.value < interval.high


def test_a_resample_without_a_whole_stratum_is_left_out_and_seen():
    rows = [make_row("c1", "q1", "conflict", "conflict"), make_row("c2", "q1", "non_conflict", "conflict")]
    interval = bootstrap_interval(sample_of(rows, "decision_accuracy"), average="balanced")
    assert interval.value == 0.5
    assert 900 < interval.n_resamples < 1100  # half of the draws hold both personas


def test_paired_difference_by_hand():
    # Differences by persona: +1 four times, -1 once; mean 0.6. A draw of five is <= 0 when at least three of it are
    # the -1: binomial(5, 1/5), P(X >= 3) = 0.05792. Two-sided p = 0.11584.
    a, b = sample([[1], [1], [1], [1], [0]]), sample([[0], [0], [0], [0], [1]], "b")
    result = compare(a, b, n_resamples=40_000)
    assert (result.value_a, result.value_b) == (0.8, 0.2)
    assert result.difference == pytest.approx(0.6)
    assert result.p_value == pytest.approx(0.11584, abs=0.008)
    assert (result.n_pairs, result.n_cases, result.n_requests) == (5, 5, 5)
    back = compare(b, a, n_resamples=40_000)
    assert (back.difference, back.low, back.high) == pytest.approx((-0.6, -result.high, -result.low))
    assert back.p_value == result.p_value


def test_paired_difference_of_equal_and_of_always_better_runs():
    same = sample([[0, 1], [1], [0.5]])
    equal = compare(same, sample([[0, 1], [1], [0.5]], "b"))
    assert (equal.difference, equal.low, equal.high, equal.p_value) == (0.0, 0.0, 0.0, 1.0)
    better = compare(sample([[1]] * 8), sample([[0]] * 8, "b"))
    assert (better.difference, better.low, better.high) == (1.0, 1.0, 1.0)
    assert better.p_value == pytest.approx(2 / 2001)


def test_pairs_need_a_value_in_both_and_failures_are_counted():
    a = sample([[1, 1], [0]], failed=[("c001", "q1")])
    b = Sample("b", "decision_accuracy", {("c000", "q0"): 0.0, ("c001", "q1"): 1.0}, {("c000", "q1"): "ServerError"})
    b = Sample("b", b.metric, b.values, b.failed, frozenset({("c001", "q0")}))
    result = compare(a, b)
    assert (result.n_requests, result.n_pairs, result.n_failed_a, result.n_failed_b) == (4, 1, 1, 1)
    assert (result.value_a, result.value_b, result.p_value) == (1.0, 0.0, None)


def test_runs_on_different_requests_are_refused_or_intersected():
    a, b = sample([[1, 1], [0, 0]]), sample([[1], [0, 1, 1]], "b")
    with pytest.raises(ValueError, match=r"3 in common; 1 only in a, such as c000/q1; 1 only in b, such as c001/q2"):
        compare(a, b)
    result = compare(a, b, intersect=True)
    assert (result.n_requests, result.n_only_a, result.n_only_b, result.n_pairs) == (3, 1, 1, 3)
    assert result.difference == pytest.approx(-1 / 3)
    with pytest.raises(ValueError, match="no request in common"):
        compare(a, Sample("b", a.metric, {("z", "q"): 1.0}, {}), intersect=True)


def test_a_run_that_does_not_record_failures_is_refused():
    rows = [make_row("c1", "q1", "conflict", "conflict")]
    del rows[0]["error"]
    silent = sample_of(rows, "decision_accuracy", "old")
    for use in (bootstrap_interval, lambda one: compare(one, one), lambda one: mcnemar_exact(one, one)):
        with pytest.raises(ValueError, match="run old does not record failures"):
            use(silent)


def test_settings_out_of_range_and_mixed_metrics_are_refused():
    data = sample([[0], [1]])
    with pytest.raises(ValueError, match="level must be between 0 and 1, received 95"):
        bootstrap_interval(data, level=95)
    with pytest.raises(ValueError, match="n_resamples must be at least 1, received 0"):
        bootstrap_interval(data, n_resamples=0)
    with pytest.raises(ValueError, match="two metrics cannot be compared: decision_accuracy"):
        compare(data, sample([[0], [1]], "b", metric="mrr"))


def test_mcnemar_by_hand_and_against_scipy():
    # 1 right only in a, 5 only in b: 2 * (C(6,0) + C(6,1)) / 2^6 = 14/64
    a = sample([[1, 0, 0, 0, 0, 0, 1, 0]])
    b = sample([[0, 1, 1, 1, 1, 1, 1, 0]], "b")
    result = mcnemar_exact(a, b)
    assert (result.both_right, result.only_a, result.only_b, result.both_wrong) == (1, 1, 5, 1)
    assert result.p_value == 14 / 64
    assert mcnemar_exact(a, a).p_value == 1.0
    for only_a, only_b in [(0, 7), (3, 3), (40, 61), (700, 900)]:
        left = sample([[1] * only_a + [0] * only_b])
        right = sample([[0] * only_a + [1] * only_b], "b")
        expected = scipy.stats.binomtest(only_a, only_a + only_b).pvalue
        assert math.isclose(mcnemar_exact(left, right).p_value, expected, rel_tol=1e-9)
    with pytest.raises(ValueError, match=r"needs values 0 and 1, metric decision_accuracy gives 0\.5"):
        mcnemar_exact(sample([[0.5]]), sample([[1]], "b"))


def test_sample_of_rows():
    rows = [
        make_row("c1", "q1", "conflict", "conflict", evidence=["x", "g"], gold_doc_ids=["g"]),
        make_row("c1", "q2", "non_conflict", "conflict"),
        make_row("c1", "q3", "conflict", None),
        make_row("c1", "q4", "conflict", None, error={"kind": "ServerError", "message": ""}),
    ]
    one = sample_of(rows, "conflict_recall", "a")
    assert one.values == {("c1", "q1"): 1.0}
    assert one.unscored == {("c1", "q2"), ("c1", "q3")}
    assert one.failed == {("c1", "q4"): "ServerError"}
    assert len(one.requests) == 4
    assert sample_of(rows, "over_refusal_rate").values == {("c1", "q2"): 1.0}
    assert sample_of(rows, "mrr").values[("c1", "q1")] == 0.5
    assert sample_of(rows[:1], lambda row: 0.25, metric_name="ours").values == {("c1", "q1"): 0.25}
    with pytest.raises(ValueError, match="request c1/q1 occurs twice"):
        sample_of([rows[0], rows[0]], "mrr")
    with pytest.raises(ValueError, match=r"gives 25 for request c1/q1; it must be in \[0, 1\]"):
        sample_of(rows[:1], lambda row: 25)


@pytest.mark.parametrize("name", ["recall", "recall@0", "recall@x", "f1@5", "mrr@5", "accuracy"])
def test_unknown_metric_names_are_refused(name):
    with pytest.raises(ValueError, match=f"unknown metric '{name}'; use hit@k, recall@k"):
        request_value(make_row("c1", "q1", "conflict", "conflict"), name)
