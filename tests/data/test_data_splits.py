import dataclasses
import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace_files import persona, write_json

from pace_dspy.data import Split, fixed_split, load_pace, load_split, make_split, save_split, select_split
from pace_dspy.data.schema import content_hash
from pace_dspy.errors import ConfigError, DataError
from pace_dspy.types import LABELS, SITUATION_TYPES, Case, Dataset, Fact, Request


def make_dataset(n_cases, seed=0):
    """Cases of unequal size and mix; every fourth has conflicts only."""
    draw = random.Random(seed)
    cases = []
    for number in range(n_cases):
        case_id = f"c{number:02d}"
        requests = tuple(
            Request(
                case_id,
                f"q{i}",
                "Ask.",
                None,
                label="conflict" if number % 4 == 0 else draw.choice(LABELS),
                situation_type=draw.choice(SITUATION_TYPES),
            )
            for i in range(draw.randint(3, 9))
        )
        cases.append(Case(case_id, None, None, None, None, (Fact("f", "A fact."),), requests))
    return Dataset("made", tuple(cases), content_hash(cases))


@settings(max_examples=25, deadline=None)
@given(
    n_cases=st.integers(3, 25),
    seed=st.integers(0, 2**31),
    shares=st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 5)),
)
def test_every_case_is_on_exactly_one_side_and_no_asked_side_is_empty(n_cases, seed, shares):
    dataset = make_dataset(n_cases)
    ratios = [share / sum(shares) for share in shares]
    split = make_split(dataset, seed=seed, ratios=ratios)
    everywhere = [*split.train, *split.dev, *split.test]
    assert sorted(everywhere) == [case.case_id for case in dataset.cases]
    for part, ratio in zip((split.train, split.dev, split.test), ratios, strict=True):
        assert bool(part) == (ratio > 0)
        assert abs(len(part) - ratio * n_cases) < 3


def test_the_same_seed_gives_the_same_split_whatever_the_order_of_cases():
    dataset = make_dataset(12)
    turned = dataclasses.replace(dataset, cases=dataset.cases[::-1])
    assert make_split(dataset, seed=5) == make_split(dataset, seed=5)
    assert make_split(turned, seed=5) == make_split(dataset, seed=5)
    assert len({make_split(dataset, seed=seed) for seed in range(5)}) > 1


def test_this_split_stays_the_same_on_every_machine():
    split = make_split(make_dataset(10), seed=1, ratios=(0.5, 0.2, 0.3))
    assert split.train == ("c00", "c02", "c03", "c08", "c09")
    assert split.dev == ("c04", "c05")
    assert split.test == ("c01", "c06", "c07")


def test_parts_have_the_mix_of_the_whole():
    dataset = make_dataset(40)

    def shares(requests):
        counts = Counter((request.label, request.situation_type) for request in requests)
        return {(label, kind): counts[label, kind] / counts.total() for label in LABELS for kind in SITUATION_TYPES}

    whole = shares(dataset.requests)
    split = make_split(dataset, seed=3)
    for part in ("train", "dev", "test"):
        mix = shares(select_split(dataset, split, part).requests)
        assert max(abs(mix[stratum] - whole[stratum]) for stratum in whole) < 0.08


def test_sizes_follow_the_largest_remainder():
    split = make_split(make_dataset(9), ratios=(1 / 3, 2 / 9, 4 / 9))
    assert [len(split.train), len(split.dev), len(split.test)] == [3, 2, 4]


@pytest.mark.parametrize("ratios", [(0.5, 0.5), (0.5, 0.4, 0.2), (1.2, -0.2, 0.0), (0.3, 0.3, 0.3)])
def test_bad_ratios_are_refused(ratios):
    with pytest.raises(ConfigError, match=r"must be three shares \(train, dev, test\) from 0 to 1 that sum to 1"):
        make_split(make_dataset(5), ratios=ratios)


def test_too_few_cases_are_refused():
    with pytest.raises(DataError, match="2 cases cannot fill 3 parts, as no persona may be on two sides"):
        make_split(make_dataset(2))


def test_selected_cases_keep_data_order_and_get_their_own_hash(tmp_path):
    dataset = load_pace(write_json(tmp_path, persona("a"), persona("b"), persona("c")), name="x")
    split = fixed_split(dataset, train=["c", "a"], dev=["b"], test=[])
    train = select_split(dataset, split, "train")
    assert (train.name, [case.case_id for case in train.cases]) == ("x/train", ["a", "c"])
    assert train.content_hash == load_pace(tmp_path, cases=["a", "c"]).content_hash
    assert select_split(dataset, split, "test").cases == ()
    with pytest.raises(ConfigError, match="unknown split part 'val'; allowed: train, dev, test"):
        select_split(dataset, split, "val")
    with pytest.raises(DataError, match="the split was made for other data"):
        select_split(train, split, "train")


def test_a_saved_split_is_read_back(tmp_path):
    dataset = make_dataset(8)
    for split in (make_split(dataset, seed=4), fixed_split(dataset, train=["c01"], dev=[], test=["c00"])):
        save_split(split, tmp_path / "new" / "split.json")
        assert load_split(tmp_path / "new" / "split.json", dataset) == split
    content = json.loads((tmp_path / "new" / "split.json").read_text())
    assert content["data_hash"] == dataset.content_hash
    assert content["train"] == ["c01"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["split.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data_hash": "0" * 64},
            r"field 'data_hash': the split was made for other data \(hash 000000000000, this data",
        ),
        ({"dev": ["c00"]}, r"field 'dev', value 'c00': the case is in train already\. Put every case on one side"),
        ({"test": ["zz"]}, r"field 'test', value 'zz': unknown case\. The data has: c00, c01"),
        ({"train": "c00"}, r"field 'train', value 'c00': must be a list of case ids"),
        ({"train": [1]}, r"field 'train', value \[1\]: must be a list of case ids"),
        ({"dev": None}, r"field 'dev': must be a list of case ids"),
        ({"seed": "x"}, r"field 'seed', value 'x': must be a whole number or null"),
        ({"data": None}, r"field 'data': missing or not text"),
        ({"format": "other"}, r"field 'format': not a split file"),
    ],
)
def test_a_bad_split_file_is_refused(tmp_path, change, message):
    dataset, path = make_dataset(4), tmp_path / "split.json"
    save_split(Split(("c00",), ("c01",), ("c02", "c03"), 0, "made", dataset.content_hash), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=message) as caught:
        load_split(path, dataset)
    assert caught.value.file == str(path)


def test_missing_and_unreadable_split_files_are_refused(tmp_path):
    dataset = make_dataset(4)
    with pytest.raises(DataError, match=r"no such split file\. Make one: pace-dspy data split PATH --out FILE"):
        load_split(tmp_path / "none.json", dataset)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match="unreadable split file"):
        load_split(tmp_path / "bad.json", dataset)


def test_a_hand_made_split_is_checked():
    dataset = make_dataset(3)
    with pytest.raises(DataError, match="value 'c00': the case is in train already"):
        fixed_split(dataset, train=["c00"], dev=["c00"], test=[])
    with pytest.raises(DataError, match="value 'zz': unknown case"):
        fixed_split(dataset, train=["zz"], dev=[], test=[])
