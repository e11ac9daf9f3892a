"""Limits of the checks: one set for any data, a strict one for PACE-mini and broken copies of it. Ours."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pace_dspy.data.validation.report import Severity
from pace_dspy.types import Dataset

ALWAYS_ERRORS = frozenset({"window_order", "reference_date", "impossible_date", "weekday_date"})
"""Checks whose findings are wrong in any data."""

ALWAYS_WARNINGS = frozenset({"missing_field", "shortcut", "near_miss_variety"})
"""Checks whose findings are a hint in any data."""


@dataclass(frozen=True)
class ValidationRules:
    """Limits; ``None`` switches a check off.

    Attributes:
        name: Shown in the report.
        strict: Findings are errors except `ALWAYS_WARNINGS`; else warnings except `ALWAYS_ERRORS`.
        facts_per_case: Fewest and most facts of a persona.
        large_case_facts: A persona with this many facts or more is a large one, whatever ``facts_per_case`` says.
        requests_per_case: Requests of a persona.
        gold_per_request: Fewest and most gold facts of a request.
        fact_words: Fewest and most words of a fact.
        judgment_sentences: Fewest and most sentences of a judgment.
        max_label_gap: Largest |conflict - non_conflict| / n in a persona and overall.
        max_type_gap: Largest difference of the shares of two situation types, overall.
        all_types_in_both_labels: Every persona has every situation type in both labels.
        max_jaccard: Token Jaccard above which two texts are near duplicates.
        max_overlap: Largest share of the request's content words found in a gold fact, mean over its gold facts.
        max_fact_overlap: The same for the gold fact that holds the most of them.
        max_date_share_gap: Largest difference of the shares of gold and background facts with an in-window date.
        max_case_date_share_gap: The same in one persona.
        max_requests_per_gold: Most requests that one fact may be gold for.
        max_reused_gold: Most facts of a persona that are gold for two requests or more.
        min_near_misses: Fewest kinds of near miss in a persona, where the data names them.
        max_shortcut_accuracy: Accuracy of a shortcut above which it is reported.
    """

    name: str
    strict: bool
    facts_per_case: tuple[int, int] | None
    large_case_facts: int | None
    requests_per_case: int | None
    gold_per_request: tuple[int, int]
    fact_words: tuple[int, int]
    judgment_sentences: tuple[int, int]
    max_label_gap: float
    max_type_gap: float
    all_types_in_both_labels: bool
    max_jaccard: float
    max_overlap: float
    max_fact_overlap: float
    max_date_share_gap: float
    max_case_date_share_gap: float | None
    max_requests_per_gold: int
    max_reused_gold: int | None
    min_near_misses: int | None
    max_shortcut_accuracy: float

    def severity(self, check: str) -> Severity:
        """Return what a finding of a check counts as."""
        if check in ALWAYS_ERRORS:
            return "error"
        return "error" if self.strict and check not in ALWAYS_WARNINGS else "warning"


GENERAL_RULES = ValidationRules(
    name="general",
    strict=False,
    facts_per_case=None,
    large_case_facts=None,
    requests_per_case=None,
    gold_per_request=(1, 10),
    fact_words=(3, 60),
    judgment_sentences=(1, 6),
    max_label_gap=0.3,
    max_type_gap=0.3,
    all_types_in_both_labels=False,
    max_jaccard=0.9,
    max_overlap=0.5,
    max_fact_overlap=0.9,
    max_date_share_gap=0.2,
    max_case_date_share_gap=None,
    max_requests_per_gold=3,
    max_reused_gold=None,
    min_near_misses=None,
    max_shortcut_accuracy=0.6,
)
"""For the real PACE and for a user's own release."""

MINI_RULES = ValidationRules(
    name="mini",
    strict=True,
    facts_per_case=(180, 260),
    large_case_facts=2000,
    requests_per_case=10,
    gold_per_request=(3, 5),
    fact_words=(8, 30),
    judgment_sentences=(2, 3),
    max_label_gap=0.0,
    max_type_gap=0.15,
    all_types_in_both_labels=True,
    max_jaccard=0.9,
    max_overlap=0.3,
    max_fact_overlap=0.6,
    max_date_share_gap=0.1,
    max_case_date_share_gap=0.15,
    max_requests_per_gold=2,
    max_reused_gold=3,
    min_near_misses=3,
    max_shortcut_accuracy=0.6,
)
"""What PACE-mini promises."""

_MINI_CASE = re.compile(r"mini_\w+")


def rules_for(dataset: Dataset) -> ValidationRules:
    """Return the strict rules when every case is named ``mini_...``, else the general ones."""
    is_mini = all(_MINI_CASE.fullmatch(case.case_id) for case in dataset.cases)
    return MINI_RULES if is_mini else GENERAL_RULES
