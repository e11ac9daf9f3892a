import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pace_dspy.errors import DataError
from pace_dspy.evaluation.agreement import agreement, compare_raters, read_human_labels
from pace_dspy.types import LABELS


def test_kappa_by_hand():
    # 20 both PASS, 15 both FAIL, 5 PASS/FAIL, 10 FAIL/PASS of 50: raw 35/50 = 0.7. First says PASS 25/50, second
    # 30/50: chance 0.5*0.6 + 0.5*0.4 = 0.5. kappa = (0.7 - 0.5) / (1 - 0.5) = 0.4.
    first = ["PASS"] * 20 + ["PASS"] * 5 + ["FAIL"] * 10 + ["FAIL"] * 15
    second = ["PASS"] * 20 + ["FAIL"] * 5 + ["PASS"] * 10 + ["FAIL"] * 15
    result = agreement(first, second)
    assert (result.n, result.raw) == (50, 0.7)
    assert result.kappa == pytest.approx(0.4)
    assert result.by_label == {"FAIL": 15 / 20, "PASS": 20 / 30}
    assert result.confusion[("PASS", "FAIL")] == 5
    assert json.loads(json.dumps(result.to_dict()))["confusion"]["PASS|FAIL"] == 5


def test_kappa_is_undefined_without_items_and_with_one_label_throughout():
    assert (agreement([], []).raw, agreement([], []).kappa) == (None, None)
    constant = agreement(["PASS"] * 3, ["PASS"] * 3)
    assert (constant.raw, constant.kappa) == (1.0, None)


def test_lists_of_different_length_are_refused():
    with pytest.raises(ValueError, match="2 labels but 1 of the other rater"):
        agreement(["PASS", "FAIL"], ["PASS"])


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("xyz")), min_size=1))
def test_kappa_invariants(pairs):
    first, second = [one for one, _ in pairs], [two for _, two in pairs]
    result, swapped = agreement(first, second), agreement(second, first)
    assert (result.raw, result.kappa) == (swapped.raw, swapped.kappa)
    if result.kappa is not None:
        assert -1 <= result.kappa <= result.raw
    same = agreement(first, first)
    assert same.raw == 1.0
    assert same.kappa == (1.0 if len(set(first)) > 1 else None)


def test_raters_are_compared_on_the_items_both_rated():
    judge = {("c", "q1"): "PASS", ("c", "q2"): "FAIL", ("c", "q3"): None, ("c", "q4"): "PASS"}
    human = {("c", "q1"): "PASS", ("c", "q2"): "PASS", ("c", "q3"): "FAIL"}
    result = compare_raters(judge, human)
    assert (result.agreement.n, result.agreement.raw) == (2, 0.5)
    assert (result.n_only_first, result.n_only_second) == (1, 1)  # q4; q3, where the judge failed


def write(tmp_path, text):
    path = tmp_path / "human.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_human_labels_are_read(tmp_path):
    path = write(tmp_path, "\ufeffnote, verdict ,case_id,query_id\nfine,wrong rationale,c1,q1\n,Pass,c1,q2\n")
    assert read_human_labels(path) == {("c1", "q1"): "WRONG_RATIONALE", ("c1", "q2"): "PASS"}
    gold = write(tmp_path, "case_id,query_id,verdict\nc1,q1,Non-Conflict\n")
    assert read_human_labels(gold, LABELS) == {("c1", "q1"): "non_conflict"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "case_id,query_id\nc,q\n",
            r"human\.csv, row 1, field 'verdict': required column is missing.*case_id, query_id",
        ),
        ("", r"row 1, field 'case_id': required column is missing.*it holds nothing"),
        ("case_id,query_id,verdict\n", r"human\.csv: no labels in the file"),
        ("case_id,query_id,verdict\nc,q1,PASS\nc,,PASS\n", r"row 3, field 'query_id': empty value"),
        ("case_id,query_id,verdict\nc,q1\n", r"row 2, field 'verdict': empty value"),
        (
            "case_id,query_id,verdict\nc,q1,OK\n",
            r"row 2, field 'verdict', value 'OK': unknown verdict\. Allowed: PASS, WRONG_RATIONALE, FAIL",
        ),
        (
            "case_id,query_id,verdict\nc,q1,PASS\nc,q1,FAIL\n",
            r"row 3, field 'query_id', value 'c/q1': .*labelled twice",
        ),
    ],
)
def test_bad_files_are_refused_with_place_and_remedy(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_human_labels(write(tmp_path, text))


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.csv: cannot be read \(No such file or directory\)"):
        read_human_labels(tmp_path / "nothing.csv")
    path = tmp_path / "human.csv"
    path.write_bytes(b"case_id,query_id,verdict\n\xff\xfe,q,PASS\n")
    with pytest.raises(DataError, match="is not CSV in UTF-8"):
        read_human_labels(path)
