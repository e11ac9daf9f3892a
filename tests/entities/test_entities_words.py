"""Words, names and terms: exact keys, frequencies and rarities."""

import math

import pytest

from pace_dspy.entities import Term, Vocabulary, constraint_kinds, constraint_strength
from pace_dspy.entities.words import fold, split_words

TEXTS = [
    "The red lamp from Basri's shop is broken.",
    "Lamps at Netmakers' Hall cost ten crowns.",
    "On Monday Ines bought a red lamp.",
    "Pell & Rowe sells boxes to Ines.",
]


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("Lamps", "lamp"),
        ("boxes", "box"),
        ("cherries", "cherry"),
        ("glass", "glass"),
        ("bus", "bus"),
        ("twins'", "twin"),
        ("Basri's", "basri"),
        ("Ines’s", "ine"),
        ("Ines", "ine"),
        ("gas", "gas"),
        ("", ""),
    ],
)
def test_fold(word, key):
    assert fold(word) == key


def test_a_title_ends_no_sentence():
    assert [(word.raw, word.first) for word in split_words("Dr. Haan left. Ines slept.") if word.kind == "word"] == [
        ("Dr", True),
        ("Haan", False),
        ("left", False),
        ("Ines", True),
        ("slept", False),
    ]


def test_keys_of_a_fact_with_their_kinds():
    vocabulary = Vocabulary.build(TEXTS)
    assert vocabulary.keys(TEXTS[0]) == {
        "basri": "name",
        "red": "word",
        "lamp": "word",
        "red lamp": "pair",
        "shop": "word",
        "basri shop": "pair",
        "broken": "word",
    }
    assert vocabulary.keys("Pell & Rowe")["pell rowe"] == "name"
    assert vocabulary.keys("Book Netmakers' Hall on Monday") == {
        "netmaker hall": "name",
        "netmaker": "name",
        "hall": "name",
    }


def test_salient_terms_rarest_first_with_hand_worked_idf():
    vocabulary = Vocabulary.build(TEXTS)
    # n = 4; "lamp" (and "lamps") in three facts, "red" in two, "violin" in none: ln(5/4), ln(5/3), ln(5/1)
    assert vocabulary.salient_terms("A violin, red, and some lamps on Monday") == (
        Term("violin", "word", 0, math.log(5)),
        Term("red", "word", 2, math.log(5 / 3)),
        Term("lamp", "word", 3, math.log(5 / 4)),
    )
    assert [t.key for t in vocabulary.salient_terms("red lamps", max_share=0.5)] == ["red", "red lamp"]
    assert vocabulary.salient_terms("to be or not to be") == ()


def test_pair_needs_adjacent_words():
    keys = Vocabulary.build(TEXTS).keys("red and lamp, shop")
    assert not any(" " in key for key in keys)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("The museum opens only on Saturdays.", {"scope"}),
        ("Varnish takes three days and must stay dry until Friday.", {"measure", "duty", "bounds"}),
        ("Ines promised to keep it.", {"promise"}),
        ("Milo is allergic to sesame.", {"body"}),
        ("The bridge is closed.", {"state"}),
        ("Ines bought a lamp.", set()),
        ("", set()),
    ],
)
def test_constraint_kinds(text, kinds):
    assert constraint_kinds(text) == kinds
    assert constraint_strength(text) == len(kinds)


def test_constraint_strength_stops_at_three():
    text = "No vegan may sign a contract until the closed hall takes a week."
    assert len(constraint_kinds(text)) > 3
    assert constraint_strength(text) == 3
