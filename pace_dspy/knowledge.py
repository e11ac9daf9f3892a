"""Opening knowledge bases: build or load the on-disk index of a persona or of a user's own facts, and register it."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import platformdirs

from pace_dspy.errors import ConfigError
from pace_dspy.retrieval import (
    CachedEmbedder,
    Embedder,
    KbIndex,
    LiveKb,
    check_kb_id,
    index_dir,
    load_or_build,
    register_kb,
    register_live_kb,
)
from pace_dspy.retrieval.embedding_cache import CACHE_FOLDER
from pace_dspy.retrieval.layout import MANIFEST, check_folder, root_of
from pace_dspy.text import broken_character, is_blank
from pace_dspy.types import Case, Fact

INDEX_ENV = "PACE_INDEX_DIR"
MAX_KB_ID_CHARS = 100
"""Longest ``kb_id`` made from a file's name (ours)."""
_WORKERS = 4


def default_index_dir() -> Path:
    """Return ``$PACE_INDEX_DIR``, or the user's cache folder for indexes.

    Raises:
        ConfigError: The variable names a file.
    """
    override = os.environ.get(INDEX_ENV)
    if override:
        return check_folder(Path(override), INDEX_ENV)
    return Path(platformdirs.user_cache_dir("pace_dspy")) / "indexes"


def cached(embedder: Embedder) -> Embedder:
    """Return the embedder with the user's cache of vectors before it: no text is embedded twice for any KB.

    The cache lies beside the indexes (``$PACE_INDEX_DIR`` or the user's cache folder), wherever an index is stored.
    """
    if isinstance(embedder, CachedEmbedder):
        return embedder
    return CachedEmbedder(embedder, default_index_dir() / CACHE_FOLDER)


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
        ConfigError: ``kb_id`` may not become part of a path, or is in use for other facts; or ``folder`` is a file.
    """
    place = _place(folder)
    index = load_or_build(place, kb_id, facts, cached(embedder), graph_k=graph_k, progress=progress)
    return register_kb(index, replace=True)


def open_live_kb(
    kb_id: str,
    embedder: Embedder,
    *,
    folder: Path | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> LiveKb:
    """Open a stored knowledge base for changes and register it: each request then finds its newest facts.

    Args:
        kb_id: Name of the knowledge base; its index must be stored (`open_kb`).
        embedder: The one that built it.
        folder: Where indexes are kept; the user's cache folder by default.
        on_wait: Told, in one sentence, when another process is waited for.

    Raises:
        FileNotFoundError: No index of this knowledge base is stored.
        IndexMismatchError: It was made by another embedder or version, or is damaged.
        ConfigError: ``kb_id`` may not become part of a path, or ``folder`` is a file.
    """
    live = LiveKb(_place(folder), kb_id, cached(embedder), on_wait=on_wait)
    register_live_kb(live, replace=True)
    return live


def find_stored(kb: str, folder: Path | None = None) -> tuple[Path, str]:
    """Return root folder and ``kb_id`` of what a user calls a knowledge base.

    Args:
        kb: Its id, the folder of its index, or the file of facts that it was made from (its name is the id).
        folder: Where indexes are kept; the user's cache folder by default. Not used when ``kb`` is an index's folder.

    Raises:
        ConfigError: It may not become part of a path, or ``folder`` is a file.
    """
    path = Path(kb)
    if (path / MANIFEST).is_file():
        place = path.absolute()
        if index_dir(root_of(place), place.name) != place:
            raise ConfigError(f"{place} was moved out of its folder of indexes; give that folder and the kb_id")
        return root_of(place), place.name
    return _place(folder), check_kb_id(kb_id_of(path) if path.is_file() else kb)


def _place(folder: Path | None) -> Path:
    return check_folder(folder, "--index") if folder else default_index_dir()


def kb_id_of(path: Path) -> str:
    """Return the ``kb_id`` of a user's own file of facts: its name, other characters than ids may have as ``-``."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)[:MAX_KB_ID_CHARS]
    return name if name.strip(".-") else "facts"


def new_fact(text: str, date: dt.date | None = None, doc_id: str | None = None) -> Fact:
    """Return a fact; without an id it gets the one that `pace_dspy.data.load_kb` gives the same text and date."""
    if is_blank(text):
        raise ConfigError("the fact has an empty text. Write the fact, or leave it out")
    for name, given in (("text", text), ("doc_id", doc_id or "")):
        if problem := broken_character(given):
            raise ConfigError(f"{name} {given[:80]!r}: {problem}. Type it in UTF-8")
    text = " ".join(text.split())
    made = hashlib.sha256(f"{date or ''}|{text}".encode("utf-8", errors="surrogatepass")).hexdigest()[:12]
    return Fact(doc_id or f"fact-{made}", text, date)


def open_cases(
    cases: Iterable[Case],
    embedder: Embedder,
    *,
    folder: Path | None = None,
    graph_k: int = 10,
    on_case: Callable[[Case], None] | None = None,
) -> dict[str, str]:
    """Open the knowledge base of every case, several at a time.

    Args:
        cases: The cases.
        embedder: See `open_kb`.
        folder: See `open_kb`.
        graph_k: See `open_kb`.
        on_case: Called from this thread after each case, in order.

    Returns:
        ``case_id`` -> ``kb_id``; one index a case, so that nobody's facts are ever searched for somebody else.
    """
    listed, embedder = list(cases), cached(embedder)

    def open_one(case: Case) -> str:
        return open_kb(case.case_id, case.facts, embedder, folder=folder, graph_k=graph_k).kb_id

    opened = {}
    with ThreadPoolExecutor(min(_WORKERS, os.cpu_count() or 1)) as pool:
        for case, kb_id in zip(listed, pool.map(open_one, listed), strict=True):
            opened[case.case_id] = kb_id
            if on_case is not None:
                on_case(case)
    return opened
