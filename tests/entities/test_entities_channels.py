"""Time and people channels: which facts, in which order."""

import datetime as dt

import numpy as np
import pytest

from pace_dspy.entities import People, TimeIndex, people_channel
from pace_dspy.temporal import find_times, request_intervals

REFERENCE = dt.date(2026, 3, 18)  # a Wednesday
TEXTS = [
    "Saskia expects six guests on 22 March.",
    "The choir rehearses every Sunday from 16:00.",
    "The kitchen is closed until 19 April.",
    "In March the ward was full.",
    "The gearbox arrives on 23 March.",
    "Ines likes tea.",
]


@pytest.fixture(scope="module")
def times():
    return TimeIndex([find_times(text, None, near=REFERENCE) for text in TEXTS])


def test_worth_of_a_touching_time(times):
    intervals = request_intervals("Bring a tray to lunch on Sunday 22 March.", REFERENCE)
    np.testing.assert_allclose(times.touching(intervals), [1.0, 0.8, 0.4, 0.2, 0, 0])


def test_channel_orders_by_worth_and_similarity(times):
    intervals = request_intervals("Lunch on Sunday 22 March.", REFERENCE)
    similarity = np.array([0.0, 0.5, 0.1, 0.1, 0.9, 0.9], dtype=np.float32)
    assert times.channel(intervals, similarity) == [1, 0, 2, 3]
    assert times.channel(intervals, similarity, top=1) == [1]
    assert times.channel([], similarity) == []
    assert times.channel(request_intervals("Sell it in March.", REFERENCE), similarity) == []  # a month says too little


def test_day_keys(times):
    assert times.day_keys[0] == {"2026-03-22"}
    assert times.day_keys[4] == {"2026-03-23"}
    assert times.day_keys[2] == times.day_keys[3] == times.day_keys[5] == frozenset()
    (week,) = TimeIndex([find_times("Away from 3 to 5 March.", None, near=REFERENCE)]).day_keys
    assert week == {"2026-03-03", "2026-03-04", "2026-03-05"}


def test_no_facts():
    empty = TimeIndex([])
    assert empty.channel(request_intervals("22 March", REFERENCE), np.zeros(0, dtype=np.float32)) == []


def test_people_channel_follows_a_description_to_all_facts_about_the_person():
    facts = [
        ("a", "Rain falls."),
        ("b", "Ines's sister Clara is here."),
        ("c", "Clara never eats nuts."),
        ("d", "Ines knows Bo."),
    ]
    people = People.build(facts, "Ines Carvalho")
    similarity = np.array([0.9, 0.1, 0.3, 0.8], dtype=np.float32)
    assert people_channel(people, "Bake a nut cake for my sister", similarity) == [2, 1]
    assert people_channel(people, "Bake a nut cake for Clara", similarity) == []
    assert people_channel(People.build([]), "my sister", np.zeros(0, dtype=np.float32)) == []
