"""Vectors of facts by the hash of their text, shared by all KBs of one embedder: a text is embedded once. Ours.

One SQLite file an embedder, safe for threads and processes. It holds hashes and vectors, no text. A cache that cannot
be read or written is left alone with a warning: the facts are then embedded as without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pace_dspy.retrieval.base import Embedder, FloatMatrix

CACHE_FOLDER = "embeddings"
_AT_ONCE = 500
_WAIT_S = 30.0
_logger = logging.getLogger(__name__)
Vector = NDArray[np.float32]


class EmbeddingCache:
    """Vectors of one embedder. A connection is opened for each call, so that threads and forks may share the object.

    Args:
        folder: Folder of all caches; made when missing.
        embedder_id: Names the vectors; part of the file's name as a hash.
        dim: Length of a vector.
    """

    def __init__(self, folder: Path | str, embedder_id: str, dim: int) -> None:
        self.path = Path(folder) / f"{hashlib.sha256(embedder_id.encode()).hexdigest()[:24]}-{dim}.sqlite"
        self._dim = dim

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the known vectors, ``(dim,)`` float32 each, by `text_key`."""
        found: dict[bytes, Vector] = {}
        if not self.path.is_file():
            return found
        with self._tolerant("read"), contextlib.closing(self._connect()) as connection:
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                query = f"SELECT key, vector FROM vectors WHERE key IN ({','.join('?' * len(part))})"
                for key, blob in connection.execute(query, part):
                    if len(blob) == self._dim * 4:
                        found[key] = np.frombuffer(blob, dtype=np.float32)
        return found

    def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Remember vectors by `text_key`."""
        rows = [(key, np.ascontiguousarray(vector, dtype=np.float32).tobytes()) for key, vector in vectors.items()]
        if not rows:
            return
        with self._tolerant("written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(self._connect()) as connection, connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)")
                connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_WAIT_S)

    @contextlib.contextmanager
    def _tolerant(self, act: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as exc:
            _logger.warning("the embedding cache %s cannot be %s (%s); delete it when this stays", self.path, act, exc)


class CachedEmbedder:
    """An embedder that asks the cache first. Queries are not cached.

    Args:
        embedder: The embedder; its id and dimension are this one's.
        folder: Folder of all caches.
    """

    def __init__(self, embedder: Embedder, folder: Path | str) -> None:
        self.embedder = embedder
        self._folder = folder

    @property
    def id(self) -> str:
        """The embedder's."""
        return self.embedder.id

    @property
    def dim(self) -> int:
        """The embedder's."""
        return self.embedder.dim

    def embed_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed facts that are not in the cache, each text once; see `pace_dspy.retrieval.Embedder`."""
        cache = EmbeddingCache(self._folder, self.id, self.dim)
        keys = [text_key(text) for text in texts]
        known = cache.get(list(dict.fromkeys(keys)))
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            vectors = self.embedder.embed_documents(list(missing.values()))
            if vectors.shape != (len(missing), self.dim):
                raise ValueError(
                    f"embedder {self.id!r} gave shape {vectors.shape} where ({len(missing)}, {self.dim}) is needed"
                )
            fresh = dict(zip(missing, vectors, strict=True))
            if np.isfinite(vectors).all():
                cache.put(fresh)
            known |= fresh
        return np.array([known[key] for key in keys], dtype=np.float32).reshape(len(texts), self.dim)

    def embed_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed queries; see `pace_dspy.retrieval.Embedder`."""
        return self.embedder.embed_queries(texts)


def text_key(text: str) -> bytes:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()
