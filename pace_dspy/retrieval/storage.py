"""One on-disk index per KB: arrays, parquet, a log of changes and a JSON manifest. No pickle.

Layout: ``<KB's folder>/manifest.json`` and ``<KB's folder>/<folder named in the manifest>/``. A new version is
written into a temporary folder, which is renamed; then the manifest is replaced in one step; then the old folder is
deleted. A change of a few facts is a record in the log of the data folder (`pace_dspy.retrieval.live`). A crash at
any moment leaves the old or the new version, whole. Readers map the files into memory and keep what they opened. Ours.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from pace_dspy.errors import IndexMismatchError, PaceError
from pace_dspy.retrieval.base import Embedder, Progress
from pace_dspy.retrieval.files import used_terms, versions, write_parts
from pace_dspy.retrieval.fsync import rename_durably, replace_text
from pace_dspy.retrieval.kb import GRAPH_K, KbIndex
from pace_dspy.retrieval.layout import MANIFEST, index_dir
from pace_dspy.retrieval.locks import writing
from pace_dspy.retrieval.manifest import FORMAT_VERSION, Manifest, checksum
from pace_dspy.retrieval.stored import open_stored, read_records
from pace_dspy.types import Fact

_TEMPORARY = "tmp-"
_DATA = "data-"


def save_index(index: KbIndex, root: Path | str) -> Path:
    """Store an index; readers see the old or the new version, never a mixture.

    Args:
        index: The index.
        root: Folder of all indexes; made when missing.

    Returns:
        The KB's folder.

    Raises:
        PaceError: The disk is full or read-only, or another writer holds the KB; the old version is intact.
    """
    folder = index_dir(root, index.kb_id)
    with writing(folder, index.kb_id):
        _check_owner(folder, index.kb_id)
        write_version(index, folder, _last_version(folder, index.kb_id) + 1)
    return folder


def write_version(index: KbIndex, folder: Path, version: int) -> Manifest:
    """Write a data folder and make it the current one. The caller holds the writer's lock.

    Args:
        index: The facts and all that is computed from them.
        folder: The KB's folder.
        version: The KB's version.

    Raises:
        OSError: The disk is full or read-only; the old version is intact.
    """
    name = uuid.uuid4().hex
    temporary, final = folder / f"{_TEMPORARY}{name}", folder / f"{_DATA}{name}"
    try:
        temporary.mkdir()
        sizes = write_parts(index, temporary)
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            kb_id=index.kb_id,
            version=version,
            content_hash=index.content_hash,
            embedder_id=index.embedder.id,
            dim=index.dense.dim,
            n_facts=len(index),
            graph_k=index.graph.k,
            n_terms=len(used_terms(index.sparse)[0]),
            n_postings=len(index.sparse.matrix.data),
            folder=final.name,
            files=sizes,
            checksums={name: checksum(temporary / name, size) for name, size in sizes.items()},
            versions=versions(),
        )
        rename_durably(temporary, final)
        if (folder / MANIFEST).is_dir():  # damage: no file can replace it
            shutil.rmtree(folder / MANIFEST)
        replace_text(folder / MANIFEST, manifest.to_json())
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sweep(folder, keep=final.name)
    return manifest


def load_index(
    root: Path | str,
    kb_id: str,
    embedder: Embedder,
    *,
    facts: Sequence[Fact] | None = None,
    graph_k: int | None = None,
) -> KbIndex:
    """Open a stored index, memory-mapped, after checking that it is what is wanted.

    Args:
        root: Folder of all indexes.
        kb_id: The KB.
        embedder: Must have the id and dimension of the one that built the index.
        facts: The facts it must hold, ``None`` to take what is stored.
        graph_k: The graph it must have, ``None`` for any.

    Raises:
        FileNotFoundError: No index of this KB is stored below ``root``.
        IndexMismatchError: Embedder, format version, content, counts or files differ; names the fields.
        ConfigError: ``kb_id`` is not allowed, or a file is in the place of its folder.
    """
    return open_stored(index_dir(root, kb_id), kb_id, embedder, facts, graph_k).index


def load_or_build(
    root: Path | str,
    kb_id: str,
    facts: Sequence[Fact],
    embedder: Embedder,
    graph_k: int = GRAPH_K,
    progress: Progress | None = None,
) -> KbIndex:
    """Open the stored index when it fits facts, embedder and ``graph_k``; build and store it otherwise.

    Args:
        root: Folder of all indexes.
        kb_id: The KB.
        facts: Its facts.
        embedder: The embedder.
        graph_k: Neighbours kept a fact.
        progress: See `KbIndex.build`; not called when the stored index fits.

    Raises:
        PaceError: It cannot be stored.
        ConfigError: ``kb_id`` is not allowed, or a file is in the place of its folder.
    """
    try:
        return load_index(root, kb_id, embedder, facts=facts, graph_k=graph_k)
    except (FileNotFoundError, IndexMismatchError):
        index = KbIndex.build(kb_id, facts, embedder, graph_k, progress)
        save_index(index, root)
        return load_index(root, kb_id, embedder)


def _last_version(folder: Path, kb_id: str) -> int:
    with contextlib.suppress(FileNotFoundError, IndexMismatchError):
        manifest = Manifest.read(folder, kb_id)
        with contextlib.suppress(IndexMismatchError):
            records, _ = read_records(folder, manifest)
            return records[-1].version if records else manifest.version
        return manifest.version
    return 0


def _check_owner(folder: Path, kb_id: str) -> None:
    # On a file system that ignores case, "Ana" and "ana" may be one folder but are two owners.
    with contextlib.suppress(FileNotFoundError, IndexMismatchError):
        stored = Manifest.read(folder, kb_id).kb_id
        if stored != kb_id:
            raise PaceError(f"{folder} holds the index of KB {stored!r}, not {kb_id!r}; use another root or kb_id")


def _sweep(folder: Path, keep: str) -> None:
    for path in folder.iterdir():
        if path.name.startswith((_TEMPORARY, _DATA)) and path.name != keep:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:  # damage: a file in the place of a data folder
                path.unlink(missing_ok=True)
