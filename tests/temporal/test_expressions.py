"""The hand-made table: expressions in context, with what a careful reader takes them to mean."""

from __future__ import annotations

import calendar
import re

from tests.temporal.table import ROWS, found

ALLOWED_ERRORS = 0.03


def test_the_table_is_large_and_its_weekdays_exist():
    """A row that names weekday and full date must agree with Python's own calendar, or say both readings."""
    assert len(ROWS) >= 150
    for _, _, text, expected in ROWS:
        match = re.search(r"(\w+day),? \d{1,2} \w+", text)
        if match and len(expected) == 1 and re.match(r"\d{4}-", expected[0]) and "2026-03-26" not in expected[0]:
            year, month, day = map(int, expected[0][:10].split("-"))
            assert calendar.day_name[calendar.weekday(year, month, day)] == match[1], text


def test_ninety_seven_percent_are_right(record_property):
    wrong = [(row[1], row[2], row[3], got) for row in ROWS if (got := found(row)) != row[3]]
    accuracy = 1 - len(wrong) / len(ROWS)
    record_property("temporal_table_accuracy", accuracy)
    record_property("temporal_table_rows", len(ROWS))
    report = "\n".join(f"{ref} {text}\n   expected {want}\n   found    {got}" for ref, text, want, got in wrong)
    assert accuracy >= 1 - ALLOWED_ERRORS, f"{len(wrong)} of {len(ROWS)} wrong\n{report}"
