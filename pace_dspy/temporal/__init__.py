"""Time in requests and facts, as typed intervals and recurrences (ours; the paper has none of this)."""

from pace_dspy.temporal.annotate import annotate_weekdays
from pace_dspy.temporal.arithmetic import Finding, derive_notes
from pace_dspy.temporal.find import FIRST_YEAR, LAST_YEAR, find_times, readable, request_intervals
from pace_dspy.temporal.overlap import occurrences, touches
from pace_dspy.temporal.records import Clock, Interval, Meaning, Recurrence, TimeExpression

__all__ = [
    "FIRST_YEAR",
    "LAST_YEAR",
    "Clock",
    "Finding",
    "Interval",
    "Meaning",
    "Recurrence",
    "TimeExpression",
    "annotate_weekdays",
    "derive_notes",
    "find_times",
    "occurrences",
    "readable",
    "request_intervals",
    "touches",
]
