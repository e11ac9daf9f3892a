"""Checks of structure: sizes, missing fields, gold counts, gold facts shared by requests. Ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pace_dspy.data.validation.context import Context
from pace_dspy.data.validation.report import Finding
from pace_dspy.types import Case


def check_sizes(context: Context) -> Iterator[Finding]:
    """Facts and requests of each persona (checks ``facts_per_case``, ``requests_per_case``)."""
    rules = context.rules
    for case in context.dataset.cases:
        n_facts, n_requests = len(case.facts), len(case.requests)
        is_large = rules.large_case_facts is not None and n_facts >= rules.large_case_facts
        if rules.facts_per_case and not is_large and not _within(n_facts, rules.facts_per_case):
            low, high = rules.facts_per_case
            problem = f"{n_facts} facts, allowed: {low}-{high}" + (
                f" or {rules.large_case_facts} and more" if rules.large_case_facts else ""
            )
            remedy = "Add or remove background facts"
            yield context.of_case("facts_per_case", case, "corpus", n_facts, problem, remedy, corpus=True)
        if not n_requests or (rules.requests_per_case is not None and n_requests != rules.requests_per_case):
            problem = f"{n_requests} requests, expected: {rules.requests_per_case or 'at least 1'}"
            yield context.of_case("requests_per_case", case, "queries", n_requests, problem, "Add or remove requests")


def check_fields(context: Context) -> Iterator[Finding]:
    """Optional fields that are null (check ``missing_field``)."""
    for case in context.dataset.cases:
        for name, value in (
            ("persona", case.persona),
            ("window_start", case.window_start),
            ("window_end", case.window_end),
        ):
            if value is None:
                remedy = (
                    "Add spec.demographic.full_name to its profile" if name == "persona" else "Add it to the timeline"
                )
                yield context.of_case("missing_field", case, name, None, f"{name} is missing", remedy, corpus=True)
        for request in case.requests:
            if request.situation_type is None:
                problem, remedy = "the situation type is missing or unknown", "Allowed: temporal, personal, state"
                yield context.of_request("missing_field", case, request, "situation_type", None, problem, remedy)


def check_gold(context: Context) -> Iterator[Finding]:
    """Number of gold facts, and gold facts used again (checks ``gold_count``, ``gold_reuse``)."""
    low, high = context.rules.gold_per_request
    for case in context.dataset.cases:
        for request in case.requests:
            if not _within(len(request.gold_doc_ids), (low, high)):
                problem = f"{len(request.gold_doc_ids)} gold facts, allowed: {low}-{high}"
                value, remedy = ", ".join(request.gold_doc_ids), "Name exactly the facts that decide together"
                yield context.of_request("gold_count", case, request, "gold_doc_ids", value, problem, remedy)
        yield from _check_reuse(context, case)


def _check_reuse(context: Context, case: Case) -> Iterator[Finding]:
    used = gold_use(case)
    for doc_id, n_used in used.items():
        if n_used > context.rules.max_requests_per_gold:
            users = [request.query_id for request in case.requests if doc_id in request.gold_doc_ids]
            problem = f"gold for {n_used} requests ({', '.join(users)}), at most {context.rules.max_requests_per_gold}"
            remedy = "Write separate facts for them"
            yield context.of_case("gold_reuse", case, "gold_doc_ids", doc_id, problem, remedy)
    reused = [doc_id for doc_id, n_used in used.items() if n_used > 1]
    if context.rules.max_reused_gold is not None and len(reused) > context.rules.max_reused_gold:
        problem = f"{len(reused)} facts are gold for several requests, at most {context.rules.max_reused_gold}"
        value, remedy = ", ".join(reused), "Write separate facts for some of them"
        yield context.of_case("gold_reuse", case, "gold_doc_ids", value, problem, remedy)


def check_near_misses(context: Context) -> Iterator[Finding]:
    """Kinds of near miss of the non_conflict requests, where the data names them (``near_miss_variety``)."""
    least = context.rules.min_near_misses
    for case in context.dataset.cases:
        kinds = {str(r.metadata["near_miss"]).lower() for r in case.requests if "near_miss" in r.metadata}
        if least is not None and kinds and len(kinds) < least:
            problem, remedy = f"{len(kinds)} kinds of near miss, at least {least}", "Vary the traps"
            value = ", ".join(sorted(kinds))
            yield context.of_case("near_miss_variety", case, "near_miss", value, problem, remedy)


def gold_use(case: Case) -> Counter[str]:
    """Count for how many requests each fact is gold."""
    return Counter(doc_id for request in case.requests for doc_id in request.gold_doc_ids)


def _within(number: int, limits: tuple[int, int]) -> bool:
    return limits[0] <= number <= limits[1]
