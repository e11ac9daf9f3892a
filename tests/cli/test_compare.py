"""``pace-dspy compare``: differences by hand, and what it refuses."""

import json

import pytest
from run_folder import UNDECIDED, answered, make_run


def rows(*decisions, label):
    """One request a decision, two personas in turn."""
    made = [answered(n, label, case=f"p{n % 2}", decision=decision) for n, decision in enumerate(decisions)]
    return [{**row, **(UNDECIDED if row["decision"] is None else {})} for row in made]


@pytest.fixture
def two(tmp_path):
    """Before: one of four conflicts found; after: three, one of them undecided before."""
    before = rows("conflict", "non_conflict", "non_conflict", None, label="conflict")
    after = rows("conflict", "conflict", "non_conflict", "conflict", label="conflict")
    for name, made in (("before", before), ("after", after)):
        make_run(tmp_path / name, made).close()
    return tmp_path / "before", tmp_path / "after"


def test_differences_by_hand(cli, two):
    code, out, _ = cli("compare", *two, "--json")
    assert code == 0
    (pair,) = json.loads(out)
    recall = pair["differences"]["conflict_recall"]
    # pairs: the three requests decided in both; right before 1 of 3, after 2 of 3
    assert (recall["n_pairs"], recall["value_b"], recall["value_a"]) == (3, pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert recall["difference"] == pytest.approx(1 / 3)
    assert recall["low"] <= recall["difference"] <= recall["high"]
    assert "over_refusal_rate" not in pair["differences"], "no request without a conflict: nothing to refuse wrongly"
    test = pair["decisions"]
    assert (test["both_right"], test["only_a"], test["only_b"], test["both_wrong"]) == (1, 1, 0, 1)


def test_the_table_is_readable(cli, two):
    code, out, _ = cli("compare", *two)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].endswith(f"against hybrid [before] ({two[0]}), 4 requests")
    assert lines[1].split() == ["before", "after", "difference", "95%", "interval", "p", "pairs"]
    (recall,) = [line for line in lines if line.startswith("Conflict recall")]
    assert recall.split()[2:5] == ["33.3", "66.7", "+33.3"]
    assert "only after 1, only before 0" in out


def test_one_run_and_other_requests_are_refused(cli, two, tmp_path):
    code, _, err = cli("compare", two[0])
    assert (code, err.count("\n")) == (2, 1)
    assert "two run folders or more are compared, received 1" in err
    make_run(tmp_path / "short", rows("conflict", label="conflict")).close()
    code, _, err = cli("compare", two[0], tmp_path / "short")
    assert (code, err.count("\n")) == (2, 1)
    assert "pass --intersect" in err
    code, out, _ = cli("compare", two[0], tmp_path / "short", "--intersect")
    assert code == 0
    assert "1 requests" in out
