"""The paper's numbers, as printed (percent), matched to a run by method and config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

MAIN_ROWS: Mapping[str, str] = {"sparse": "sparse", "dense": "dense", "full-kb": "full_kb", "oracle": "oracle"}
"""Our baseline -> its row in the paper's main table."""

ABLATION_ROWS: Mapping[str, str] = {
    "no-multi-hop": "without_multi_hop",
    "no-planning": "without_planning",
    "no-selection": "without_evidence_selection",
}
"""Our config of method ``pacemaker`` -> its row in the paper's ablation. The others have no published number."""


@dataclass(frozen=True)
class PaperRow:
    """One published row.

    Attributes:
        title: The language model behind it.
        values: Percent by metric: ``recall@5``, ``mrr``, ``pass``, ``conflict_pass``, ...; only what is published.
    """

    title: str
    values: Mapping[str, float]


@cache
def paper_results() -> dict[str, Any]:
    """Return the published numbers that ship with the package."""
    text = resources.files("pace_dspy.evaluation").joinpath("paper_results.json").read_text(encoding="utf-8")
    results: dict[str, Any] = json.loads(text)
    return results


def paper_rows(method: str, config: str) -> tuple[PaperRow, ...]:
    """Return the published rows of a method, one a language model; empty when there are none.

    Args:
        method: Our method.
        config: Name of its config.

    Paper: main table; ablation.
    """
    results = paper_results()
    if method == "pacemaker" and config in ABLATION_ROWS:
        model = results["main_table"]["gpt"]["lm"]
        return (PaperRow(model, _numbers(results["ablation_gpt"][ABLATION_ROWS[config]])),)
    row = "pacemaker" if (method, config) == ("pacemaker", "paper") else MAIN_ROWS.get(method)
    tables = results["main_table"].values()
    return tuple(PaperRow(table["lm"], _numbers(table[row])) for table in tables if row in table)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in row.items() if isinstance(value, int | float)}
