import datetime as dt

import pytest

from pace_dspy.data.date_text import find_dates, find_relative_weekdays

START, END = dt.date(2026, 1, 5), dt.date(2026, 4, 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("On 2026-03-27 it rains.", [(2026, 3, 27, None)]),
        ("From 27 March on.", [(None, 3, 27, None)]),
        ("The 3rd of April 2026.", [(2026, 4, 3, None)]),
        ("By March 5th, 2025, all was done.", [(2025, 3, 5, None)]),
        ("On Friday, 27 March at 7 pm.", [(None, 3, 27, "friday")]),
        ("On Friday the 27th of March.", [(None, 3, 27, "friday")]),
        ("On 2026-03-27 (Friday) and 28 March, a Saturday.", [(2026, 3, 27, "friday"), (None, 3, 28, "saturday")]),
        ("Between 3 and 5 Feb. they met.", [(None, 2, 5, None)]),
        ("In March 2026 and in May.", []),
        ("March 12:30 is no date, nor is room 14.", []),
        ("Ana may 5 times", []),
    ],
)
def test_dates_are_found(text, expected):
    assert [(d.year, d.month, d.day, d.weekday) for d in find_dates(text)] == expected


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("5 January", dt.date(2026, 1, 5)),
        ("29 February", dt.date(2024, 2, 29)),
        ("1 May", dt.date(2026, 5, 1)),
        ("1 May 2024", dt.date(2024, 5, 1)),
        ("31 April", None),
        ("2026-13-01", None),
        ("29 February 2026", None),
    ],
)
def test_dates_resolve_in_the_window(text, day):
    (mention,) = find_dates(text)
    found = mention.resolve(START, END)
    if text == "29 February":  # a real day, but not of the window's year
        assert found is None
        assert mention.is_possible
    else:
        assert found == day


def test_a_window_over_new_year_gives_the_year_that_fits():
    (mention,) = find_dates("3 January")
    assert mention.resolve(dt.date(2025, 11, 1), dt.date(2026, 2, 1)) == dt.date(2026, 1, 3)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        # 18 March 2026 is a Wednesday
        ("this Friday", dt.date(2026, 3, 20)),
        ("this Wednesday", dt.date(2026, 3, 18)),
        ("coming Tuesday", dt.date(2026, 3, 24)),
        ("next Friday", dt.date(2026, 3, 27)),
        ("next Monday", dt.date(2026, 3, 23)),
        ("last Wednesday", dt.date(2026, 3, 11)),
        ("last Tuesday", dt.date(2026, 3, 17)),
        ("past Sunday", dt.date(2026, 3, 15)),
    ],
)
def test_weekday_words_resolve_against_their_anchor(text, day):
    (word,) = find_relative_weekdays(f"Come {text}.")
    assert word.resolve(dt.date(2026, 3, 18)) == day


@pytest.mark.parametrize(
    "text",
    [
        "every Friday",
        "on Friday",
        "the last Friday of March",
        "every last Sunday of the month",
        "the next Friday in May",
    ],
)
def test_weekday_words_that_need_no_anchor(text):
    assert list(find_relative_weekdays(text)) == []
