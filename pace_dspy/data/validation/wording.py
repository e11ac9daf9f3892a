"""Checks of wording: length of facts, judgments, words shared by request and gold. Ours."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from pace_dspy.data.validation.context import Context
from pace_dspy.data.validation.report import Finding
from pace_dspy.data.validation.words import content_words, count_sentences, count_words
from pace_dspy.types import Case, Request


def check_fact_length(context: Context) -> Iterator[Finding]:
    """Words of each fact (check ``fact_length``)."""
    low, high = context.rules.fact_words
    for case, fact in context.facts():
        n_words = count_words(fact.text)
        if not low <= n_words <= high:
            problem, remedy = f"{n_words} words, allowed: {low}-{high}", "Rewrite it as one plain sentence"
            yield context.of_fact("fact_length", case, fact, problem, remedy)


def check_judgments(context: Context) -> Iterator[Finding]:
    """Presence and length of the gold rationale (check ``judgment``)."""
    low, high = context.rules.judgment_sentences
    for case, request in context.requests():
        n_sentences = count_sentences(request.judgment or "")
        if not low <= n_sentences <= high:
            problem = f"{n_sentences} sentences, allowed: {low}-{high}" if n_sentences else "the judgment is missing"
            remedy = f"Name the decisive facts and the conclusion in {low}-{high} sentences"
            yield context.of_request("judgment", case, request, "judgment", request.judgment, problem, remedy)


def check_overlap(context: Context) -> Iterator[Finding]:
    """Words shared by request and gold facts (check ``lexical_overlap``)."""
    rules, remedy = context.rules, "Reword the gold facts away from the request"
    for case, request in context.requests():
        shares = overlap_by_fact(case, request)
        for doc_id, share in shares.items():
            if share > rules.max_fact_overlap:
                problem = (
                    f"this gold fact holds {share:.2f} of the request's content words, at most {rules.max_fact_overlap}"
                )
                yield context.of_request("lexical_overlap", case, request, "gold_doc_ids", doc_id, problem, remedy)
        if shares and fmean(shares.values()) > rules.max_overlap:
            problem = (
                f"its gold facts hold {fmean(shares.values()):.2f} of the request's content words on average, "
                f"at most {rules.max_overlap}"
            )
            yield context.of_request("lexical_overlap", case, request, "query", request.query, problem, remedy)


def overlap_by_fact(case: Case, request: Request) -> dict[str, float]:
    """Return the share of the request's content words that each gold fact holds.

    Args:
        case: The persona.
        request: One of its requests.

    Returns:
        doc_id -> share in [0, 1], lower is harder to retrieve; empty without gold facts or content words.
    """
    asked = content_words(request.query)
    gold = set(request.gold_doc_ids)
    if not asked:
        return {}
    return {
        fact.doc_id: len(asked & content_words(fact.text)) / len(asked) for fact in case.facts if fact.doc_id in gold
    }
