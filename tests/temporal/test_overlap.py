"""Recurrences against a brute-force walk over the calendar, and weekday notes for prompts."""

from __future__ import annotations

import calendar
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pace_dspy.temporal import Clock, Interval, Recurrence, annotate_weekdays, find_times, occurrences, touches

REFERENCE = dt.date(2026, 3, 18)
DAY = dt.timedelta(days=1)


def day(text: str) -> Interval:
    start = dt.datetime.fromisoformat(text)
    return Interval(start, start + DAY)


def falls_on(pattern: Recurrence, date: dt.date) -> bool:
    """The definition, day by day."""
    if pattern.frequency == "daily":
        return True
    if pattern.frequency == "weekly":
        monday = date - DAY * date.weekday()
        weeks = (monday - (pattern.anchor - DAY * pattern.anchor.weekday())).days // 7 if pattern.anchor else 0
        return date.weekday() in pattern.weekdays and (not pattern.anchor or weeks % pattern.interval == 0)
    if pattern.month_days:
        return date.day in pattern.month_days
    last = calendar.monthrange(date.year, date.month)[1]
    places = {(date.day - 1) // 7 + 1} | ({-1} if date.day + 7 > last else set())
    return date.weekday() in pattern.weekdays and bool(places & set(pattern.ordinals))


patterns = st.one_of(
    st.just(Recurrence("daily")),
    st.builds(
        lambda n, days, anchor: Recurrence("weekly", n, weekdays=tuple(sorted(days)), anchor=anchor),
        st.integers(1, 5),
        st.sets(st.integers(0, 6), min_size=1),
        st.dates(dt.date(2024, 1, 1), dt.date(2028, 12, 31)),
    ),
    st.builds(
        lambda days, places: Recurrence("monthly", weekdays=tuple(sorted(days)), ordinals=tuple(sorted(places))),
        st.sets(st.integers(0, 6), min_size=1),
        st.sets(st.sampled_from([-1, 1, 2, 3, 4, 5]), min_size=1),
    ),
    st.builds(
        lambda days: Recurrence("monthly", month_days=tuple(sorted(days))), st.sets(st.integers(1, 28), min_size=1)
    ),
)


@given(patterns, st.dates(dt.date(2025, 1, 1), dt.date(2027, 12, 1)), st.integers(1, 45))
def test_occurrences_are_those_of_a_walk_over_the_calendar(pattern, first, length):
    start = dt.datetime(first.year, first.month, first.day)
    window = Interval(start, start + DAY * length)
    expected = [first + DAY * n for n in range(length) if falls_on(pattern, first + DAY * n)]
    assert [found.start.date() for found in occurrences(pattern, window)] == expected


@pytest.mark.parametrize(
    ("fact", "query", "expected"),
    [
        ("The Petrel sails every second Tuesday, most recently on 7 July.", "2026-07-21", True),
        ("The Petrel sails every second Tuesday, most recently on 7 July.", "2026-07-14", False),
        ("Tows are on the second and fourth Thursday of the month.", "2026-07-30", False),
        ("Tows are on the second and fourth Thursday of the month.", "2026-07-23", True),
        ("The truck is pledged for the last Saturday of every month.", "2026-09-26", True),
        ("The truck is pledged for the last Saturday of every month.", "2026-09-19", False),
        ("Electricians have the wing until 19 April.", "2026-04-07", True),
        ("Electricians have the wing until 19 April.", "2026-04-20", False),
        ("The stipend comes on the 25th of each month.", "2026-02-25", True),
        ("She said she would call tomorrow.", "2026-03-19", False),
        ("The fair is on 7 March.", "2031-03-07", True),
        ("It is cut off on 31 February.", "2026-02-28", False),
    ],
)  # fmt: skip
def test_touches(fact, query, expected):
    near = None if "fair" in fact else dt.date.fromisoformat(query).replace(day=10)
    assert any(touches(x, day(query)) for x in find_times(fact, None, near=near)) is expected


def test_a_night_that_began_the_day_before_touches_the_morning():
    pattern = Recurrence("weekly", weekdays=(4,), clock=Clock(dt.time(22), dt.time(6)))
    saturday = dt.datetime(2026, 3, 21)
    assert occurrences(pattern, Interval(saturday, saturday + DAY / 24)) != ()
    assert occurrences(pattern, Interval(saturday + DAY / 4, saturday + DAY / 2)) == ()


def test_ambiguous_times_can_be_left_out():
    (friday,) = find_times("next Friday", REFERENCE, prefer="future")
    assert touches(friday, day("2026-03-27"))
    assert not touches(friday, day("2026-03-27"), sure=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Due 2026-03-27.", "Due 2026-03-27 (Fri)."),
        ("Due on 27 March.", "Due on 27 March (Fri)."),
        ("Due on March 27th, 2026.", "Due on March 27th, 2026 (Fri)."),
        ("Due on 5 and 19 March.", "Due on 5 and 19 March (Thu)."),
        ("Friday 27 March at 8", "Friday 27 March at 8"),
        ("2026-03-27 (Fri) and 27 March, a Friday", "2026-03-27 (Fri) and 27 March, a Friday"),
        ("Due on 31 February or in June.", "Due on 31 February or in June."),
    ],
)
def test_weekdays_are_added_once(text, expected):
    once = annotate_weekdays(text, near=REFERENCE)
    assert once == expected
    assert annotate_weekdays(once, near=REFERENCE) == expected


def test_a_date_without_a_year_stays_as_it_is_when_none_is_known():
    assert annotate_weekdays("Due on 27 March.") == "Due on 27 March."
