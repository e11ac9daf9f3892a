"""The manifest of a stored index: what it was built from, and which files belong to it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pace_dspy.errors import IndexMismatchError
from pace_dspy.retrieval.layout import MANIFEST

FORMAT_VERSION = 2
VECTORS = "vectors.npy"
"""Rows of the data folder's own facts, then rows of facts that came later."""
REMEDY = "Build it again: `pace-dspy index --data PATH --out DIR`, or load_or_build(...) with the facts"


@dataclass(frozen=True)
class Manifest:
    """One JSON object beside the data folder; replacing it is what makes a new version current.

    Attributes:
        format_version: Layout of the files.
        kb_id: The KB.
        version: Stored changes of the KB up to this data folder; later ones are in its log.
        content_hash: SHA-256 over ids, texts and dates in corpus order.
        embedder_id: Embedder that made the vectors.
        dim: Length of a vector.
        n_facts: Facts.
        graph_k: Neighbours asked for.
        n_terms: Terms of the sparse index.
        n_postings: Entries of its score matrix.
        folder: Name of the data folder beside the manifest.
        files: File name to size in bytes.
        versions: Packages that wrote it, for reports only.
    """

    format_version: int
    kb_id: str
    version: int
    content_hash: str
    embedder_id: str
    dim: int
    n_facts: int
    graph_k: int
    n_terms: int
    n_postings: int
    folder: str
    files: Mapping[str, int]
    versions: Mapping[str, str]

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def read(cls, folder: Path, kb_id: str) -> Manifest:
        """Read the manifest of a KB.

        Raises:
            FileNotFoundError: There is none.
            IndexMismatchError: Another format version, or not a manifest.
        """
        path = folder / MANIFEST
        try:
            raw: Any = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as exc:
            raise mismatch(kb_id, folder, {"manifest": ("not readable", "JSON")}) from exc
        version = raw.get("format_version") if isinstance(raw, dict) else None
        if version != FORMAT_VERSION:
            raise mismatch(kb_id, folder, {"format_version": (version, FORMAT_VERSION)})
        names = {field.name for field in dataclasses.fields(cls)}
        if set(raw) != names:
            raise mismatch(kb_id, folder, {"manifest fields": (sorted(set(raw)), sorted(names))})
        return cls(**raw)

    def check(self, folder: Path, kb_id: str, wanted: Mapping[str, object]) -> None:
        """Refuse an index that is not what is wanted.

        Args:
            folder: Where it is, for the message.
            kb_id: The KB asked for.
            wanted: Field name to the value it must have.

        Raises:
            IndexMismatchError: Names every field that differs, with stored and wanted value.
        """
        differing = {
            name: (getattr(self, name), value)
            for name, value in {"kb_id": kb_id, **wanted}.items()
            if getattr(self, name) != value
        }
        if differing:
            raise mismatch(kb_id, folder, differing)

    def check_files(self, folder: Path) -> None:
        """Refuse a data folder with a missing file or one of another size (`VECTORS` may have grown).

        Raises:
            IndexMismatchError: A file is missing or was cut, or the whole folder is gone.
        """
        data = folder / self.folder
        if not data.is_dir():
            raise mismatch(self.kb_id, folder, {"data folder": ("missing", self.folder)})
        sizes = {name: (data / name).stat().st_size if (data / name).is_file() else None for name in self.files}
        differing = {
            f"file {name}": (size, self.files[name])
            for name, size in sizes.items()
            if size != self.files[name] and not (name == VECTORS and size is not None and size > self.files[name])
        }
        if differing:
            raise mismatch(self.kb_id, folder, differing)


def mismatch(kb_id: str, folder: Path, differing: Mapping[str, tuple[object, object]]) -> IndexMismatchError:
    """Return the error that names the differing fields as ``field: stored X, wanted Y`` and the remedy."""
    fields = "; ".join(f"{name}: stored {stored!r}, wanted {wanted!r}" for name, (stored, wanted) in differing.items())
    return IndexMismatchError(f"the index of KB {kb_id!r} in {folder} does not fit ({fields}). {REMEDY}")
