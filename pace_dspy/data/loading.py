"""`load_pace`: one entry for every form of PACE data, with the same records from each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from pace_dspy.data.json_release import list_cases, read_json_release
from pace_dspy.data.parquet import read_parquet
from pace_dspy.data.records import RawCase, build_dataset
from pace_dspy.data.sources import find_source
from pace_dspy.errors import ConfigError
from pace_dspy.types import Dataset


def load_pace(source: str | Path, *, cases: Collection[str] | None = None, name: str | None = None) -> Dataset:
    """Load PACE data and check every row of it.

    Args:
        source: ``"mini"`` (shipped with the package), ``"p2chp2t/pace"`` (downloaded from the Hugging Face hub),
            a local folder of the three parquet files (directly or in ``data``), or a JSON folder release.
        cases: Load only these case ids.
        name: Name of the dataset in runs and reports; default: ``mini``, ``pace``, or the folder's name.

    Returns:
        The cases sorted by id. Equal data gives equal records and an equal hash from every form. A missing
        situation type or persona name stays ``None`` and gives one `DataWarning`.

    Raises:
        DataError: The folder or any row is refused; the message has file, row, field, value and remedy.
        ConfigError: ``cases`` names a case that is not there, or none.
        MissingExtraError: The hub is asked for without the extra ``hub``.
        DataDownloadError: The hub cannot be reached.

    Paper: PACE release.
    """
    wanted = None if cases is None else frozenset([cases] if isinstance(cases, str) else cases)
    place = find_source(source)
    raw_cases: Iterable[RawCase]
    if place.kind == "parquet":
        raw_cases, available = read_parquet(place.folder, wanted)
    else:
        available = list_cases(place.folder / "kb")
        raw_cases = read_json_release(place.folder / "kb", place.folder / "profile", wanted)
    if wanted is not None:
        _check_wanted(wanted, available)
    return build_dataset(name or place.name, raw_cases, source=str(place.folder))


def _check_wanted(wanted: frozenset[str], available: list[str]) -> None:
    unknown = sorted(wanted.difference(available))
    if wanted and not unknown:
        return
    shown = ", ".join(available[:20]) + (f" and {len(available) - 20} more" if len(available) > 20 else "")
    problem = f"no case {', '.join(map(repr, unknown))}" if unknown else "cases is empty"
    raise ConfigError(f"{problem}; the data has: {shown}. Name one or more of these, or leave cases out")
