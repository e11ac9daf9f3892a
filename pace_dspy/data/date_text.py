"""Dates and weekday words in English sentences. Ours."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    ("January", "Jan"),
    ("February", "Feb"),
    ("March", "Mar"),
    ("April", "Apr"),
    ("May",),
    ("June", "Jun"),
    ("July", "Jul"),
    ("August", "Aug"),
    ("September", "Sept", "Sep"),
    ("October", "Oct"),
    ("November", "Nov"),
    ("December", "Dec"),
)
_MONTH_NUMBER = {name: number for number, names in enumerate(_MONTHS, start=1) for name in names}
_MONTH = "(?:" + "|".join(name for names in _MONTHS for name in names) + r")\b\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_WEEKDAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_DATE = re.compile(
    rf"(?:(?P<before>{_WEEKDAY}),? (?:the )?)?"
    rf"(?:\b(?P<iso>\d{{4}}-\d{{2}}-\d{{2}})\b"
    rf"|\b(?P<day>{_DAY}) (?:of )?(?P<month>{_MONTH})(?:,? (?P<year>(?:19|20)\d\d)\b)?"
    rf"|\b(?P<month2>{_MONTH}) (?:the )?(?P<day2>{_DAY})(?![\d:.]\d|\d)(?:,? (?P<year2>(?:19|20)\d\d)\b)?)"
    rf"(?:,? (?:is |was |falls on )?(?:a |\()(?P<after>{_WEEKDAY})\b)?"
)
_RELATIVE = re.compile(
    rf"\b(?P<which>this|next|last|coming|past|previous|following) (?P<weekday>{_WEEKDAY})\b"
    r"(?! (?:of|in) (?:the |each |every )?(?:\w+ )?(?:month|year|term|quarter|" + _MONTH + r"))",
    re.IGNORECASE,
)
_ORDINAL_BEFORE = re.compile(r"\b(?:the|every|each|second|third|her|his|their|its) $", re.IGNORECASE)


@dataclass(frozen=True)
class DateMention:
    """A date written in a sentence.

    Attributes:
        text: As written.
        year: The year written, or ``None``.
        month: 1 to 12, unchecked.
        day: Unchecked.
        weekday: The weekday written beside it, lower case, or ``None``.
    """

    text: str
    year: int | None
    month: int
    day: int
    weekday: str | None

    def resolve(self, start: dt.date | None, end: dt.date | None) -> dt.date | None:
        """Return the date; a missing year is the first that puts it into the window, else the first that has it.

        Args:
            start: First day of the window.
            end: Last day of the window.

        Returns:
            The date, or ``None`` when the calendar has no such day.
        """
        if self.year is not None:
            return _date(self.year, self.month, self.day)
        years = range(start.year, end.year + 1) if start and end else range(2024, 2028)
        dates = [date for year in years if (date := _date(year, self.month, self.day))]
        inside = [date for date in dates if start and end and start <= date <= end]
        return next(iter(inside or dates), None)

    @property
    def is_possible(self) -> bool:
        """Tell whether some year (the written one, when there is one) has this day."""
        years = [self.year] if self.year is not None else range(2024, 2028)
        return any(_date(year, self.month, self.day) for year in years)


@dataclass(frozen=True)
class RelativeWeekday:
    """A weekday word that needs an anchor date: "this Friday", "next Tuesday", "last Monday"."""

    text: str
    which: str
    weekday: str

    def resolve(self, anchor: dt.date) -> dt.date:
        """Return the day meant on ``anchor``.

        "this" and "coming": the first such day from the anchor on; "next" and "following": that day in the next
        calendar week (Monday first); "last", "past", "previous": the last such day before the anchor.
        """
        target = WEEKDAYS.index(self.weekday)
        if self.which in ("last", "past", "previous"):
            return anchor - dt.timedelta(days=(anchor.weekday() - target - 1) % 7 + 1)
        if self.which in ("next", "following"):
            return anchor + dt.timedelta(days=7 - anchor.weekday() + target)
        return anchor + dt.timedelta(days=(target - anchor.weekday()) % 7)


def find_dates(text: str) -> Iterator[DateMention]:
    """Yield the dates written in a sentence: ``2026-03-27``, ``27 March``, ``March 27th, 2026``, with their weekday."""
    for match in _DATE.finditer(text):
        weekday = match["before"] or match["after"]
        if match["iso"]:
            year, month, day = (int(number) for number in match["iso"].split("-"))
        else:
            written_year = match["year"] or match["year2"]
            month = _MONTH_NUMBER[(match["month"] or match["month2"]).rstrip(".")]
            day = int(re.sub(r"\D", "", match["day"] or match["day2"]))
            if not written_year:
                yield DateMention(match[0], None, month, day, weekday.lower() if weekday else None)
                continue
            year = int(written_year)
        yield DateMention(match[0], year, month, day, weekday.lower() if weekday else None)


def find_relative_weekdays(text: str) -> Iterator[RelativeWeekday]:
    """Yield the weekday words that need an anchor; "the last Friday of March" and "every Friday" need none."""
    for match in _RELATIVE.finditer(text):
        if not _ORDINAL_BEFORE.search(text[: match.start()]):
            yield RelativeWeekday(match[0], match["which"].lower(), match["weekday"].lower())


def _date(year: int, month: int, day: int) -> dt.date | None:
    try:
        return dt.date(year, month, day)
    except ValueError:
        return None
