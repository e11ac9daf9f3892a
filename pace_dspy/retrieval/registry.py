"""Where indexes live: one table for the process, outside every module tree, looked up by ``kb_id``."""

from __future__ import annotations

import threading

from pace_dspy.errors import ConfigError
from pace_dspy.retrieval.kb import KbIndex

_lock = threading.Lock()
_indexes: dict[str, KbIndex] = {}


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
    with _lock:
        known = _indexes.get(index.kb_id)
        if known is not None and known is not index and not replace:
            raise ConfigError(
                f"kb_id {index.kb_id!r} is registered for another index; use another kb_id, or replace=True"
            )
        _indexes[index.kb_id] = index
    return index


def get(kb_id: str) -> KbIndex:
    """Return a registered index.

    Raises:
        ConfigError: Unknown ``kb_id``; says how many are registered (not which: they name other people) and what to do.
    """
    with _lock:
        index = _indexes.get(kb_id)
        count = len(_indexes)
    if index is None:
        raise ConfigError(
            f"no index is registered for kb_id {kb_id!r} ({count} others are); build one with "
            "KbIndex.build(kb_id, facts, embedder) or load_index(...), then register_kb(index)"
        )
    return index


def unregister(kb_id: str) -> None:
    """Forget an index; an unknown ``kb_id`` is no error."""
    with _lock:
        _indexes.pop(kb_id, None)


def clear() -> None:
    """Forget every index."""
    with _lock:
        _indexes.clear()


def registered() -> tuple[str, ...]:
    """Return the registered ``kb_id`` s, sorted."""
    with _lock:
        return tuple(sorted(_indexes))
