"""Checks of balance: labels and situation types, per persona and overall. Ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pace_dspy.data.validation.context import Context
from pace_dspy.data.validation.report import Finding
from pace_dspy.types import LABELS, SITUATION_TYPES, Request


def check_balance(context: Context) -> Iterator[Finding]:
    """Labels and situation types (checks ``balance_label``, ``balance_type``)."""
    rules, remedy = context.rules, "Rewrite, add or remove requests until both labels are equally frequent"
    for case in context.dataset.cases:
        if problem := _label_problem(case.requests, rules.max_label_gap):
            yield context.of_case("balance_label", case, "label", _counts(case.requests), problem, remedy)
        if rules.all_types_in_both_labels:
            present = {(request.label, request.situation_type) for request in case.requests}
            missing = [
                f"{kind} {label}" for label in LABELS for kind in SITUATION_TYPES if (label, kind) not in present
            ]
            if missing:
                problem = f"no request of: {', '.join(missing)}"
                fix = "Give every persona every situation type in both labels"
                yield context.of_case("balance_type", case, "situation_type", ", ".join(missing), problem, fix)
    requests = context.dataset.requests
    if len(context.dataset.cases) > 1 and (problem := _label_problem(requests, rules.max_label_gap)):
        yield context.of_all("balance_label", "label", _counts(requests), problem, remedy)
    kinds = Counter(request.situation_type for request in requests if request.situation_type)
    shares = [kinds[kind] / max(1, kinds.total()) for kind in SITUATION_TYPES]
    if kinds and max(shares) - min(shares) > rules.max_type_gap:
        value = ", ".join(f"{kind} {kinds[kind]}" for kind in SITUATION_TYPES)
        problem = (
            f"shares of the situation types differ by {max(shares) - min(shares):.2f}, at most {rules.max_type_gap}"
        )
        yield context.of_all("balance_type", "situation_type", value, problem, "Write more requests of the rare type")


def _label_problem(requests: tuple[Request, ...], allowed: float) -> str | None:
    labels = Counter(request.label for request in requests)
    gap = abs(labels["conflict"] - labels["non_conflict"]) / max(1, len(requests))
    return f"the labels' shares differ by {gap:.2f}, at most {allowed}" if gap > allowed + 1e-9 else None


def _counts(requests: tuple[Request, ...]) -> str:
    labels = Counter(request.label for request in requests)
    return ", ".join(f"{label} {labels[label]}" for label in LABELS)
