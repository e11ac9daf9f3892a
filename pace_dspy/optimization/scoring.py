"""Scoring a program on examples ourselves: one execution an example, failures that stop, calls counted by predictor."""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import dspy

from pace_dspy.evaluation.answers import DecisionScores, decision_metrics
from pace_dspy.optimization.scorer import Scorer


@dataclass(frozen=True)
class Scored:
    """A program on examples.

    Attributes:
        scores: By example, in [0, 1].
        predictions: By example.
        calls: Successful calls by predictor name; 0 for a predictor that was never called.
        decisions: Decision metrics, failures none (they stop the run).
    """

    scores: tuple[float, ...]
    predictions: tuple[dspy.Prediction, ...]
    calls: Mapping[str, int]
    decisions: DecisionScores

    @property
    def mean(self) -> float:
        """Mean score, in [0, 1]."""
        return sum(self.scores) / len(self.scores)


def score_examples(program: dspy.Module, examples: Sequence[dspy.Example], scorer: Scorer, threads: int) -> Scored:
    """Run and score a program on every example.

    Raises:
        Stop: The budget ended or a backend failed.
    """
    names = {id(predictor): name for name, predictor in program.named_predictors()}

    def one(example: dspy.Example) -> tuple[float, dspy.Prediction, list[str]]:
        with dspy.context(trace=[]):
            prediction = program(**example.inputs())
            called = [names[id(step[0])] for step in dspy.settings.trace if id(step[0]) in names]
        return scorer(example, prediction), prediction, called

    with ThreadPoolExecutor(threads, thread_name_prefix="pace-compile") as pool:
        waiting = [pool.submit(contextvars.copy_context().run, one, example) for example in examples]
        try:
            results = [future.result() for future in waiting]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    calls = Counter(name for _, _, called in results for name in called)
    rows = [_row(example, result[1]) for example, result in zip(examples, results, strict=True)]
    return Scored(
        tuple(score for score, _, _ in results),
        tuple(prediction for _, prediction, _ in results),
        {name: calls[name] for name in names.values()},
        decision_metrics(rows),
    )


def _row(example: dspy.Example, prediction: dspy.Prediction) -> dict[str, object]:
    return {
        "case_id": example.case_id,
        "query_id": example.query_id,
        "label": example.label,
        "decision": prediction.decision,
        "error": None,
    }
