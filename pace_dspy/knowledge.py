"""Opening knowledge bases: build or load the on-disk index of a persona or of a user's own facts, and register it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import platformdirs

from pace_dspy.retrieval import Embedder, KbIndex, load_or_build, register_kb
from pace_dspy.types import Case, Fact

INDEX_ENV = "PACE_INDEX_DIR"


def default_index_dir() -> Path:
    """Return ``$PACE_INDEX_DIR``, or the user's cache folder for indexes."""
    override = os.environ.get(INDEX_ENV)
    return Path(override) if override else Path(platformdirs.user_cache_dir("pace_dspy")) / "indexes"


def open_kb(
    kb_id: str,
    facts: Sequence[Fact],
    embedder: Embedder,
    *,
    folder: Path | None = None,
    graph_k: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> KbIndex:
    """Load the index of these facts, or build and store it; then register it under ``kb_id``.

    Args:
        kb_id: Name of the knowledge base.
        facts: Its facts, in order.
        embedder: Embeds facts and views.
        folder: Where indexes are kept; the user's cache folder by default.
        graph_k: Neighbours kept per fact.
        progress: Called with facts embedded and facts in all.

    Returns:
        The index; programs find it by ``kb_id``.

    Raises:
        ConfigError: ``kb_id`` may not become part of a path, or is in use for other facts.
    """
    place = folder or default_index_dir()
    index = load_or_build(place, kb_id, facts, embedder, graph_k=graph_k, progress=progress)
    return register_kb(index, replace=True)


def open_cases(
    cases: Iterable[Case],
    embedder: Embedder,
    *,
    folder: Path | None = None,
    graph_k: int = 10,
    on_case: Callable[[Case], None] | None = None,
) -> dict[str, str]:
    """Open the knowledge base of every case.

    Returns:
        ``case_id`` -> ``kb_id``; one index a case, so that nobody's facts are ever searched for somebody else.
    """
    opened = {}
    for case in cases:
        opened[case.case_id] = open_kb(case.case_id, case.facts, embedder, folder=folder, graph_k=graph_k).kb_id
        if on_case is not None:
            on_case(case)
    return opened
