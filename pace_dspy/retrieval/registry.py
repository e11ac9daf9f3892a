"""Where indexes live: one table for the process, outside every module tree, looked up by ``kb_id``."""

from __future__ import annotations

import threading
from typing import Protocol

from pace_dspy.errors import ConfigError
from pace_dspy.retrieval.kb import KbIndex
from pace_dspy.retrieval.store import KbStore


class Source(Protocol):
    """What can be registered: an index, or a `LiveKb`, whose newest index is handed out."""

    kb_id: str

    @property
    def snapshot(self) -> KbIndex:
        """The index to search now."""
        ...


_lock = threading.Lock()
_sources: dict[str, Source] = {}
_stores: list[KbStore] = []


def register(index: KbIndex, *, replace: bool = False) -> KbIndex:
    """Make an index known under its ``kb_id``.

    Args:
        index: The index. Registering the same object again changes nothing.
        replace: Allow another index to take the place of a registered one.

    Returns:
        ``index``.

    Raises:
        ConfigError: Another index has this ``kb_id``; two owners must never share one.
    """
    register_source(index, replace=replace)
    return index


def register_source(source: Source, *, replace: bool = False) -> None:
    """Like `register`, for an index or a `LiveKb`: every look-up then gives its newest index.

    Raises:
        ConfigError: Another one has this ``kb_id``.
    """
    with _lock:
        known = _sources.get(source.kb_id)
        if known is not None and known is not source and not replace:
            raise ConfigError(
                f"kb_id {source.kb_id!r} is registered for another index; use another kb_id, or replace=True"
            )
        _sources[source.kb_id] = source


def attach(store: KbStore) -> None:
    """Let `get` open the KBs of a store on demand; those registered come first."""
    with _lock:
        if store not in _stores:
            _stores.append(store)


def get(kb_id: str) -> KbIndex:
    """Return a registered index, or one of an attached store.

    Raises:
        ConfigError: Unknown ``kb_id``; says how many are registered (not which: they name other people) and what to do.
        IndexMismatchError: A store has it, but it cannot be used.
    """
    with _lock:
        source = _sources.get(kb_id)
        count, stores = len(_sources), tuple(_stores)
    if source is not None:
        return source.snapshot
    for store in stores:
        if kb_id in store:
            return store.get(kb_id)
    raise ConfigError(
        f"no index is registered for kb_id {kb_id!r} ({count} others are); build one with "
        "KbIndex.build(kb_id, facts, embedder) or load_index(...), then register_kb(index)"
    )


def unregister(kb_id: str) -> None:
    """Forget an index; an unknown ``kb_id`` is no error."""
    with _lock:
        _sources.pop(kb_id, None)


def clear() -> None:
    """Forget every index and store."""
    with _lock:
        _sources.clear()
        _stores.clear()


def registered() -> tuple[str, ...]:
    """Return the registered ``kb_id`` s, sorted; those of attached stores are not listed."""
    with _lock:
        return tuple(sorted(_sources))
