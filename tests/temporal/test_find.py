"""Properties of ``find_times``: no clock, no locale, no exception, true spans, speed."""

from __future__ import annotations

import ast
import datetime as dt
import locale
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pace_dspy import temporal
from pace_dspy.temporal import find_times, request_intervals
from tests.temporal.table import ROWS, found

REFERENCE = dt.date(2026, 3, 18)
PIECES = [
    "every", "other", "second", "31", "February", "2026-03-27", "at", "from", "until", "7", "PM", "Friday", "Mondays",
    "and", "to", "-", "the", "of", "month", "week", "in", "three", "days", "noon", "morning", ",", ".", "2026", "last",
    "next", "tonight", "24:00", "99:99", "0th", "45 minutes", "for", "a", "half", "past", "Easter", "weekend", "5/6",
]  # fmt: skip


def test_the_clock_is_never_asked(monkeypatch):
    """With every clock function broken (``date.today`` asks ``time.time``) the whole table gives the same."""
    before = [found(row) for row in ROWS]

    def forbidden(*_, **__):
        raise AssertionError("the system clock was read")

    for name in ("time", "time_ns", "localtime", "gmtime"):
        monkeypatch.setattr(time, name, forbidden)
    with pytest.raises(AssertionError, match="clock was read"):
        dt.date.today()
    assert [found(row) for row in ROWS] == before


def test_no_code_names_a_function_that_reads_clock_or_locale():
    """``datetime.now`` cannot be broken from outside, so the source is read instead."""
    forbidden = {"now", "today", "utcnow", "localtime", "fromtimestamp", "strftime", "strptime", "day_name",
                 "month_name", "setlocale", "LocaleTextCalendar"}  # fmt: skip
    for path in Path(temporal.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Attribute) and node.attr in forbidden), f"{path.name}: {node.attr}"
            assert not (isinstance(node, ast.Import) and any(n.name in ("time", "locale") for n in node.names)), path


@pytest.mark.parametrize("name", ["de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8", "C"])
def test_the_locale_changes_nothing(name):
    before, kept = [found(row) for row in ROWS], locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, name)
    except locale.Error:
        pytest.skip(f"locale {name} is not installed")
    try:
        assert [found(row) for row in ROWS] == before
    finally:
        locale.setlocale(locale.LC_ALL, kept)


texts = st.one_of(
    st.text(max_size=80),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=14).map(" ".join),
)


@settings(max_examples=400, deadline=None)
@given(texts, st.one_of(st.none(), st.dates(dt.date(1800, 1, 1), dt.date(2300, 12, 31))))
def test_any_text_is_accepted_and_spans_are_true(text, reference):
    last = 0
    for prefer in ("future", "nearest"):
        last = 0
        for x in find_times(text, reference, prefer=prefer):
            start, end = x.span
            assert text[start:end] == x.text
            assert last <= start < end
            last = end
            assert not (x.impossible and x.intervals)
            for i in x.intervals:
                assert i.start is not None or i.end is not None
                assert i.start is None or i.end is None or i.start < i.end


@given(st.dates(dt.date(1900, 1, 1), dt.date(2199, 12, 31)))
def test_a_full_date_is_found_whatever_the_reference(day):
    names = "January February March April May June July August September October November December"
    months = names.split()
    for text in (day.isoformat(), f"{day.day} {months[day.month - 1]} {day.year}"):
        if text != day.isoformat() and not 1900 <= day.year <= 2099:
            continue
        (interval,) = request_intervals(f"Book it on {text}, please.", REFERENCE)
        assert (interval.start, interval.end - interval.start) == (
            dt.datetime(day.year, day.month, day.day),
            dt.timedelta(days=1),
        )


@pytest.mark.parametrize("sentinel", [dt.date(1, 1, 1), dt.date(9999, 12, 31)])
def test_a_text_dated_out_of_range_counts_as_undated(sentinel):
    text = "Back tomorrow, or on 7 March."
    assert find_times(text, sentinel) == find_times(text, None)
    with pytest.raises(ValueError, match=f"near {sentinel} must lie in 1800 to 2300"):
        find_times(text, None, near=sentinel)


def test_two_thousand_facts_take_well_under_a_second():
    """About 0.25 s on one core of the machine it was written on; the bound is loose for busy machines."""
    facts = [row[2] for row in ROWS] * 12
    started = time.perf_counter()
    for fact in facts[:2000]:
        find_times(fact, None, near=REFERENCE)
    assert time.perf_counter() - started < 3.0
