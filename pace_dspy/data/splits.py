"""Splits by persona: train, dev and test never share a case. Ours: PACE has one split only."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pace_dspy.data.schema import content_hash
from pace_dspy.data.sources import mini_path
from pace_dspy.errors import ConfigError, DataError
from pace_dspy.paths import as_path, write_file
from pace_dspy.types import LABELS, SITUATION_TYPES, Dataset

Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = get_args(Part)

DEFAULT_RATIOS: tuple[float, float, float] = (0.4, 0.2, 0.4)
"""Shares of train, dev, test, as in the shipped dataset. Ours."""

_FORMAT = "pace-dspy split 1"
_N_TRIALS = 300


@dataclass(frozen=True)
class Split:
    """Which persona is on which side.

    Attributes:
        train: Case ids that optimizers learn from.
        dev: Case ids that optimizers choose by.
        test: Case ids that numbers come from, and nothing else.
        seed: Seed of the draw, ``None`` for a split fixed by hand.
        data: Name of the dataset.
        data_hash: Content hash of the whole dataset that was split.
    """

    train: tuple[str, ...]
    dev: tuple[str, ...]
    test: tuple[str, ...]
    seed: int | None
    data: str
    data_hash: str

    def part(self, part: Part) -> tuple[str, ...]:
        """Return the case ids of one side.

        Raises:
            ConfigError: ``part`` is none of train, dev, test.
        """
        if part not in PARTS:
            raise ConfigError(f"unknown split part {part!r}; allowed: {', '.join(PARTS)}")
        ids: tuple[str, ...] = getattr(self, part)
        return ids


def make_split(dataset: Dataset, *, seed: int = 0, ratios: Sequence[float] = DEFAULT_RATIOS) -> Split:
    """Split a dataset by persona, stratified by label and situation type.

    Of several hundred seeded draws the one is kept whose parts have, of every (label, situation type), a share
    nearest to their share of the requests. The same cases, seed and ratios give the same split on any machine,
    whatever the order of the cases.

    Args:
        dataset: What to split.
        seed: Seed of the draws.
        ratios: Shares of the cases in train, dev and test; each >= 0, sum 1. A share above 0 gets a case at least.

    Returns:
        The split, each part sorted by case_id.

    Raises:
        ConfigError: The ratios are not three shares that sum to 1.
        DataError: There are fewer cases than parts to fill.
    """
    if len(ratios) != len(PARTS) or any(not 0 <= ratio <= 1 for ratio in ratios) or abs(sum(ratios) - 1) > 1e-6:
        raise ConfigError(f"ratios {tuple(ratios)} must be three shares (train, dev, test) from 0 to 1 that sum to 1")
    case_ids = sorted(case.case_id for case in dataset.cases)
    sizes = _sizes(len(case_ids), ratios)
    counts = _strata(dataset, case_ids)
    generator = random.Random(seed)
    order, best, best_gap = list(range(len(case_ids))), list(range(len(case_ids))), float("inf")
    for _ in range(_N_TRIALS):
        generator.shuffle(order)
        gap = _gap(counts[order], sizes)
        if gap < best_gap - 1e-12:
            best, best_gap = order.copy(), gap
    ends = np.cumsum(sizes)
    parts = [best[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    train, dev, test = (tuple(sorted(case_ids[position] for position in part)) for part in parts)
    return Split(train, dev, test, seed=seed, data=dataset.name, data_hash=dataset.content_hash)


def fixed_split(dataset: Dataset, *, train: Iterable[str], dev: Iterable[str], test: Iterable[str]) -> Split:
    """Make a split chosen by hand.

    Args:
        dataset: What is split.
        train: Case ids of train.
        dev: Case ids of dev.
        test: Case ids of test.

    Raises:
        DataError: A case is on two sides or not in the data.
    """
    split = Split(tuple(train), tuple(dev), tuple(test), None, dataset.name, dataset.content_hash)
    _check(split, dataset, file=None)
    return split


def save_split(split: Split, path: str | Path) -> None:
    """Write a split as JSON, first under a temporary name.

    Args:
        split: The split.
        path: The file; its folder is made when missing.

    Raises:
        ConfigError: It is no regular file (a folder, a device), or cannot be written.
    """
    content = json.dumps({"format": _FORMAT, **asdict(split)}, indent=2) + "\n"
    write_file(as_path(path, "the split file"), content, "split file")


def load_split(path: str | Path, dataset: Dataset) -> Split:
    """Read a split and check that it belongs to this dataset.

    Args:
        path: A file written by `save_split`.
        dataset: The whole dataset that it splits.

    Raises:
        DataError: The file is missing, unreadable or incomplete, was made for other data (content hash), puts a
            case on two sides, or names a case that is not in the data.
    """
    file = str(path)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            "no such split file", file=file, remedy="Make one: pace-dspy data split PATH --out FILE"
        ) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"unreadable split file ({error})", file=file, remedy="Make it again") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise DataError("not a split file", file=file, field="format", remedy=f"It must say {_FORMAT!r}; make it again")
    for name in ("data", "data_hash"):
        if not isinstance(content.get(name), str):
            raise DataError(
                "missing or not text", file=file, field=name, value=content.get(name), remedy="Make it again"
            )
    for part in PARTS:
        ids = content.get(part)
        if not isinstance(ids, list) or not all(isinstance(case_id, str) for case_id in ids):
            raise DataError("must be a list of case ids", file=file, field=part, value=ids, remedy="Make it again")
    seed = content.get("seed")
    if seed is not None and not isinstance(seed, int):
        raise DataError("must be a whole number or null", file=file, field="seed", value=seed, remedy="Make it again")
    train, dev, test = (tuple(content[part]) for part in PARTS)
    split = Split(train, dev, test, seed=seed, data=content["data"], data_hash=content["data_hash"])
    _check(split, dataset, file=file)
    return split


def load_mini_split(dataset: Dataset) -> Split:
    """Read the fixed split of the shipped dataset.

    Args:
        dataset: ``load_pace("mini")``.

    Raises:
        DataError: As `load_split`.
    """
    return load_split(mini_path() / "split.json", dataset)


def select_split(dataset: Dataset, split: Split, part: Part) -> Dataset:
    """Return the cases of one side, in data order.

    Args:
        dataset: The dataset that was split.
        split: The split.
        part: ``"train"``, ``"dev"`` or ``"test"``.

    Returns:
        A dataset named ``<name>/<part>`` with a content hash of its own.

    Raises:
        ConfigError: ``part`` is unknown.
        DataError: The split is of other data.
    """
    wanted = set(split.part(part))
    _check(split, dataset, file=None)
    cases = tuple(case for case in dataset.cases if case.case_id in wanted)
    return Dataset(name=f"{dataset.name}/{part}", cases=cases, content_hash=content_hash(cases))


def _check(split: Split, dataset: Dataset, *, file: str | None) -> None:
    if split.data_hash != dataset.content_hash:
        raise DataError(
            f"the split was made for other data (hash {split.data_hash[:12]}, this data has "
            f"{dataset.content_hash[:12]})",
            file=file,
            field="data_hash",
            remedy=f"Load all of {split.data!r} as it was, or make a new split",
        )
    known = {case.case_id for case in dataset.cases}
    side: dict[str, str] = {}
    for part in PARTS:
        for case_id in split.part(part):
            if case_id not in known:
                remedy = f"The data has: {', '.join(sorted(known)[:20])}"
                raise DataError("unknown case", file=file, field=part, value=case_id, remedy=remedy)
            if case_id in side:
                problem, remedy = f"the case is in {side[case_id]} already", "Put every case on one side"
                raise DataError(problem, file=file, field=part, value=case_id, remedy=remedy)
            side[case_id] = part


def _sizes(n_cases: int, ratios: Sequence[float]) -> list[int]:
    """Return the number of cases in each part: largest remainders, and one at least where a share is asked for."""
    floor = [int(ratio > 0) for ratio in ratios]
    if n_cases < sum(floor):
        raise DataError(
            f"{n_cases} cases cannot fill {sum(floor)} parts, as no persona may be on two sides",
            remedy="Use data with more cases, or set a ratio to 0",
        )
    sizes = [max(low, int(ratio * n_cases + 1e-9)) for low, ratio in zip(floor, ratios, strict=True)]
    while sum(sizes) != n_cases:
        step = 1 if sum(sizes) < n_cases else -1
        movable = [part for part in range(len(sizes)) if floor[part] and (step > 0 or sizes[part] > 1)]
        chosen = max(movable, key=lambda part: step * (ratios[part] * n_cases - sizes[part]))
        sizes[chosen] += step
    return sizes


def _strata(dataset: Dataset, case_ids: Sequence[str]) -> npt.NDArray[np.float64]:
    """Count the requests of each (label, situation type); (n_cases, n_strata) float64."""
    strata = [(label, kind) for label in (*LABELS, None) for kind in (*SITUATION_TYPES, None)]
    by_id = {case.case_id: case for case in dataset.cases}
    tables = [Counter((r.label, r.situation_type) for r in by_id[case_id].requests) for case_id in case_ids]
    return np.array([[table[stratum] for stratum in strata] for table in tables], dtype=np.float64)


def _gap(counts: npt.NDArray[np.float64], sizes: Sequence[int]) -> float:
    """Return how far the parts are from the overall mix, lower is better; ``counts`` in the order of the draw."""
    overall = counts.sum(axis=0) / max(1.0, counts.sum())
    gap, start = 0.0, 0
    for size in sizes:
        part = counts[start : start + size].sum(axis=0)
        start += size
        if part.sum():
            gap += float(np.square(part / part.sum() - overall).sum())
    return gap
