"""Weekdays after explicit dates, for prompts: models miscount them (ours)."""

from __future__ import annotations

import datetime as dt
import re

from pace_dspy.temporal.find import find_times
from pace_dspy.temporal.lexicon import SHORT_WEEKDAYS, WEEKDAY_LABELS, WEEKDAYS
from pace_dspy.temporal.records import Prefer

_NAMES = "|".join(sorted([*WEEKDAYS, *SHORT_WEEKDAYS], key=len, reverse=True))
_AFTER = re.compile(rf"\W{{0,3}}(?:an?\s|the\s)?(?:{_NAMES})\b", re.IGNORECASE)
_INSIDE = re.compile(rf"\b(?:{_NAMES})s?\b", re.IGNORECASE)
_EXPLICIT = re.compile(
    r"\d{4}-\d{2}-\d{2}"
    r"|\d{1,2}(?:st|nd|rd|th)?\s(?:of\s)?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*(?:,?\s\d{4})?\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\s\d{1,2}(?:st|nd|rd|th)?(?:,?\s\d{4})?\b(?![:.]\d)",
    re.IGNORECASE,
)
_BEFORE = re.compile(rf"(?:{_NAMES})[,\s]*(?:the\s)?$", re.IGNORECASE)


def annotate_weekdays(
    text: str, *, reference: dt.date | None = None, near: dt.date | None = None, prefer: Prefer = "nearest"
) -> str:
    """Return the text with the weekday after each explicit date: ``2026-03-27 (Fri)``.

    Args:
        text: A fact or a request.
        reference: The day it was written, ``None`` when unknown.
        near: A day that dates without a year lie near; without it (or a reference) these stay as they are.
        prefer: As in ``find_times``.

    Returns:
        The text; a date that already has a weekday, is ambiguous or does not exist is left as it is.
    """
    out, last = [], 0
    for match in _EXPLICIT.finditer(text):
        if _BEFORE.search(text[: match.start()]) or _AFTER.match(text, match.end()):
            continue
        found = find_times(match.group(), reference, near=near, prefer=prefer)
        if len(found) != 1 or found[0].span != (0, len(match.group())) or found[0].ambiguous:
            continue
        days = [i for i in found[0].intervals if i.granularity == "day" and i.start]
        if len(days) != 1 or days[0].start is None:
            continue
        out.append(f"{text[last : match.end()]} ({WEEKDAY_LABELS[days[0].start.weekday()]})")
        last = match.end()
    return "".join(out) + text[last:]
