"""Checks of dates: window, calendar, weekdays, and dates as a shortcut to the gold facts. Ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from pace_dspy.data.date_text import WEEKDAYS, DateMention, find_dates, find_relative_weekdays
from pace_dspy.data.validation.context import Context
from pace_dspy.data.validation.report import Finding
from pace_dspy.types import Case


def check_windows(context: Context) -> Iterator[Finding]:
    """Order of the window, and the date fields against it (``window_order``, ``reference_date``, ``fact_date``)."""
    for case in context.dataset.cases:
        start, end = case.window_start, case.window_end
        if start and end and start > end:
            problem = f"the window ends on {end}, before it starts"
            yield context.of_case("window_order", case, "window_start", start, problem, "Swap them", corpus=True)
            continue
        for request in case.requests:
            if not _inside(request.reference_date, case):
                value, problem = request.reference_date.isoformat(), f"outside the window {start} to {end}"
                remedy = "Give a reference date inside the window"
                yield context.of_request("reference_date", case, request, "ref_date", value, problem, remedy)
        for fact in case.facts:
            if fact.date and not _inside(fact.date, case):
                problem, remedy = f"outside the window {start} to {end}", "Correct the date or the window"
                yield context.of_fact("fact_date", case, fact, problem, remedy, field="date")


def check_written_dates(context: Context) -> Iterator[Finding]:
    """Dates in facts and requests (``impossible_date``, ``weekday_date``, ``date_window``, ``weekday_word``)."""
    for case, fact in context.facts():
        for check, problem, remedy in _text_problems(fact.text, case, anchor=fact.date, is_request=False):
            yield context.of_fact(check, case, fact, problem, remedy)
    for case, request in context.requests():
        for check, problem, remedy in _text_problems(request.query, case, request.reference_date, is_request=True):
            yield context.of_request(check, case, request, "query", request.query, problem, remedy)


def _text_problems(
    text: str, case: Case, anchor: dt.date | None, *, is_request: bool
) -> Iterator[tuple[str, str, str]]:
    mentions = list(find_dates(text))
    for mention in mentions:
        yield from _mention_problems(mention, case)
    for word in find_relative_weekdays(text):
        if anchor is None and not mentions:
            problem = f"{word.text!r} has no date to count from, as the fact is undated"
            yield "weekday_word", problem, "Write the date or give the fact a date"
        elif anchor is not None and is_request and not _inside(day := word.resolve(anchor), case):
            problem = f"{word.text!r} is {day}, outside the window {case.window_start} to {case.window_end}"
            yield "weekday_word", problem, "Name a day inside the window"


def _mention_problems(mention: DateMention, case: Case) -> Iterator[tuple[str, str, str]]:
    start, end = case.window_start, case.window_end
    date = mention.resolve(start, end)
    if not mention.is_possible or date is None:
        yield "impossible_date", f"{mention.text!r} is not in the calendar", "Correct the day or the month"
        return
    if mention.weekday and (right := WEEKDAYS[date.weekday()]) != mention.weekday:
        yield "weekday_date", f"{mention.text!r}: {date} is a {right.title()}", "Correct the weekday or the date"
    if mention.year is None and not _inside(date, case):
        problem = f"{mention.text!r} has no year and is not inside the window {start} to {end}"
        yield "date_window", problem, "Write the year, or a date inside the window"
    elif mention.year is not None and end is not None and date > end:
        yield "date_window", f"{mention.text!r} is after the window ends on {end}", "Write a date inside the window"


@dataclass(frozen=True)
class DateShares:
    """Share of facts with a date inside the window, in [0, 1]; ``None`` where there are no such facts."""

    gold: float | None
    background: float | None

    @property
    def gap(self) -> float:
        """Absolute difference, 0 when one side is empty."""
        return 0.0 if self.gold is None or self.background is None else abs(self.gold - self.background)


def date_shares(cases: tuple[Case, ...]) -> DateShares:
    """Return how many gold and background facts hold a date inside the window; far apart means a shortcut."""
    dated, total = {True: 0, False: 0}, {True: 0, False: 0}
    for case in cases:
        gold = {doc_id for request in case.requests for doc_id in request.gold_doc_ids}
        for fact in case.facts:
            total[fact.doc_id in gold] += 1
            dated[fact.doc_id in gold] += has_window_date(fact.text, case)
    gold_share, background_share = (dated[side] / total[side] if total[side] else None for side in (True, False))
    return DateShares(gold_share, background_share)


def has_window_date(text: str, case: Case) -> bool:
    """Tell whether a text holds a date inside the window of its case."""
    dates = (mention.resolve(case.window_start, case.window_end) for mention in find_dates(text))
    return any(date is not None and _inside(date, case) for date in dates)


def check_date_share(context: Context) -> Iterator[Finding]:
    """In-window dates in gold against background facts (check ``date_share``)."""
    rules, remedy = context.rules, "Move dates from one side to the other"
    if rules.max_case_date_share_gap is not None:
        for case in context.dataset.cases:
            shares = date_shares((case,))
            if shares.gap > rules.max_case_date_share_gap:
                problem = _share_problem(shares, rules.max_case_date_share_gap)
                yield context.of_case("date_share", case, "text", f"{shares.gap:.2f}", problem, remedy, corpus=True)
    shares = date_shares(context.dataset.cases)
    if shares.gap > rules.max_date_share_gap:
        problem = _share_problem(shares, rules.max_date_share_gap)
        yield context.of_all("date_share", "text", f"{shares.gap:.2f}", problem, remedy)


def _share_problem(shares: DateShares, allowed: float) -> str:
    return (
        f"{shares.gold:.2f} of the gold and {shares.background:.2f} of the background facts hold a date inside the "
        f"window; at most {allowed} apart, else dates give the gold away"
    )


def _inside(date: dt.date, case: Case) -> bool:
    after_start = case.window_start is None or case.window_start <= date
    return after_start and (case.window_end is None or date <= case.window_end)
