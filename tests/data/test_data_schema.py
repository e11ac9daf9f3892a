import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pace_dspy.data.profile import find_full_name
from pace_dspy.data.schema import (
    find_situation_type,
    is_case_id,
    normalise_label,
    normalise_situation_type,
    parse_date,
    to_plain,
)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("conflict", "conflict"),
        (" CONFLICT ", "conflict"),
        ("non_conflict", "non_conflict"),
        ("non-conflict", "non_conflict"),
        ("No Conflict", "non_conflict"),
        ("NON_CONFLICT", "non_conflict"),
        ("nonconflict", "non_conflict"),
        ("not a conflict", None),
        ("conflicting", None),
        ("", None),
        (1, None),
        (None, None),
    ],
)
def test_labels_are_normalised(value, label):
    assert normalise_label(value) == label


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("temporal", "temporal"),
        ("Personal conflict", "personal"),
        ("state-based", "state"),
        ("temporal/state", None),
        ("estate", None),
        (3, None),
    ],
)
def test_situation_types_are_normalised(value, kind):
    assert normalise_situation_type(value) == kind


@pytest.mark.parametrize(
    "column", ["situation_type", "Situation", "TYPE", "category", "Conflict_Type", "taxonomy", " type "]
)
def test_each_accepted_situation_column_is_found(column):
    assert find_situation_type({"query": "x", column: "State"}) == (column, "state")


def test_the_first_situation_column_with_a_known_type_wins():
    row = {"taxonomy": "state", "type": "booking", "category": "temporal"}
    assert find_situation_type(row) == ("category", "temporal")
    assert find_situation_type({"kind": "state"}) == (None, None)


@pytest.mark.parametrize("case_id", ["mini_01", "A.b-C_9", "..a", "-", "x" * 100])
def test_case_ids_that_are_safe_in_paths(case_id):
    assert is_case_id(case_id)


@pytest.mark.parametrize("case_id", ["", ".", "..", "a/b", "a b", "é", "a\n", "a\\b", "x" * 101, None, 3])
def test_case_ids_that_are_refused(case_id):
    assert not is_case_id(case_id)


@pytest.mark.parametrize(
    "value",
    [
        "2026-03-18",
        " 2026-03-18 ",
        "2026-03-18T23:30:00+02:00",
        "2026-03-18 00:00:00",
        dt.date(2026, 3, 18),
        dt.datetime(2026, 3, 18, 23, 59),
    ],
)
def test_dates_are_read(value):
    assert parse_date(value) == dt.date(2026, 3, 18)


@pytest.mark.parametrize("value", ["2026-02-30", "18.03.2026", "2026-3-18", "soon", 20260318, None])
def test_other_values_are_no_dates(value):
    with pytest.raises(ValueError, match=r"YYYY-MM-DD|day"):
        parse_date(value)


def test_values_become_plain_python_without_nulls():
    value = {
        "a": np.int64(3),
        "b": np.array([1.5, np.nan]),
        "c": pa.scalar("x"),
        "d": None,
        "e": {"inner": {"gone": None}, "kept": [None, {"x": None}]},
        "f": float("nan"),
        "g": dt.datetime(2026, 3, 18),
        "h": pd.Timestamp("2026-03-18 09:30"),
        "i": pd.NaT,
        "j": pd.NA,
        "k": np.datetime64("2026-03-18T00:00:00.000000000"),
        "l": b"bytes",
        "m": decimal.Decimal("2.5"),
        "n": np.bool_(True),
        "o": dt.timedelta(days=1),
    }
    plain = to_plain(value)
    assert plain == {
        "a": 3,
        "b": [1.5, None],
        "c": "x",
        "e": {"kept": [None, {}]},
        "g": "2026-03-18",
        "h": "2026-03-18T09:30:00",
        "k": "2026-03-18",
        "l": "bytes",
        "m": 2.5,
        "n": True,
        "o": "1 day, 0:00:00",
    }
    assert type(plain["a"]) is int
    assert type(plain["n"]) is bool


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_to_plain_is_idempotent_and_leaves_no_null_key(value):
    plain = to_plain(value)
    assert to_plain(plain) == plain

    def walk(node):
        if isinstance(node, dict):
            assert all(item is not None and item != {} for item in node.values())
        for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(item)

    walk(plain)


@pytest.mark.parametrize(
    "profile",
    [
        {"spec": {"demographic": {"full_name": "Ana Reis"}}},
        {"case_id": "a", "profile": {"spec": {"demographic": {"full_name": " Ana Reis "}}}},
        {"profile": '{"spec": {"demographic": {"full_name": "Ana Reis"}}}'},
        {"spec": '{"demographic": {"full_name": "Ana Reis"}}'},
    ],
)
def test_the_full_name_is_found(profile):
    assert find_full_name(profile) == "Ana Reis"


@pytest.mark.parametrize(
    "profile", [{}, {"spec": None}, {"spec": {"demographic": {"full_name": " "}}}, {"full_name": "Ana"}, {"x": "{bad"}]
)
def test_a_profile_without_full_name_gives_none(profile):
    assert find_full_name(profile) is None
