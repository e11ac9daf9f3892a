"""A KB that changes while it is searched: facts put in, taken out, replaced, expired. Ours.

A change is one record in a log on disk and one new `KbIndex` that shares what stays. Requests hold the index they
started with, so they never see half a change; the next request gets the new one. Other processes see it when they
look (`LiveKb.refresh`; a `KbStore` looks at each use).
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from pace_dspy.errors import DataError, PaceError
from pace_dspy.retrieval.base import Embedder, FloatMatrix
from pace_dspy.retrieval.change import KbChange, change_between, described
from pace_dspy.retrieval.dense import DenseIndex
from pace_dspy.retrieval.files import map_vectors, vectors_start
from pace_dspy.retrieval.kb import KbIndex, embed_facts
from pace_dspy.retrieval.layout import MANIFEST, check_folder, index_dir
from pace_dspy.retrieval.locks import writing
from pace_dspy.retrieval.log import LOG, LogRecord, append_record, crc_of, write_at
from pace_dspy.retrieval.manifest import VECTORS
from pace_dspy.retrieval.storage import write_version
from pace_dspy.retrieval.stored import Stored, advanced, open_stored
from pace_dspy.types import Fact

COMPACT_AFTER = 512
"""Facts changed by the log before it is folded into a new data folder; keeps opening fast. Ours."""
_logger = logging.getLogger(__name__)

Plan = Callable[[KbIndex], Sequence[str]]
"""From the newest index to the ids to take out; refuses what does not fit it."""
Listener = Callable[[KbChange], None]


class LiveKb:
    """A stored KB, open for searching and changing. Safe for threads; processes take turns by a file lock.

    Args:
        root: Folder of all indexes.
        kb_id: The KB; its index must be stored (`save_index`, `load_or_build`).
        embedder: Must be the one that built the index.
        on_wait: Told, in one sentence, when another process is waited for.

    Raises:
        FileNotFoundError: No index of this KB is stored below ``root``.
        IndexMismatchError: It was made by another embedder or version, or is damaged.
        ConfigError: ``kb_id`` is not allowed.
    """

    def __init__(
        self, root: Path | str, kb_id: str, embedder: Embedder, *, on_wait: Callable[[str], None] | None = None
    ) -> None:
        self.kb_id, self.folder = kb_id, index_dir(root, kb_id)
        self._stored = open_stored(self.folder, kb_id, embedder)
        self._seen: tuple[object, ...] = ()
        self._on_wait = on_wait
        self._listeners: list[Listener] = []
        self._mutex = threading.RLock()

    @property
    def snapshot(self) -> KbIndex:
        """The newest index this process knows: immutable, good for a whole request."""
        return self._stored.index

    @property
    def version(self) -> int:
        """Version of `snapshot`."""
        return self.snapshot.version

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have ``listener`` called after each change, in order, in the thread that made (or noticed) it.

        A change by another process reaches it at the next `refresh` or change here, several perhaps as one. What
        the listener raises reaches the caller of the change, which is stored nevertheless. A listener must not
        change the KB.

        Returns:
            A function that ends the subscription.
        """
        with self._mutex:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def add(self, facts: Sequence[Fact]) -> KbChange | None:
        """Put new facts at the end; see `update` for known ones.

        Returns:
            The change, ``None`` when there was nothing to do.

        Raises:
            DataError: An id is known already or given twice, or a text is empty.
            PaceError: The disk is full or read-only, or another writer holds the KB too long; nothing is changed.
            BackendError: A remote embedder failed; nothing is changed.
        """

        def plan(index: KbIndex) -> Sequence[str]:
            known = next((fact.doc_id for fact in facts if fact.doc_id in index.doc_ids), None)
            if known is not None:
                raise self._refused(
                    "is known already", known, "Use update (`pace-dspy kb add --replace`), or another doc_id"
                )
            return ()

        return self._change(plan, facts)

    def update(self, facts: Sequence[Fact]) -> KbChange | None:
        """Replace facts by their id. They move to the end of the corpus order, which decides ties only.

        Returns:
            The change, ``None`` when there was nothing to do.

        Raises:
            DataError: An id is unknown or given twice, or a text is empty.
            PaceError: See `add`.
            BackendError: See `add`.
        """
        return self._change(lambda index: self._known(index, [fact.doc_id for fact in facts]), facts)

    def put(self, facts: Sequence[Fact]) -> KbChange | None:
        """Add the facts that are new and replace those whose id is known; raises as `add`."""
        return self._change(lambda index: [f.doc_id for f in facts if f.doc_id in index.doc_ids], facts)

    def remove(self, doc_ids: Iterable[str]) -> KbChange | None:
        """Take facts out.

        Returns:
            The change, ``None`` when there was nothing to do.

        Raises:
            DataError: An id is unknown; nothing is changed.
            PaceError: See `add`.
        """
        ids = list(dict.fromkeys(doc_ids))
        return self._change(lambda index: self._known(index, ids), ())

    def expire(self, before: dt.date) -> KbChange | None:
        """Take out the facts recorded before a day; undated ones stay.

        Returns:
            The change, ``None`` when there was nothing to do.

        Raises:
            PaceError: See `add`.
        """

        def plan(index: KbIndex) -> Sequence[str]:
            return [d for d, date in zip(index.doc_ids, index.dates, strict=True) if date is not None and date < before]

        return self._change(plan, ())

    def refresh(self) -> KbIndex:
        """Take over what other processes changed; costs two look-ups in the file system when nothing did.

        Returns:
            The newest index.

        Raises:
            FileNotFoundError: The KB was deleted.
            IndexMismatchError: What is stored now cannot be used.
        """
        if self._look() != self._seen:
            with self._mutex:
                self._advance()
        return self.snapshot

    def compact(self) -> None:
        """Fold the log into a new data folder. Done by itself every `COMPACT_AFTER` changed facts.

        Raises:
            PaceError: See `add`.
        """
        with self._mutex, writing(self.folder, self.kb_id, self._on_wait):
            self._advance()
            index = self.snapshot
            manifest = write_version(index, self.folder, index.version)
            matrix = map_vectors(self.folder / manifest.folder, manifest, len(index))
            dense = DenseIndex(index.doc_ids, matrix)
            mapped = KbIndex(index.kb_id, index.facts, dense, index.sparse, index.graph, index.embedder, index.version)
            self._stored = Stored(self.folder, manifest, mapped)

    def _change(self, plan: Plan, facts: Sequence[Fact]) -> KbChange | None:
        self._check(facts)
        if not plan(self.snapshot) and not facts:
            return None
        vectors = embed_facts([fact.text for fact in facts], self.snapshot.embedder)
        with self._mutex:
            with writing(self.folder, self.kb_id, self._on_wait):
                self._advance()
                removed = plan(self.snapshot)
                if not removed and not facts:
                    return None
                change = self._write(removed, facts, vectors)
            self._tell(change)
            if self._stored.n_changes >= COMPACT_AFTER:
                try:
                    self.compact()
                except PaceError as exc:
                    _logger.warning("the change is stored, but its log could not be folded in: %s", exc)
            return change

    def _write(self, removed: Sequence[str], facts: Sequence[Fact], vectors: FloatMatrix) -> KbChange:
        stored, old = self._stored, self._stored.index
        matrix, first_row = old.dense.matrix, len(old.dense.matrix)
        if facts:
            start = vectors_start(stored.manifest) + first_row * old.dense.dim * 4
            write_at(stored.data / VECTORS, start, vectors.tobytes())
            matrix = map_vectors(stored.data, stored.manifest, first_row + len(facts))
        positions = sorted(old.doc_ids.position(doc_id) for doc_id in removed)
        index = old.changed(positions, facts, matrix, np.arange(first_row, len(matrix)))
        record = LogRecord(
            version=index.version,
            content_hash=index.content_hash,
            n_facts=len(index),
            removed=tuple(removed),
            added=tuple((fact.doc_id, fact.text, fact.date.isoformat() if fact.date else None) for fact in facts),
            first_row=first_row,
            vectors_crc=crc_of(vectors),
        )
        end = append_record(stored.data, stored.log_end, record)
        n_changes = stored.n_changes + len(removed) + len(facts)
        self._stored = Stored(stored.folder, stored.manifest, index, end, n_changes)
        return described(old, index, positions, len(facts))

    def _advance(self) -> None:
        old, seen = self.snapshot, self._look()
        self._stored = advanced(self._stored)
        self._seen = seen
        if self.snapshot.version != old.version:
            self._tell(change_between(old, self.snapshot))

    def _tell(self, change: KbChange) -> None:
        for listener in tuple(self._listeners):
            listener(change)

    def _look(self) -> tuple[object, ...]:
        stored = self._stored
        check_folder(self.folder)
        manifest = (self.folder / MANIFEST).stat()
        try:
            log_size = (stored.data / LOG).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            log_size = 0
        return manifest.st_ino, manifest.st_mtime_ns, stored.data.name, log_size

    def _known(self, index: KbIndex, doc_ids: Sequence[str]) -> Sequence[str]:
        unknown = next((doc_id for doc_id in doc_ids if doc_id not in index.doc_ids), None)
        if unknown is not None:
            raise self._refused(
                "is not in the knowledge base", unknown, f"List its facts: `pace-dspy kb list {self.kb_id}`"
            )
        return doc_ids

    def _check(self, facts: Sequence[Fact]) -> None:
        seen: set[str] = set()
        for fact in facts:
            if not fact.doc_id or fact.doc_id in seen:
                raise self._refused("is empty or given twice", fact.doc_id, "Give every fact its own doc_id")
            if not fact.text.strip():
                raise self._refused("has an empty text", fact.doc_id, "Write the fact, or leave it out")
            seen.add(fact.doc_id)

    def _refused(self, problem: str, doc_id: str, remedy: str) -> DataError:
        return DataError(f"KB {self.kb_id!r}: fact {doc_id[:80]!r} {problem}", remedy=remedy)
