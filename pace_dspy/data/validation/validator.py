"""`validate`: load, run every check, gather the statistics. Ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from pace_dspy.data.loading import load_pace
from pace_dspy.data.schema import DataWarning
from pace_dspy.data.shortcuts import MIN_CASES, shortcut_checks
from pace_dspy.data.sources import find_source
from pace_dspy.data.validation import balance, dates, duplicates, structure, wording
from pace_dspy.data.validation.context import Context
from pace_dspy.data.validation.report import Finding, ValidationReport
from pace_dspy.data.validation.rules import ValidationRules, rules_for
from pace_dspy.data.validation.statistics import make_tables
from pace_dspy.errors import DataError
from pace_dspy.types import Dataset


def check_shortcuts(context: Context) -> Iterator[Finding]:
    """The label predicted from the surface of the request (check ``shortcut``)."""
    if sum(bool(case.requests) for case in context.dataset.cases) < MIN_CASES:
        return
    for result in shortcut_checks(context.dataset):
        if result.accuracy > context.rules.max_shortcut_accuracy:
            problem = f"{result.name} predicts the label, at most {context.rules.max_shortcut_accuracy} is allowed"
            value, remedy = f"{result.accuracy:.2f}", "Rewrite requests until both labels look alike"
            yield context.of_all("shortcut", result.field, value, problem, remedy)


CHECKS: tuple[Callable[[Context], Iterator[Finding]], ...] = (
    structure.check_sizes,
    structure.check_fields,
    structure.check_gold,
    structure.check_near_misses,
    balance.check_balance,
    duplicates.check_duplicates,
    dates.check_windows,
    dates.check_written_dates,
    dates.check_date_share,
    wording.check_fact_length,
    wording.check_judgments,
    wording.check_overlap,
    check_shortcuts,
)
"""Every check, in the order of the report."""


def validate(source: str | Path | Dataset, *, rules: ValidationRules | None = None) -> ValidationReport:
    """Validate PACE data.

    Args:
        source: What `load_pace` takes, or a dataset that is loaded already.
        rules: Limits; default: the strict rules of PACE-mini when every case is named ``mini_...``, else general ones.

    Returns:
        Findings and statistics. Data that cannot be loaded gives one error with the fields of its `DataError`.

    Raises:
        MissingExtraError: The hub is asked for without the extra ``hub``.
        DataDownloadError: The hub cannot be reached.
    """
    place = None
    try:
        if isinstance(source, Dataset):
            dataset = source
        else:
            place = find_source(source)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # the check missing_field says it in full
                dataset = load_pace(place.folder, name=place.name)
    except DataError as error:
        name = rules.name if rules else "none"
        return ValidationReport(str(source), None, name, (Finding.of_error(error),))
    context = Context(dataset, rules or rules_for(dataset), place)
    findings = [finding for check in CHECKS for finding in check(context)]
    findings.sort(key=lambda finding: finding.severity != "error")
    name = str(place.folder) if place else dataset.name
    return ValidationReport(name, dataset.content_hash, context.rules.name, tuple(findings), make_tables(context))
