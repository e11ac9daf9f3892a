"""The validator of PACE data: one check family a file. Ours."""

from pace_dspy.data.validation.report import Finding, Severity, ValidationReport
from pace_dspy.data.validation.rules import GENERAL_RULES, MINI_RULES, ValidationRules
from pace_dspy.data.validation.validator import CHECKS, validate

__all__ = [
    "CHECKS",
    "GENERAL_RULES",
    "MINI_RULES",
    "Finding",
    "Severity",
    "ValidationReport",
    "ValidationRules",
    "validate",
]
