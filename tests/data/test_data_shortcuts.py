import dataclasses
import datetime as dt

import numpy as np
import pytest
from scipy.optimize import minimize

from pace_dspy.data import shortcut_checks
from pace_dspy.data.shortcuts import fit_logistic, has_date_or_time
from pace_dspy.errors import ConfigError
from pace_dspy.types import Case, Dataset, Fact, Request


def make(queries, n_cases=4, n_gold=lambda label: 3):
    """Cases that all ask the same (query, label) pairs."""
    cases = []
    for number in range(n_cases):
        requests = tuple(
            Request(
                f"c{number}",
                f"q{i}",
                query,
                dt.date(2026, 3, 18),
                label=label,
                gold_doc_ids=tuple(f"f{j}" for j in range(n_gold(label))),
            )
            for i, (query, label) in enumerate(queries)
        )
        cases.append(Case(f"c{number}", None, None, None, None, (Fact("f0", "A fact."),), requests))
    return Dataset("made", tuple(cases), "hash")


def accuracies(dataset):
    return {result.name: result.accuracy for result in shortcut_checks(dataset)}


def test_each_leak_is_found_and_only_that_one():
    even = [("Book two seats please.", "conflict"), ("Order two cakes please.", "non_conflict")] * 3
    chance = accuracies(make(even))
    assert chance["presence of a date or time"] == 0.5
    assert chance["number of gold facts"] == 0.5

    longer = [(query + " And add one more word to it." * (label == "conflict"), label) for query, label in even]
    assert accuracies(make(longer))["request length"] == 1.0
    asked = [("Can you do it?" if label == "conflict" else "Now go do it!", label) for _, label in even]
    assert accuracies(make(asked))["question or imperative words"] == 1.0
    dated = [(query + (" on Friday." if label == "conflict" else " on it all"), label) for query, label in even]
    assert accuracies(make(dated))["presence of a date or time"] == 1.0
    more_gold = accuracies(make(even, n_gold=lambda label: 5 if label == "conflict" else 3))
    assert more_gold["number of gold facts"] == 1.0
    assert more_gold["presence of a date or time"] == 0.5


def test_each_request_is_scored_once_and_unlabelled_ones_are_left_out():
    dataset = make([("Do it now.", "conflict"), ("Do that now.", "non_conflict"), ("What?", None)])
    assert [result.n_requests for result in shortcut_checks(dataset)] == [8, 8, 8, 8]


def test_one_persona_is_not_enough():
    dataset = make([("Do it.", "conflict")])
    with pytest.raises(ConfigError, match="shortcut checks need requests of at least 2 personas, made has fewer"):
        shortcut_checks(dataclasses.replace(dataset, cases=dataset.cases[:1]))


def test_the_fit_is_the_minimum_of_the_written_out_loss():
    draw = np.random.default_rng(0)
    design = np.hstack([np.ones((40, 1)), draw.normal(size=(40, 2))])
    target = (draw.random(40) < 0.4).astype(float)

    def loss(weights):
        odds = design @ weights
        return (
            np.logaddexp(0, odds).sum() - target @ odds + 0.5 * (weights[1:] @ weights[1:]) + 0.5e-6 * weights[0] ** 2
        )

    expected = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-10}).x
    np.testing.assert_allclose(fit_logistic(design, target), expected, atol=1e-5)


def test_perfectly_separable_data_is_no_problem():
    design = np.array([[1.0, -1.0], [1.0, 1.0]] * 10)
    weights = fit_logistic(design, np.array([0.0, 1.0] * 10))
    assert np.isfinite(weights).all()
    assert weights[1] > 1


@pytest.mark.parametrize("query", ["at 7 pm", "at 19:30", "this friday", "tomorrow", "on 27 March", "on 2026-03-27"])
def test_a_date_or_time_is_seen(query):
    assert has_date_or_time(f"Come {query}")


@pytest.mark.parametrize("query", ["for 7 people", "in March", "the Sundance band"])
def test_no_date_or_time_is_seen(query):
    assert not has_date_or_time(query)
