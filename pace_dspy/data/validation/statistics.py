"""The figures of a validation report. Ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pace_dspy.data.shortcuts import MIN_CASES, shortcut_checks
from pace_dspy.data.validation.context import Context
from pace_dspy.data.validation.dates import date_shares
from pace_dspy.data.validation.structure import gold_use
from pace_dspy.data.validation.wording import overlap_by_fact
from pace_dspy.data.validation.words import count_words
from pace_dspy.types import LABELS, SITUATION_TYPES, Case, Request

Table = list[dict[str, Any]]


def make_tables(context: Context) -> dict[str, Table]:
    """Return the statistics: cases, requests by label, requests by situation type, gold counts, shortcuts."""
    cases = context.dataset.cases
    pairs = list(context.requests())
    tables = {
        "cases": [_case_row(case.case_id, (case,)) for case in cases] + [_case_row("all", cases)],
        "requests by label": [
            _request_row("label", label, [pair for pair in pairs if pair[1].label == label]) for label in LABELS
        ],
        "requests by situation type": [
            _request_row("type", kind, [pair for pair in pairs if pair[1].situation_type == kind])
            for kind in SITUATION_TYPES
        ],
        "gold facts a request": [
            {"gold facts": n_gold, "requests": n_requests}
            for n_gold, n_requests in sorted(Counter(len(r.gold_doc_ids) for _, r in pairs).items())
        ],
    }
    if sum(bool(case.requests) for case in cases) >= MIN_CASES:
        tables["shortcuts (label predicted without facts, personas held out)"] = [
            {"from": r.name, "accuracy": r.accuracy, "requests": r.n_requests} for r in shortcut_checks(context.dataset)
        ]
    return tables


def _case_row(name: str, cases: Sequence[Case]) -> dict[str, Any]:
    requests = [request for case in cases for request in case.requests]
    labels, kinds = Counter(r.label for r in requests), Counter(r.situation_type for r in requests)
    overlaps = [share for case in cases for r in case.requests for share in overlap_by_fact(case, r).values()]
    shares = date_shares(tuple(cases))
    return {
        "case": name,
        "facts": sum(len(case.facts) for case in cases),
        "requests": len(requests),
        **{label: labels[label] for label in LABELS},
        **{kind: kinds[kind] for kind in SITUATION_TYPES},
        "gold": _mean([len(request.gold_doc_ids) for request in requests]),
        "reused": sum(n_used > 1 for case in cases for n_used in gold_use(case).values()),
        "overlap": _mean(overlaps),
        "dated gold": shares.gold,
        "dated other": shares.background,
    }


def _request_row(kind: str, name: str, pairs: Sequence[tuple[Case, Request]]) -> dict[str, Any]:
    overlaps = [share for case, request in pairs for share in overlap_by_fact(case, request).values()]
    return {
        kind: name,
        "requests": len(pairs),
        "words": _mean([count_words(request.query) for _, request in pairs]),
        "questions": sum("?" in request.query for _, request in pairs),
        "gold": _mean([len(request.gold_doc_ids) for _, request in pairs]),
        "overlap": _mean(overlaps),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(fmean(values)) if values else None
