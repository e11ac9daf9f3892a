"""Scores that optimizers maximise: pure functions of what a stage was given and what it gave out, each in [0, 1].

Higher is better. During bootstrapping (``trace`` set) they return the same number; the threshold that makes a trace a
demo is passed to the optimizer, never hidden here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import dspy

from pace_dspy.config import AgentsConfig
from pace_dspy.errors import ConfigError
from pace_dspy.optimization.settings import ScoreWeights
from pace_dspy.types import Trace

Metric = Callable[..., float]
"""``metric(example, prediction, trace=None) -> float`` in [0, 1]."""

LOOK_READS = AgentsConfig().look_reads
"""Facts of the pool that count as read by the second look (its default)."""

StageScore = Callable[[dspy.Example, dspy.Prediction, ScoreWeights], float]


def recall(gold: Iterable[str], found: Collection[str]) -> float:
    """Return the share of ``gold`` in ``found``, in [0, 1]; 1.0 without gold, since nothing could be missed."""
    wanted = set(gold)
    return len(wanted & set(found)) / len(wanted) if wanted else 1.0


def views_score(gold: Iterable[str], fused: Collection[str]) -> float:
    """Score planner and views: recall of the gold facts in the fused list, in [0, 1]."""
    return recall(gold, fused)


def filter_score(gold: Iterable[str], offered: Collection[str], kept: Collection[str]) -> float:
    """Score a filter: gold kept among gold offered, in [0, 1]; 1.0 when no gold was offered."""
    return recall(set(gold) & set(offered), kept)


def second_look_score(
    gold: Iterable[str],
    before: Collection[str],
    after: Collection[str],
    selected: Collection[str],
    read: Collection[str],
) -> float:
    """Score the second look: mean of gold newly reached (of what was missing) and gold kept of what it read, in [0, 1].

    Args:
        gold: The decisive facts.
        before: The pool it started from.
        after: The pool after its follow-ups.
        selected: What it called useful.
        read: What it was shown.
    """
    missing = set(gold) - set(before)
    return (recall(missing, after) + filter_score(gold, read, selected)) / 2


def answer_score(
    label: str | None,
    decision: str | None,
    gold: Iterable[str],
    evidence: Collection[str],
    cited: Collection[str],
    weights: ScoreWeights,
) -> float:
    """Score the answerer given its evidence: right decision and F1 of the cited facts, in [0, 1].

    Without gold in its evidence only the decision counts. No decision is a wrong one with nothing cited.
    """
    right = float(decision is not None and decision == label)
    wanted, named = set(gold) & set(evidence), set(cited)
    if not wanted:
        return right
    f1 = 2 * len(wanted & named) / (len(wanted) + len(named))
    return weights.answer_decision * right + (1 - weights.answer_decision) * f1


def program_score(
    label: str | None,
    decision: str | None,
    gold: Iterable[str],
    evidence: Collection[str],
    weights: ScoreWeights,
    passed: bool | None = None,
) -> float:
    """Score a whole request: decision, evidence recall, over-refusal, and PASS when judged, in [0, 1].

    Over-refusal counts on requests without conflict only. No decision is neither right nor an acceptance.

    Args:
        label: Gold label.
        decision: The decision, ``None`` when undecided.
        gold: The decisive facts.
        evidence: What was handed to the answerer.
        weights: Weights of the parts.
        passed: The judge's verdict, ``None`` when not judged (its weight is then left out).
    """
    parts = [(weights.decision, float(decision is not None and decision == label))]
    parts.append((weights.recall, recall(gold, evidence)))
    if label == "non_conflict":
        parts.append((weights.no_over_refusal, float(decision == "non_conflict")))
    if passed is not None:
        parts.append((weights.judge_pass, float(passed)))
    total = sum(weight for weight, _ in parts)
    return sum(weight * value for weight, value in parts) / total if total else 0.0


def score_of_program(example: dspy.Example, prediction: dspy.Prediction, weights: ScoreWeights) -> float:
    """Return `program_score` of a prediction of the whole program."""
    return program_score(example.label, prediction.decision, example.gold_doc_ids, prediction.evidence, weights)


def _views(example: dspy.Example, prediction: dspy.Prediction, weights: ScoreWeights) -> float:
    return views_score(example.gold_doc_ids, offered_to("pre_filter", prediction.trace))


def _pre_filter(example: dspy.Example, prediction: dspy.Prediction, weights: ScoreWeights) -> float:
    trace = prediction.trace
    return filter_score(example.gold_doc_ids, offered_to("pre_filter", trace), trace.seeds)


def _second_look(example: dspy.Example, prediction: dspy.Prediction, weights: ScoreWeights) -> float:
    trace = prediction.trace
    before, after = ([fact.doc_id for fact in pool] for pool in (trace.pool, trace.final_pool))
    selected = [doc_id for look in trace.looks for doc_id in look.selected]
    return second_look_score(example.gold_doc_ids, before, after, selected, before[:LOOK_READS])


def _post_filter(example: dspy.Example, prediction: dspy.Prediction, weights: ScoreWeights) -> float:
    trace = prediction.trace
    return filter_score(example.gold_doc_ids, offered_to("post_filter", trace), trace.evidence)


def _answerer(example: dspy.Example, prediction: dspy.Prediction, weights: ScoreWeights) -> float:
    return answer_score(
        example.label, prediction.decision, example.gold_doc_ids, prediction.evidence, prediction.cited, weights
    )


STAGE_SCORES: Mapping[str, StageScore] = {
    "planner": _views,
    "views": _views,
    "pre_filter": _pre_filter,
    "second_look": _second_look,
    "post_filter": _post_filter,
    "answerer": _answerer,
}
"""The score of each stage from a prediction with its typed trace. A new agent is one entry here and one in feedback."""


def offered_to(stage: str, trace: Trace) -> tuple[str, ...]:
    """Return the ids that a filter was offered: the fused list, or the last pool, prefiltered."""
    return tuple(fact.doc_id for fact in (trace.fused if stage == "pre_filter" else trace.offered))


def check_metric(metric: Metric, example: dspy.Example, prediction: dspy.Prediction) -> None:
    """Call a metric once, on a made-up prediction, before an optimizer starts.

    Raises:
        ConfigError: It does not take ``(example, prediction, trace)``, fails, or `checked_value` refuses its value.
    """
    name = getattr(metric, "__name__", type(metric).__name__)
    try:
        inspect.signature(metric).bind(example, prediction, None)
    except TypeError as exc:
        raise ConfigError(f"metric {name} cannot be called as metric(example, prediction, trace=None): {exc}") from exc
    try:
        value = metric(example, prediction, None)
    except Exception as exc:
        answer = "an empty answer" if prediction.get("decision") is None else "a right answer"
        raise ConfigError(f"metric {name} fails on {answer} with {type(exc).__name__}: {exc}") from exc
    checked_value(value, name)


def checked_value(value: Any, name: str = "metric") -> float:
    """Return a score unless it is no number in [0, 1].

    Raises:
        ConfigError: ``None``, a bool, not a number, or out of range.
    """
    if value is None:
        raise ConfigError(f"metric {name} returned None; it must return a number from 0 to 1")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(
            f"metric {name} returned {value!r} ({type(value).__name__}); it must return a number from 0 to 1"
        )
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"metric {name} returned {value}; it must be from 0 to 1")
    return float(value)
