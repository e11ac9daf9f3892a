"""Feedback in words for one predictor, from what *it* lost (the evidence funnel). Train and dev only, never test.

Ours: GEPA shows these texts to the reflection model. Each predictor hears of its own losses and of nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import dspy

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.funnel import funnel_of
from pace_dspy.optimization.metrics import offered_to
from pace_dspy.retrieval import get_kb

SHOWN_FACTS = 6

StageFeedback = Callable[[dspy.Example, dspy.Prediction], str]


def feedback_for(stage: str, example: dspy.Example, prediction: dspy.Prediction) -> str:
    """Return what the reflection model is told about one call of one stage.

    Args:
        stage: The stage whose predictor is being improved.
        example: A request of train or dev with its gold annotation.
        prediction: What the program (or the stage alone) made of it, with its trace.

    Raises:
        ConfigError: A request of the test split, or a stage without feedback.
    """
    if example.get("part") not in ("train", "dev"):
        raise ConfigError(f"no feedback is given on part {example.get('part')!r}; optimizers see train and dev only")
    if stage not in FEEDBACK:
        raise ConfigError(f"no feedback is defined for stage {stage!r}; stages: {', '.join(FEEDBACK)}")
    return FEEDBACK[stage](example, prediction)


def _missed_by_views(example: dspy.Example, prediction: dspy.Prediction) -> tuple[list[str], list[str]]:
    """Return gold facts that no view found, and those that some view found but fusion cut."""
    fates = funnel_of(prediction.trace, example.gold_doc_ids, None).fates
    first = {fate.doc_id: fate.recovered_from or fate.lost_at for fate in fates}
    return (
        [doc_id for doc_id, where in first.items() if where == "no_view"],
        [doc_id for doc_id, where in first.items() if where == "fusion"],
    )


def _planner(example: dspy.Example, prediction: dspy.Prediction) -> str:
    missed, _ = _missed_by_views(example, prediction)
    if not missed:
        return "Good: the directions led to every deciding note."
    return (
        f"No direction led to these deciding notes: {_quoted(example, missed)}. The cues were: "
        f"{'; '.join(cue.direction for cue in prediction.trace.cues) or 'none'}. "
        "Name directions that lead to such notes."
    )


def _views(example: dspy.Example, prediction: dspy.Prediction) -> str:
    missed, cut = _missed_by_views(example, prediction)
    if not missed and not cut:
        return "Good: the queries found every deciding note."
    lines = []
    if missed:
        lines.append(f"No query found these deciding notes: {_quoted(example, missed)}.")
    if cut:
        lines.append(f"Found too low in the lists to be kept: {_quoted(example, cut)}.")
    queries = [view.text for view in prediction.trace.views if view.kind == "counter"]
    lines.append(f"The queries were: {'; '.join(queries) or 'none'}. Use the words that such notes use.")
    return " ".join(lines)


def _filter(stage: str, example: dspy.Example, prediction: dspy.Prediction) -> str:
    trace = prediction.trace
    offered, kept = offered_to(stage, trace), trace.seeds if stage == "pre_filter" else trace.evidence
    gold = [doc_id for doc_id in example.gold_doc_ids if doc_id in offered]
    dropped = [doc_id for doc_id in gold if doc_id not in kept]
    if not gold:
        return "No deciding note was among the candidates; nothing could be kept."
    if not dropped:
        return f"Good: all {len(gold)} deciding notes among the candidates were kept."
    preferred = [doc_id for doc_id in kept if doc_id not in example.gold_doc_ids]
    text = f"Deciding notes that were dropped: {_quoted(example, dropped)}."
    if preferred:
        text += f" Kept instead, although they settle nothing: {_quoted(example, preferred)}."
    return f"{text} Why they matter: {example.judgment or 'not given'}"


def _second_look(example: dspy.Example, prediction: dspy.Prediction) -> str:
    trace = prediction.trace
    known = {fact.doc_id for fact in (*trace.pool, *trace.final_pool)}
    still = [doc_id for doc_id in example.gold_doc_ids if doc_id not in known]
    if not still:
        return "Good: after the follow-up queries no deciding note was missing."
    queries = [query for look in trace.looks for query in look.follow_ups]
    return (
        f"Still missing after the follow-ups: {_quoted(example, still)}. The follow-up queries were: "
        f"{'; '.join(queries) or 'none'}. Ask for such notes in the words they use."
    )


def _answerer(example: dspy.Example, prediction: dspy.Prediction) -> str:
    shown, gold = set(prediction.evidence), list(example.gold_doc_ids)
    right = prediction.decision == example.label
    lines = [
        f"The decision {prediction.decision!r} is right." if right
        else f"The decision should be {example.label!r}, not {prediction.decision!r}."
    ]  # fmt: skip
    if example.judgment:
        lines.append(f"The reason: {example.judgment}")
    unsupported = [doc_id for doc_id in prediction.cited if doc_id not in gold]
    if unsupported:
        lines.append(f"Cited, but they do not support the decision: {_quoted(example, unsupported)}.")
    uncited = [doc_id for doc_id in gold if doc_id in shown and doc_id not in prediction.cited]
    if uncited:
        lines.append(f"Deciding notes that were shown and not cited: {_quoted(example, uncited)}.")
    absent = [doc_id for doc_id in gold if doc_id not in shown]
    if absent:
        lines.append(f"({len(absent)} deciding notes were not shown; that is not the answer's fault.)")
    return " ".join(lines)


FEEDBACK: Mapping[str, StageFeedback] = {
    "planner": _planner,
    "views": _views,
    "pre_filter": lambda example, prediction: _filter("pre_filter", example, prediction),
    "second_look": _second_look,
    "post_filter": lambda example, prediction: _filter("post_filter", example, prediction),
    "answerer": _answerer,
}
"""Feedback by stage; the keys are those of `pace_dspy.optimization.metrics.STAGE_SCORES`."""


def _quoted(example: dspy.Example, doc_ids: Iterable[str]) -> str:
    kb, ids = get_kb(example.kb_id), list(doc_ids)
    texts = "; ".join(f'"{" ".join(kb.text(doc_id).split())}"' for doc_id in ids[:SHOWN_FACTS])
    return texts + (f" and {len(ids) - SHOWN_FACTS} more" if len(ids) > SHOWN_FACTS else "")
