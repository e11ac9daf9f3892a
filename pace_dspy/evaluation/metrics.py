"""Every metric as a pure function: retrieval here, decisions and verdicts from `answers`. Values lie in [0, 1].

Retrieval semantics: the released reference, ``shared/parity/README.md``, "Metrics". One documented difference: the
reference counts a repeated prediction in the length of the list; `score_request` drops repeats first (the first one
is kept). The single metrics take a list as it is, so they give the reference's numbers on lists with repeats, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.answers import (
    DecisionRates,
    DecisionScores,
    VerdictScores,
    decision_metrics,
    judge_micro,
    verdict_metrics,
)
from pace_dspy.evaluation.scores import Row, finished, mean

__all__ = [
    "KS",
    "DecisionRates",
    "DecisionScores",
    "RetrievalScores",
    "VerdictScores",
    "decision_metrics",
    "gold_at_k",
    "hit_at_k",
    "judge_micro",
    "precision_at_k",
    "recall_at_k",
    "reciprocal_rank",
    "retrieval_metrics",
    "score_request",
    "unique",
    "verdict_metrics",
]

KS: tuple[int, ...] = (5, 10)
"""Cut-offs of the paper's tables."""


def unique(doc_ids: Iterable[str]) -> list[str]:
    """Return the ids without repeats, the first occurrence kept."""
    return list(dict.fromkeys(doc_ids))


def hit_at_k(doc_ids: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return 1.0 when any gold fact is in the first ``k``, else 0.0."""
    return float(bool(set(_first(doc_ids, k)) & set(gold)))


def recall_at_k(doc_ids: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return the share of the gold facts that is in the first ``k``, in [0, 1]; 0.0 without gold."""
    return len(set(_first(doc_ids, k)) & set(gold)) / max(len(set(gold)), 1)


def precision_at_k(doc_ids: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return the share of the first ``k`` that is gold, in [0, 1].

    A list shorter than ``k`` divides by its own length (as the reference does; ``trec_eval`` divides by ``k``).
    """
    top = _first(doc_ids, k)
    return len(set(top) & set(gold)) / max(len(top), 1)


def gold_at_k(doc_ids: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return 1.0 when every gold fact is in the first ``k``, else 0.0; 0.0 without gold. Paper: Gold@k."""
    return float(bool(gold) and set(gold) <= set(_first(doc_ids, k)))


def reciprocal_rank(doc_ids: Sequence[str], gold: Collection[str]) -> float:
    """Return 1 / rank of the first gold fact over the whole list, in [0, 1]; 0.0 when there is none."""
    wanted = set(gold)
    return next((1 / rank for rank, doc_id in enumerate(doc_ids, start=1) if doc_id in wanted), 0.0)


def score_request(evidence: Sequence[str], gold: Collection[str], ks: Sequence[int] = KS) -> dict[str, float]:
    """Return all retrieval metrics of one request.

    Args:
        evidence: Ids, best first; repeats are dropped, the first is kept (ours, see the module's docstring).
        gold: The decisive facts; none gives 0.0 everywhere, as in the reference.
        ks: Cut-offs, each >= 1.

    Returns:
        ``hit@k``, ``recall@k``, ``precision@k``, ``gold@k`` for each ``k``, and ``mrr``, each in [0, 1].

    Raises:
        ValueError: A cut-off below 1.
    """
    ids = unique(evidence)
    scores: dict[str, float] = {}
    for k in ks:
        scores[f"hit@{k}"] = hit_at_k(ids, gold, k)
        scores[f"recall@{k}"] = recall_at_k(ids, gold, k)
        scores[f"precision@{k}"] = precision_at_k(ids, gold, k)
        scores[f"gold@{k}"] = gold_at_k(ids, gold, k)
    return {**scores, "mrr": reciprocal_rank(ids, gold)}


@dataclass(frozen=True)
class RetrievalScores:
    """Retrieval metrics of a group of requests.

    Attributes:
        n: Requests scored.
        n_cases: Personas among them.
        n_no_gold: Of the requests scored, those without gold facts; they score 0, as in the reference.
        n_failed: Requests that failed; they are in no score.
        reasons: Failures by the kind of their error.
        macro: Mean over cases of the mean over a case's requests, by metric name, each in [0, 1]; ``None`` when
            nothing was scored. This is what the reference reports.
        micro: Mean over requests.
    """

    n: int
    n_cases: int
    n_no_gold: int
    n_failed: int
    reasons: Mapping[str, int]
    macro: Mapping[str, float | None]
    micro: Mapping[str, float | None]


def retrieval_metrics(rows: Sequence[Row], ks: Sequence[int] = KS) -> RetrievalScores:
    """Score the evidence of each row. For label and type: `pace_dspy.evaluation.scores.grouped`.

    Raises:
        ValueError: A cut-off below 1, or rows that do not record failures.
    """
    ended = finished(rows)
    scored = [(row["case_id"], score_request(row["evidence"], row["gold_doc_ids"], ks)) for row in ended.rows]
    names = list(score_request((), (), ks))
    cases: dict[str, list[Mapping[str, float]]] = {}
    for case_id, scores in scored:
        cases.setdefault(case_id, []).append(scores)
    macro = {name: mean([_mean_of(name, case) for case in cases.values()]) for name in names}
    micro = {name: mean([scores[name] for _, scores in scored]) for name in names}
    n_no_gold = sum(not row["gold_doc_ids"] for row in ended.rows)
    return RetrievalScores(len(scored), len(cases), n_no_gold, ended.n_failed, ended.reasons, macro, micro)


def _first(doc_ids: Sequence[str], k: int) -> Sequence[str]:
    if k < 1:
        raise ConfigError(f"k must be at least 1, received {k}")
    return doc_ids[:k]


def _mean_of(name: str, scores: Sequence[Mapping[str, float]]) -> float:
    return sum(one[name] for one in scores) / len(scores)
