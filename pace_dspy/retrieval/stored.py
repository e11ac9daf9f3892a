"""A KB as stored: its data folder and the log of later changes, read as one index. Ours."""

from __future__ import annotations

import dataclasses
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pace_dspy.errors import ConfigError, IndexMismatchError
from pace_dspy.retrieval.base import Embedder, FloatMatrix
from pace_dspy.retrieval.facts import content_hash
from pace_dspy.retrieval.files import map_vectors, read_parts
from pace_dspy.retrieval.kb import KbIndex
from pace_dspy.retrieval.log import LogRecord, crc_of, read_log
from pace_dspy.retrieval.manifest import Manifest, mismatch
from pace_dspy.types import Fact

_DAMAGE = (OSError, ValueError, RuntimeError, TypeError, KeyError, EOFError, SyntaxError, tokenize.TokenError)
"""What numpy, pyarrow and JSON raise when they read damaged files."""


@dataclass(frozen=True)
class RecordedEmbedder:
    """Stands for the embedder of a stored index where nothing needs embedding: listing, removing, compacting."""

    id: str
    dim: int

    def embed_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """Return nothing for no texts.

        Raises:
            ConfigError: There are texts.
        """
        if texts:
            raise ConfigError(f"this KB was opened without its embedder {self.id!r}; open it with it to add or search")
        return np.zeros((0, self.dim), dtype=np.float32)

    def embed_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """See `embed_documents`."""
        return self.embed_documents(texts)

    @classmethod
    def of(cls, folder: Path, kb_id: str) -> RecordedEmbedder:
        """Return the embedder that the manifest in a KB's folder names.

        Raises:
            FileNotFoundError: No index is stored.
            IndexMismatchError: The manifest cannot be used.
        """
        manifest = read_manifest(folder, kb_id)
        return cls(manifest.embedder_id, manifest.dim)


@dataclass(frozen=True)
class Stored:
    """What a process knows of a stored KB; the next change builds on it.

    Attributes:
        folder: The KB's folder.
        manifest: Of its data folder.
        index: Data folder and log together.
        log_end: End of the last whole record.
        n_changes: Facts taken out or put in by the log.
    """

    folder: Path
    manifest: Manifest
    index: KbIndex
    log_end: int = 0
    n_changes: int = 0

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / self.manifest.folder


def read_manifest(folder: Path, kb_id: str) -> Manifest:
    """Return the manifest of a KB.

    Raises:
        FileNotFoundError: There is none; says how to build one.
        IndexMismatchError: It cannot be used.
    """
    try:
        return Manifest.read(folder, kb_id)
    except FileNotFoundError as exc:
        raise FileNotFoundError(
            f"no index of KB {kb_id!r} in {folder}; build one with `pace-dspy index --data PATH --out DIR`"
        ) from exc


def open_stored(
    folder: Path,
    kb_id: str,
    embedder: Embedder,
    facts: Sequence[Fact] | None = None,
    graph_k: int | None = None,
) -> Stored:
    """Open the newest version of a KB after checking that it is what is wanted.

    Args:
        folder: The KB's folder.
        kb_id: The KB.
        embedder: Must have the id and dimension of the one that built the index.
        facts: The facts it must hold, in order; ``None`` to take what is stored.
        graph_k: The graph it must have, ``None`` for any.

    Raises:
        FileNotFoundError: No index is stored.
        IndexMismatchError: Something differs; names the fields.
    """
    manifest = read_manifest(folder, kb_id)
    while True:
        try:
            opened = _open(folder, manifest, kb_id, embedder, facts, graph_k)
        except IndexMismatchError:
            # A writer may have replaced the version between our reading the manifest and the files.
            newer = read_manifest(folder, kb_id)
            if newer == manifest:
                raise
        else:
            # No log: there never was one, or a writer that replaced the version has just deleted it.
            if opened.log_end or (newer := read_manifest(folder, kb_id)) == manifest:
                return opened
        manifest = newer


