"""One on-disk index per KB: FAISS file, arrays, parquet and a JSON manifest. No pickle.

Layout: ``ROOT/<kb_id>/manifest.json`` and ``ROOT/<kb_id>/<folder named in the manifest>/``. A new version is
written into a temporary folder, which is renamed; then the manifest is replaced in one step; then the old folder is
deleted. A crash at any moment leaves the old or the new version, whole. Readers map the files into memory and keep
what they opened. Ours.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock

from pace_dspy.errors import IndexMismatchError, PaceError
from pace_dspy.retrieval.base import Embedder, Progress
from pace_dspy.retrieval.files import read_parts, versions, write_parts
from pace_dspy.retrieval.fsync import rename_durably, replace_text
from pace_dspy.retrieval.kb import GRAPH_K, KbIndex, check_kb_id, content_hash
from pace_dspy.retrieval.manifest import FORMAT_VERSION, MANIFEST, Manifest, mismatch
from pace_dspy.types import Fact

_LOCK_WAIT_S = 60.0
_TEMPORARY = "tmp-"
_DATA = "data-"


def index_dir(root: Path | str, kb_id: str) -> Path:
    """Return the folder of a KB's index below ``root``.

    Raises:
        ConfigError: ``kb_id`` may not be part of a path.
    """
    return Path(root) / check_kb_id(kb_id)


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
    with _writing(folder, index.kb_id):
        _check_owner(folder, index.kb_id)
        name = uuid.uuid4().hex
        temporary, final = folder / f"{_TEMPORARY}{name}", folder / f"{_DATA}{name}"
        try:
            temporary.mkdir()
            sizes = write_parts(index, temporary)
            manifest = Manifest(
                format_version=FORMAT_VERSION,
                kb_id=index.kb_id,
                content_hash=index.content_hash,
                embedder_id=index.embedder.id,
                dim=index.dense.dim,
                n_facts=len(index),
                graph_k=index.graph.k,
                n_terms=len(index.sparse.vocabulary),
                n_postings=len(index.sparse.matrix.data),
                folder=final.name,
                files=sizes,
                versions=versions(),
            )
            rename_durably(temporary, final)
            replace_text(folder / MANIFEST, manifest.to_json())
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        _sweep(folder, keep=final.name)
    return folder


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
        ConfigError: ``kb_id`` is not allowed.
    """
    folder = index_dir(root, kb_id)
    manifest = _manifest(folder, kb_id)
    while True:
        try:
            return _open(folder, manifest, kb_id, embedder, facts, graph_k)
        except IndexMismatchError:
            # A writer may have replaced the version between our reading the manifest and the files.
            newer = _manifest(folder, kb_id)
            if newer == manifest:
                raise
            manifest = newer


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
    """
    try:
        return load_index(root, kb_id, embedder, facts=facts, graph_k=graph_k)
    except (FileNotFoundError, IndexMismatchError):
        index = KbIndex.build(kb_id, facts, embedder, graph_k, progress)
        save_index(index, root)
        return index


def _manifest(folder: Path, kb_id: str) -> Manifest:
    try:
        return Manifest.read(folder, kb_id)
    except FileNotFoundError as exc:
        raise FileNotFoundError(
            f"no index of KB {kb_id!r} in {folder}; build one with `pace-dspy index --data PATH --out DIR`"
        ) from exc


def _open(
    folder: Path,
    manifest: Manifest,
    kb_id: str,
    embedder: Embedder,
    facts: Sequence[Fact] | None,
    graph_k: int | None,
) -> KbIndex:
    wanted: dict[str, object] = {"embedder_id": embedder.id}
    if facts is not None:
        wanted |= {"n_facts": len(facts), "content_hash": content_hash((f.doc_id, f.text, f.date) for f in facts)}
    if graph_k is not None:
        wanted["graph_k"] = graph_k
    manifest.check(folder, kb_id, wanted)
    manifest.check(folder, kb_id, {"dim": embedder.dim})
    manifest.check_files(folder)
    try:
        index = read_parts(folder / manifest.folder, manifest, embedder)
    except (OSError, ValueError, RuntimeError) as exc:
        raise mismatch(kb_id, folder, {"files": (f"not readable ({exc})", "whole")}) from exc
    held = {
        "content_hash": index.content_hash,
        "n_facts": len(index),
        "dim": index.dense.dim,
        "n_terms": len(index.sparse.vocabulary),
        "n_postings": len(index.sparse.matrix.data),
    }
    manifest.check(folder, kb_id, held)
    return index


def _check_owner(folder: Path, kb_id: str) -> None:
    # On a file system that ignores case, "Ana" and "ana" are one folder but two owners.
    with contextlib.suppress(FileNotFoundError, IndexMismatchError):
        stored = Manifest.read(folder, kb_id).kb_id
        if stored != kb_id:
            raise PaceError(f"{folder} holds the index of KB {stored!r}, not {kb_id!r}; use another root or kb_id")


@contextlib.contextmanager
def _writing(folder: Path, kb_id: str) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=_LOCK_WAIT_S):
            yield
    except filelock.Timeout as exc:
        raise PaceError(
            f"the index of KB {kb_id!r} in {folder} is being written by another process; try again when it is done"
        ) from exc
    except OSError as exc:
        raise PaceError(
            f"the index of KB {kb_id!r} cannot be written to {folder}: {exc.strerror or exc}. "
            "An older version is intact; free some space or choose another folder"
        ) from exc


def _sweep(folder: Path, keep: str) -> None:
    for path in folder.iterdir():
        if path.is_dir() and path.name.startswith((_TEMPORARY, _DATA)) and path.name != keep:
            shutil.rmtree(path, ignore_errors=True)
