"""Agreement of two raters: raw, Cohen's kappa, per label; and human labels read from CSV. Paper: judge validation."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pace_dspy.errors import ConfigError, DataError
from pace_dspy.evaluation.scores import VERDICTS, Key, ratio

HUMAN_COLUMNS: tuple[str, ...] = ("case_id", "query_id", "verdict")
"""Columns a file of human labels must have; others are ignored."""


@dataclass(frozen=True)
class Agreement:
    """How often two raters say the same.

    Attributes:
        n: Items both rated.
        raw: Share of equal labels, in [0, 1]; ``None`` without items.
        kappa: Cohen's kappa, in [-1, 1], 0 is chance; ``None`` without items, or where both raters used one and the
            same label throughout (chance agreement is 1, kappa is undefined).
        by_label: Of the items the second rater gave a label, the share the first gave it too, in [0, 1].
        confusion: Items by ``(label of the first, label of the second)``.
    """

    n: int
    raw: float | None
    kappa: float | None
    by_label: Mapping[str, float | None]
    confusion: Mapping[tuple[str, str], int]

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready dictionary; confusion keys become ``"first|second"``."""
        return {**vars(self), "confusion": {"|".join(pair): count for pair, count in self.confusion.items()}}


@dataclass(frozen=True)
class RaterComparison:
    """Agreement of two raters over the items both rated, with those only one rated beside it.

    Attributes:
        agreement: Over the items both rated; the second rater is the one compared with (the humans).
        n_only_first: Items only the first rated.
        n_only_second: Items only the second rated.
    """

    agreement: Agreement
    n_only_first: int
    n_only_second: int


def agreement(first: Sequence[str], second: Sequence[str]) -> Agreement:
    """Compare two lists of labels, item by item.

    Raises:
        ValueError: Different lengths.

    Source: Cohen 1960; kappa = (raw - chance) / (1 - chance), chance from the raters' own label shares.
    """
    if len(first) != len(second):
        raise ConfigError(f"{len(first)} labels but {len(second)} of the other rater; give one of each for each item")
    n = len(first)
    confusion = Counter(zip(first, second, strict=True))
    equal = sum(count for (one, other), count in confusion.items() if one == other)
    of_first, of_second = Counter(first), Counter(second)
    by_chance = sum(of_first[label] * of_second[label] for label in of_first)  # chance * n * n, in whole numbers
    kappa = ratio(equal * n - by_chance, n * n - by_chance)
    by_label = {label: ratio(confusion[label, label], of_second[label]) for label in sorted(of_second)}
    return Agreement(n, ratio(equal, n), kappa, by_label, dict(sorted(confusion.items())))


def compare_raters(first: Mapping[Key, str | None], second: Mapping[Key, str | None]) -> RaterComparison:
    """Compare two raters on the items both rated; ``None`` (a judge error) counts as not rated."""
    one = {key: label for key, label in first.items() if label is not None}
    other = {key: label for key, label in second.items() if label is not None}
    both = sorted(one.keys() & other.keys())
    result = agreement([one[key] for key in both], [other[key] for key in both])
    return RaterComparison(result, len(one) - len(both), len(other) - len(both))


def read_human_labels(path: str | Path, allowed: Sequence[str] = VERDICTS) -> dict[Key, str]:
    """Read human labels.

    Args:
        path: CSV in UTF-8 with a header and the columns ``case_id``, ``query_id``, ``verdict``.
        allowed: Labels, matched in any case and with ``-`` or space for ``_``: the judge's verdicts, or
            `pace_dspy.types.LABELS` to check gold labels.

    Returns:
        Label by request, spelled as in ``allowed``.

    Raises:
        DataError: No such file, not UTF-8, a missing column or value, an unknown label, or a request twice. ``row``
            counts lines of the file from 1, the header being line 1.
    """
    file = str(path)
    spelled = {_plain(label): label for label in allowed}
    labels: dict[Key, str] = {}
    for number, row in _rows(Path(path), file):
        for column in HUMAN_COLUMNS:
            if not (row.get(column) or "").strip():
                raise DataError("empty value", file=file, row=number, field=column, remedy="Fill it or drop the row")
        verdict = spelled.get(_plain(row["verdict"]))
        if verdict is None:
            remedy = f"Allowed: {', '.join(allowed)}"
            raise DataError(
                "unknown verdict", file=file, row=number, field="verdict", value=row["verdict"], remedy=remedy
            )
        key = (row["case_id"].strip(), row["query_id"].strip())
        if key in labels:
            raise DataError(
                "this request is labelled twice",
                file=file,
                row=number,
                field="query_id",
                value="/".join(key),
                remedy="Keep one row a request",
            )
        labels[key] = verdict
    if not labels:
        raise DataError("no labels in the file", file=file, remedy=f"Write one row a request: {_HEADER}")
    return labels


_HEADER = ",".join(HUMAN_COLUMNS)


def _rows(path: Path, file: str) -> list[tuple[int, dict[str, str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle, restval="")
            header = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in HUMAN_COLUMNS if name not in header]
            if missing:
                remedy = f"The first line must hold {_HEADER}; it holds {', '.join(header) or 'nothing'}"
                raise DataError("required column is missing", file=file, row=1, field=missing[0], remedy=remedy)
            reader.fieldnames = header
            return [(reader.line_num, row) for row in reader]
    except OSError as exc:
        raise DataError(
            f"cannot be read ({exc.strerror or exc})", file=file, remedy="Give an existing CSV file"
        ) from exc
    except (UnicodeDecodeError, csv.Error) as exc:
        raise DataError(f"is not CSV in UTF-8 ({exc})", file=file, remedy="Save it as CSV, UTF-8") from exc


def _plain(label: Hashable) -> str:
    return str(label).strip().lower().replace("-", "_").replace(" ", "_")
