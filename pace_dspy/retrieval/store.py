"""All KBs below one root, opened on demand, the least used closed when they fill the memory allowed. Ours."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pace_dspy.retrieval.base import Embedder, Progress
from pace_dspy.retrieval.kb import GRAPH_K, KbIndex
from pace_dspy.retrieval.layout import MANIFEST, index_dir, stored_kb_ids
from pace_dspy.retrieval.live import LiveKb
from pace_dspy.retrieval.storage import load_or_build
from pace_dspy.types import Fact

MAX_BYTES = 1 << 30
"""Bytes of open KBs by default: about 200 KBs of 2,000 facts. Ours."""


class KbStore:
    """KBs by ``kb_id``. Safe for threads. `pace_dspy.retrieval.attach_store` makes programs find them.

    A KB that is closed to make room stays usable by those who hold it; only the store forgets it.

    Args:
        root: Folder of all indexes.
        embedder: The one that builds and searches all of them.
        max_bytes: Estimated bytes of open KBs (`KbIndex.n_bytes`, mapped files counted whole). The KB used last
            stays open even when it alone is larger.
        on_wait: Told, in one sentence, when another process is waited for.
    """

    def __init__(
        self,
        root: Path | str,
        embedder: Embedder,
        *,
        max_bytes: int = MAX_BYTES,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self.root, self.embedder, self.max_bytes = Path(root), embedder, max_bytes
        self._on_wait = on_wait
        self._open: OrderedDict[str, LiveKb] = OrderedDict()
        self._sizes: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def __contains__(self, kb_id: str) -> bool:
        return (index_dir(self.root, kb_id) / MANIFEST).is_file()

    def __iter__(self) -> Iterator[str]:
        return stored_kb_ids(self.root)

    @property
    def open_ids(self) -> tuple[str, ...]:
        """Open KBs, the least used first."""
        with self._lock:
            return tuple(self._open)

    @property
    def open_bytes(self) -> int:
        """Estimated bytes of the open KBs."""
        with self._lock:
            return sum(size for _, size in self._sizes.values())

    def get(self, kb_id: str) -> KbIndex:
        """Return the newest index of a KB, changes by other processes included.

        Raises:
            FileNotFoundError: It is not stored.
            IndexMismatchError: It was made by another embedder or version, or is damaged.
            ConfigError: ``kb_id`` is not allowed.
        """
        index = self.live(kb_id).refresh()
        self._count(kb_id, index)
        return index

    def live(self, kb_id: str) -> LiveKb:
        """Return a KB for changing it; raises as `get`."""
        with self._lock:
            known = self._open.get(kb_id)
            if known is not None:
                self._open.move_to_end(kb_id)
                return known
        opened = LiveKb(self.root, kb_id, self.embedder, on_wait=self._on_wait)
        with self._lock:
            live = self._open.setdefault(kb_id, opened)
            self._open.move_to_end(kb_id)
        self._count(kb_id, live.snapshot)
        return live

    def build(
        self, kb_id: str, facts: Sequence[Fact], *, graph_k: int = GRAPH_K, progress: Progress | None = None
    ) -> LiveKb:
        """Store the index of these facts unless it is stored already, and open it.

        Raises:
            PaceError: It cannot be stored.
            ConfigError: ``kb_id`` is not allowed.
        """
        load_or_build(self.root, kb_id, facts, self.embedder, graph_k, progress)
        live = self.live(kb_id)
        self._count(kb_id, live.refresh())
        return live

    def close(self, kb_id: str | None = None) -> None:
        """Forget one open KB, or all; an unknown one is no error."""
        with self._lock:
            for name in list(self._open) if kb_id is None else [kb_id]:
                self._open.pop(name, None)
                self._sizes.pop(name, None)

    def _count(self, kb_id: str, index: KbIndex) -> None:
        with self._lock:
            if kb_id not in self._open:
                return
            if self._sizes.get(kb_id, (-1, 0))[0] != index.version:
                self._sizes[kb_id] = (index.version, index.n_bytes)
            total = sum(size for _, size in self._sizes.values())
            while total > self.max_bytes and len(self._open) > 1:
                oldest, _ = self._open.popitem(last=False)
                total -= self._sizes.pop(oldest, (0, 0))[1]
