"""Training and dev examples: whole requests, and single stages on frozen inputs (one call a sample instead of five).

An example carries ids, never texts of a knowledge base, beside the fields that a labelled demo shows. Its ``part`` is
``train`` or ``dev``; examples of the test part are never made.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from pace_dspy.calendar import today_line
from pace_dspy.data import select_split
from pace_dspy.data.splits import Split
from pace_dspy.errors import ConfigError, DataError
from pace_dspy.modules.base import numbered
from pace_dspy.optimization.metrics import offered_to
from pace_dspy.program import as_pool, candidates
from pace_dspy.retrieval import get_kb
from pace_dspy.types import Dataset, Trace, View

INPUTS = ("request", "reference_date", "kb_id", "persona")
TRAIN_CANDIDATES = 24
"""Most candidates of a training example of a filter, so that a demo stays a fraction of any window. Ours."""

Key = tuple[str, str]


@dataclass(frozen=True)
class Sets:
    """Examples of train and dev.

    Attributes:
        train: What optimizers learn from.
        dev: What they choose by; always passed as ``valset``.
        dropped: Examples left out, by reason.
    """

    train: tuple[dspy.Example, ...]
    dev: tuple[dspy.Example, ...]
    dropped: Mapping[str, int]


def request_sets(dataset: Dataset, split: Split, limit: int | None = None) -> Sets:
    """Make one example a labelled request of the train and dev personas.

    Args:
        dataset: The whole dataset; ``kb_id`` of an example is its ``case_id``.
        split: Personas by side, checked against the data.
        limit: Only the first requests of each side, spread over its personas.

    Raises:
        ConfigError: A side has no labelled request.
        DataError: The split is of other data, or a persona is on two sides.
    """
    sides: dict[str, tuple[dspy.Example, ...]] = {}
    for part in ("train", "dev"):
        cases = select_split(dataset, split, part).cases
        rows = [[_example(case.persona, request, part) for request in case.requests if request.label] for case in cases]
        spread = [row[i] for i in range(max(map(len, rows), default=0)) for row in rows if i < len(row)]
        if not spread:
            raise ConfigError(
                f"the {part} side of the split has no labelled request; make a split with more cases in {part}"
            )
        sides[part] = tuple(spread[:limit])
    return Sets(sides["train"], sides["dev"], {})


def answer_sets(sets: Sets, n_distractors: int, seed: int, *, dated: bool = False) -> Sets:
    """Freeze the answerer's evidence: the gold facts and the KB's nearest other facts, shuffled.

    Args:
        sets: Whole requests.
        n_distractors: Other facts beside the gold ones, drawn from the nearest ``2 * n_distractors``.
        seed: Same seed, same facts in the same order, whatever else is in the sets.
        dated: Weekdays behind dates, as the program's config shows them.
    """

    def make(example: dspy.Example) -> dspy.Example | None:
        if not example.gold_doc_ids:
            return None
        draw = random.Random(f"{seed}/{example.case_id}/{example.query_id}")
        others = nearest_others(example, 2 * n_distractors)
        offered = [*example.gold_doc_ids, *draw.sample(others, min(n_distractors, len(others)))]
        draw.shuffle(offered)
        gold_numbers = [number for number, doc_id in enumerate(offered, start=1) if doc_id in example.gold_doc_ids]
        shown = {"evidence": _lines(example, offered, dated), "cited": gold_numbers, "decision": example.label}
        return _staged(example, offered, {**shown, "response": example.judgment})

    return _map(sets, make, "no gold facts")


def filter_sets(
    sets: Sets, stage: str, traces: Mapping[Key, Trace], keep: int, output: str, *, dated: bool = False
) -> Sets:
    """Freeze a filter's candidates from traces. Training lists are cut to gold and the best others.

    Args:
        sets: Whole requests.
        stage: ``pre_filter`` (the fused list) or ``post_filter`` (the pool).
        traces: By ``(case_id, query_id)``.
        keep: Most facts the filter keeps; a shorter list is never shown to the model and is left out.
        output: The filter's output field.
        dated: Weekdays behind dates, as the program's config shows them.
    """

    def make(example: dspy.Example) -> dspy.Example | None:
        trace = traces.get((example.case_id, example.query_id))
        offered = list(offered_to(stage, trace)) if trace is not None else []
        gold = [doc_id for doc_id in offered if doc_id in example.gold_doc_ids]
        if not gold or len(offered) <= keep:
            return None
        if example.part == "train" and len(offered) > max(TRAIN_CANDIDATES, keep + 1):
            others = [doc_id for doc_id in offered if doc_id not in gold]
            chosen = {*gold, *others[: max(TRAIN_CANDIDATES, keep + 1) - len(gold)]}
            offered = [doc_id for doc_id in offered if doc_id in chosen]
        numbers = [number for number, doc_id in enumerate(offered, start=1) if doc_id in example.gold_doc_ids]
        return _staged(example, offered, {"candidates": _lines(example, offered, dated), output: numbers[:keep]})

    return _map(sets, make, "no gold fact among the candidates, or too few to choose from")


def nearest_others(example: dspy.Example, n: int) -> list[str]:
    """Return the ``n`` non-gold facts nearest to request and gold facts: ranks of every search interleaved."""
    kb = get_kb(example.kb_id)
    views = [View("original", example.request), *(View("counter", kb.text(doc_id)) for doc_id in example.gold_doc_ids)]
    lists = [side for hits in kb.search(views, n + len(example.gold_doc_ids)) for side in (hits.dense, hits.sparse)]
    ranked = [
        side[rank].doc_id for rank in range(max(map(len, lists), default=0)) for side in lists if rank < len(side)
    ]
    return [doc_id for doc_id in dict.fromkeys(ranked) if doc_id not in example.gold_doc_ids][:n]


def check_personas(sets: Sets, split: Split) -> None:
    """Refuse examples of a test persona, and personas on both sides.

    Raises:
        DataError: Names the persona.
    """
    train, dev = ({example.case_id for example in side} for side in (sets.train, sets.dev))
    for where, ids in (("test", (train | dev) & set(split.test)), ("train and dev", train & dev)):
        if ids:
            raise DataError(
                f"persona {', '.join(sorted(ids))} of the examples is in {where}", remedy="Make the split again"
            )


def _example(persona: str | None, request: Any, part: str) -> dspy.Example:
    return dspy.Example(
        request=request.query,
        reference_date=request.reference_date,
        kb_id=request.case_id,
        persona=persona,
        case_id=request.case_id,
        query_id=request.query_id,
        part=part,
        label=request.label,
        gold_doc_ids=request.gold_doc_ids,
        judgment=request.judgment,
    ).with_inputs(*INPUTS)


def _staged(example: dspy.Example, offered: Sequence[str], demo: Mapping[str, Any]) -> dspy.Example:
    fields = {**example.toDict(), "today": today_line(example.reference_date), **demo}
    return dspy.Example(**{**fields, "gold_doc_ids": example.gold_doc_ids, "offered": tuple(offered)}).with_inputs(
        *INPUTS, "offered"
    )


def _map(sets: Sets, make: Any, reason: str) -> Sets:
    sides = [tuple(made for example in side if (made := make(example)) is not None) for side in (sets.train, sets.dev)]
    n_dropped = len(sets.train) + len(sets.dev) - len(sides[0]) - len(sides[1])
    return Sets(sides[0], sides[1], {**sets.dropped, reason: n_dropped} if n_dropped else sets.dropped)


def _lines(example: dspy.Example, doc_ids: Sequence[str], dated: bool) -> str:
    shown = candidates(get_kb(example.kb_id), (), as_pool(doc_ids), example.reference_date if dated else None)
    return "\n".join(numbered([fact.text for fact in shown]))