def advanced(stored: Stored) -> Stored:
    """Return what is stored now: the same object when nothing changed since.

    Raises:
        FileNotFoundError: The KB was deleted.
        IndexMismatchError: What is there now cannot be used.
    """
    index = stored.index
    if read_manifest(stored.folder, index.kb_id) != stored.manifest:
        return open_stored(stored.folder, index.kb_id, index.embedder)
    records, end = read_records(stored.folder, stored.manifest, stored.log_end)
    return _replayed(stored, records, end)


def read_records(folder: Path, manifest: Manifest, start: int = 0) -> tuple[list[LogRecord], int]:
    """Read the log of a KB from ``start`` on; see `pace_dspy.retrieval.log.read_log`.

    Raises:
        IndexMismatchError: It cannot be read.
    """
    try:
        return read_log(folder / manifest.folder, start)
    except _DAMAGE as exc:
        raise mismatch(manifest.kb_id, folder, {"log": (f"not readable ({exc})", "whole")}) from exc


def _open(
    folder: Path,
    manifest: Manifest,
    kb_id: str,
    embedder: Embedder,
    facts: Sequence[Fact] | None,
    graph_k: int | None,
) -> Stored:
    records, end = read_records(folder, manifest)
    last = records[-1] if records else manifest
    current = dataclasses.replace(manifest, content_hash=last.content_hash, n_facts=last.n_facts)
    wanted: dict[str, object] = {"embedder_id": embedder.id}
    if facts is not None:
        wanted |= {"n_facts": len(facts), "content_hash": content_hash((f.doc_id, f.text, f.date) for f in facts)}
    if graph_k is not None:
        wanted["graph_k"] = graph_k
    current.check(folder, kb_id, wanted)
    manifest.check(folder, kb_id, {"dim": embedder.dim})
    manifest.check_files(folder)
    try:
        index = read_parts(folder / manifest.folder, manifest, embedder)
    except _DAMAGE as exc:
        raise mismatch(kb_id, folder, {"files": (f"not readable ({exc})", "whole")}) from exc
    held = {
        "content_hash": index.content_hash,
        "n_facts": len(index),
        "dim": index.dense.dim,
        "n_terms": len(index.sparse.vocabulary),
        "n_postings": len(index.sparse.matrix.data),
    }
    manifest.check(folder, kb_id, held)
    return _replayed(Stored(folder, manifest, index), records, end)


def _replayed(stored: Stored, records: Sequence[LogRecord], end: int) -> Stored:
    """Return the KB after the records, which are applied as one change."""
    if not records:
        return stored
    index, last = stored.index, records[-1]
    removed: set[int] = set()
    added: dict[str, tuple[Fact, int]] = {}
    try:
        matrix = map_vectors(stored.data, stored.manifest, last.first_row + len(last.added))
        for record in records:
            rows = range(record.first_row, record.first_row + len(record.added))
            if crc_of(matrix[rows.start : rows.stop]) != record.vectors_crc:
                raise ValueError(f"the vectors of version {record.version} are not those that were written")
            for doc_id in record.removed:
                if added.pop(doc_id, None) is None:
                    removed.add(index.doc_ids.position(doc_id))
            added |= {fact.doc_id: (fact, row) for fact, row in zip(record.facts, rows, strict=True)}
        new_rows = np.array([row for _, row in added.values()], dtype=np.int64)
        changed = index.changed(removed, [fact for fact, _ in added.values()], matrix, new_rows, last.version)
    except _DAMAGE as exc:
        raise mismatch(index.kb_id, stored.folder, {"log": (f"not readable ({exc})", "whole")}) from exc
    if changed.content_hash != last.content_hash:
        differing = {"content_hash": (last.content_hash, changed.content_hash)}
        raise mismatch(index.kb_id, stored.folder, differing)
    n_changes = stored.n_changes + sum(len(record.removed) + len(record.added) for record in records)
    return Stored(stored.folder, stored.manifest, changed, end, n_changes)
