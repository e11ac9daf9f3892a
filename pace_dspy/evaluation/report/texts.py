"""Texts of requests and facts, from the data a run names; rows hold ids only. Shown only when the hash agrees. Ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pace_dspy.data import load_mini_split, load_pace, select_split
from pace_dspy.data.hub import HUB_REPO
from pace_dspy.data.schema import content_hash
from pace_dspy.data.splits import PARTS
from pace_dspy.evaluation.report.runs import ReportRun
from pace_dspy.evaluation.scores import Key
from pace_dspy.types import Dataset, Request


@dataclass(frozen=True)
class Texts:
    """What the report knows beside the rows.

    Attributes:
        facts: Text by ``(case_id, doc_id)``; empty when the data is not at hand.
        requests: Request by ``(case_id, query_id)``.
        personas: Name by ``case_id``.
        missing: Why there are no texts, ``None`` when there are.
    """

    facts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    requests: Mapping[Key, Request] = field(default_factory=dict)
    personas: Mapping[str, str] = field(default_factory=dict)
    missing: str | None = None


def load_texts(runs: Sequence[ReportRun], data: str | None = None) -> Texts:
    """Load the data that the runs name.

    Args:
        runs: Runs of the same data.
        data: Where the data is: anything `load_pace` takes. Without it ``mini`` is found in the package and PACE in
            the hub's cache; nothing is downloaded.

    Returns:
        The texts, or none and the reason.

    Raises:
        DataError: ``data`` was given and cannot be loaded.
    """
    name = runs[0].data_name
    source = data or _at_hand(name)
    if source is None:
        return Texts(missing=f"the data {name!r} is not at hand; name its folder with --data to see the texts")
    dataset = load_pace(source)
    odd = next((run for run in runs if run.manifest.dataset_hash not in _hashes(dataset, run, runs)), None)
    if odd is not None:
        return Texts(
            missing=f"the data in {source} has hash {dataset.content_hash[:12]}, run {odd.name} was made on "
            f"{odd.manifest.dataset} with hash {odd.manifest.dataset_hash[:12]}, so its texts would mislead"
        )
    return Texts(
        {(case.case_id, fact.doc_id): fact.text for case in dataset.cases for fact in case.facts},
        {(request.case_id, request.query_id): request for request in dataset.requests},
        {case.case_id: case.persona for case in dataset.cases if case.persona},
    )


def _at_hand(name: str) -> str | None:
    if name == "mini":
        return name
    return _cached_pace() if name == "pace" else None


def _cached_pace() -> str | None:
    """Return the folder of PACE in the hub's cache; never asks the network."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        return None
    try:
        folder = huggingface_hub.snapshot_download(HUB_REPO, repo_type="dataset", local_files_only=True)
    except (errors.LocalEntryNotFoundError, OSError):
        return None
    return str(Path(folder))


def _hashes(dataset: Dataset, run: ReportRun, runs: Sequence[ReportRun]) -> set[str]:
    """Return the hashes this data may have in a manifest: the whole, the part that was run, the cases that occur."""
    hashes = {dataset.content_hash}
    part = next((part for part in PARTS if part == run.manifest.part), None)
    if part is None:
        return hashes
    if dataset.name == "mini":
        hashes.add(select_split(dataset, load_mini_split(dataset), part).content_hash)
    asked = {row["case_id"] for one in runs if one.manifest.part == part for row in one.rows}
    hashes.add(content_hash(tuple(case for case in dataset.cases if case.case_id in asked)))
    return hashes
