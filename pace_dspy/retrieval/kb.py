"""One knowledge base, ready to search: facts, dense and sparse index, graph, and a handle on the embedder."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pace_dspy.errors import ConfigError
from pace_dspy.retrieval.base import Embedder, FloatMatrix, Progress
from pace_dspy.retrieval.dense import DenseIndex
from pace_dspy.retrieval.facts import FactTable
from pace_dspy.retrieval.graph import KnnGraph
from pace_dspy.retrieval.ids import check_k, check_lengths
from pace_dspy.retrieval.repair import repaired
from pace_dspy.retrieval.sparse import SparseIndex
from pace_dspy.retrieval.vectors import as_matrix
from pace_dspy.types import Fact, Hit, View, ViewHits

GRAPH_K = 10
_KB_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_CHUNK = 512
_BYTES_PER_FACT = 400
"""Python's own bytes for two strings, a date, and their places in tuples and dictionaries."""


class KbIndex:
    """Everything needed to search one KB, and nothing of any other. Use `build`, or `storage.load_index`.

    It is immutable, shared by threads, and refuses to be copied or pickled: programs hold a ``kb_id`` and look the
    index up in `pace_dspy.retrieval.registry`. A change makes a new index that shares what stays (`changed`).

    Args:
        kb_id: Name of the KB; becomes part of paths.
        facts: n facts in corpus order.
        dense: Dense index over the n facts; its ids are the KB's.
        sparse: Sparse index over the same.
        graph: Graph over the same.
        embedder: The embedder that made the vectors.
        version: Counts the stored changes of the KB; 0 for an index that was never stored.
    """

    def __init__(
        self,
        kb_id: str,
        facts: FactTable,
        dense: DenseIndex,
        sparse: SparseIndex,
        graph: KnnGraph,
        embedder: Embedder,
        version: int = 0,
    ) -> None:
        self.kb_id = check_kb_id(kb_id)
        self.facts, self.doc_ids, self.texts, self.dates = facts, facts.doc_ids, facts.texts, facts.dates
        for name, part in (("vectors", dense), ("sparse entries", sparse), ("graph entries", graph)):
            check_lengths(self.doc_ids, part, name)
        self.dense, self.sparse, self.graph, self.embedder = dense, sparse, graph, embedder
        self.content_hash = facts.content_hash
        self.version = version

    @classmethod
    def build(
        cls,
        kb_id: str,
        facts: Sequence[Fact],
        embedder: Embedder,
        graph_k: int = GRAPH_K,
        progress: Progress | None = None,
    ) -> KbIndex:
        """Embed and index facts. Costs no model call.

        Args:
            kb_id: Letters, digits, ``.``, ``_``, ``-``.
            facts: Any number, none included.
            embedder: Embeds the facts now and the views later.
            graph_k: Neighbours kept a fact. The paper's: 10.
            progress: Called with (facts embedded, facts in all).

        Raises:
            ConfigError: ``kb_id`` is not allowed.
            ValueError: Repeated ``doc_id``, ``graph_k`` < 0, or an embedder that breaks its contract.
        """
        check_kb_id(kb_id)
        check_k(graph_k, "graph_k")
        table = FactTable.of(facts)
        vectors = embed_facts(table.texts, embedder, progress)
        graph = KnnGraph.build(table.doc_ids, vectors, graph_k)
        sparse = SparseIndex.build(table.doc_ids, table.texts)
        return cls(kb_id, table, DenseIndex.build(table.doc_ids, vectors), sparse, graph, embedder)

    def changed(
        self,
        removed: Iterable[int],
        added: Sequence[Fact],
        matrix: FloatMatrix,
        rows: NDArray[np.int64],
        version: int | None = None,
    ) -> KbIndex:
        """Return the index after facts were taken out and others put at the end; this one stays as it is.

        Args:
            removed: Positions taken out.
            added: New facts.
            matrix: ``(n_rows, dim)`` float32: this index's ``dense.matrix``, longer by new rows.
            rows: ``(len(added),)`` int64, ascending: the row of each new fact, all after this index's rows.
            version: The new version, one more by default.

        Raises:
            ValueError: An id would occur twice.
        """
        kept = np.ones(len(self), dtype=bool)
        kept[list(removed)] = False
        facts = self.facts.changed(kept, added)
        own = self.dense.rows_at(np.flatnonzero(kept))
        dense = DenseIndex(facts.doc_ids, matrix, np.concatenate([own, rows]).astype(np.int64))
        sparse = self.sparse.changed(facts.doc_ids, kept, [fact.text for fact in added])
        graph = repaired(self.graph, dense, kept)
        number = self.version + 1 if version is None else version
        return KbIndex(self.kb_id, facts, dense, sparse, graph, self.embedder, number)

    @property
    def snapshot(self) -> KbIndex:
        """This index itself, so that it can stand where a `LiveKb` may."""
        return self

    @property
    def n_bytes(self) -> int:
        """Estimated bytes of memory: mapped files, arrays, texts and ids."""
        postings, graph = self.sparse.postings, self.graph
        arrays: list[NDArray[Any]] = [self.dense.matrix, graph.neighbours, graph.similarities, self.sparse.matrix.data]
        arrays += [postings.indices, postings.counts, postings.indptr, postings.lengths, self.facts.hashes]
        strings = sum(map(len, self.texts)) + sum(map(len, self.doc_ids))
        return sum(array.nbytes for array in arrays) + strings + _BYTES_PER_FACT * len(self)

    def __len__(self) -> int:
        return len(self.doc_ids)

    def search(self, views: Sequence[View], k: int) -> list[ViewHits]:
        """Search all views: one embedding batch, one FAISS call, one sparse pass.

        Args:
            views: The original request and counter views. A blank one finds nothing.
            k: Hits a retriever and view, capped at the number of facts. The paper's: 10.

        Returns:
            Hits of each view, parallel to ``views``.

        Raises:
            ValueError: ``k`` < 0.
            BackendError: A remote embedder failed.

        Paper: hybrid retrieval.
        """
        return self.search_embedded(views, self.embed(views), k)

    def embed(self, views: Sequence[View]) -> FloatMatrix:
        """Return ``(n_views, dim)`` float32 query vectors from one batch; a blank view has the zero vector.

        Raises:
            BackendError: A remote embedder failed.
        """
        vectors = np.zeros((len(views), self.dense.dim), dtype=np.float32)
        asked = [number for number, view in enumerate(views) if view.text.strip()]
        if asked and len(self):
            texts = [views[number].text for number in asked]
            found = as_matrix(self.embedder.embed_queries(texts), f"query vectors of {self.embedder.id}")
            check_rows(found, len(texts), self.dense.dim, self.embedder)
            vectors[asked] = found
        return vectors

    def search_embedded(self, views: Sequence[View], vectors: FloatMatrix, k: int) -> list[ViewHits]:
        """Search views whose vectors are known; see `search`.

        Args:
            views: The views.
            vectors: ``(n_views, dim)`` float32, from `embed`.
            k: Hits a retriever and view.

        Raises:
            ValueError: ``k`` < 0, or not one vector a view.
        """
        k = check_k(k)
        if len(views) != len(vectors):
            raise ValueError(f"{len(views)} views but {len(vectors)} query vectors; give one for each view")
        found = [ViewHits((), ()) for _ in views]
        asked = [number for number, view in enumerate(views) if view.text.strip()]
        if not asked or not len(self) or not k:
            return found
        dense = self.dense.search_positions(vectors if len(asked) == len(views) else vectors[asked], k)
        sparse = self.sparse.search_positions([views[number].text for number in asked], k)
        sides = zip(asked, dense.positions.tolist(), dense.scores.tolist(), sparse, strict=True)
        for number, positions, scores, of_sparse in sides:
            found[number] = ViewHits(self._hits(positions, scores), self._hits(*of_sparse))
        return found

    def text(self, doc_id: str) -> str:
        """Return the text of a fact.

        Raises:
            KeyError: Not a fact of this KB.
        """
        return self.texts[self.doc_ids.position(doc_id)]

    def date(self, doc_id: str) -> dt.date | None:
        """Return the date of a fact, ``None`` when undated.

        Raises:
            KeyError: Not a fact of this KB.
        """
        return self.dates[self.doc_ids.position(doc_id)]

    def __repr__(self) -> str:
        return f"KbIndex({self.kb_id!r}, {len(self)} facts, embedder {self.embedder.id!r})"

    def __copy__(self) -> NoReturn:
        self._refuse()

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self._refuse()

    def __reduce__(self) -> NoReturn:
        self._refuse()

    def _hits(self, positions: Sequence[int], scores: Sequence[float]) -> tuple[Hit, ...]:
        return tuple(map(Hit, self.doc_ids.take(positions), scores))

    def _refuse(self) -> NoReturn:
        raise TypeError(
            f"the index of KB {self.kb_id!r} is never copied or pickled; "
            "keep its kb_id and look it up with pace_dspy.retrieval.get_kb(kb_id)"
        )


def check_kb_id(kb_id: str) -> str:
    """Return ``kb_id`` when it may become part of a path.

    Raises:
        ConfigError: It may not; says what is allowed.
    """
    if not _KB_ID.fullmatch(kb_id) or kb_id in (".", ".."):
        raise ConfigError(
            f"kb_id {kb_id[:80]!r} is not allowed: use 1-128 letters, digits, '.', '_' or '-', and not '.' or '..'"
        )
    return kb_id


def check_rows(vectors: FloatMatrix, n_texts: int, dim: int, embedder: Embedder) -> None:
    """Refuse vectors that are not one of length ``dim`` for each text.

    Raises:
        ValueError: With both shapes.
    """
    if vectors.shape != (n_texts, dim):
        raise ValueError(f"embedder {embedder.id!r} gave shape {vectors.shape} where ({n_texts}, {dim}) is needed")


def embed_facts(texts: Sequence[str], embedder: Embedder, progress: Progress | None = None) -> FloatMatrix:
    """Return ``(n, dim)`` float32 vectors of fact texts, checked.

    Raises:
        ValueError: The embedder breaks its contract.
    """
    # Facts of similar length go together, so that batches waste little on padding.
    order = sorted(range(len(texts)), key=lambda position: len(texts[position]))
    vectors = np.zeros((len(texts), embedder.dim), dtype=np.float32)
    for start in range(0, len(texts), _CHUNK):
        rows = order[start : start + _CHUNK]
        part = as_matrix(embedder.embed_documents([texts[row] for row in rows]), f"embeddings of {embedder.id}")
        check_rows(part, len(rows), embedder.dim, embedder)
        vectors[rows] = part
        if progress:
            progress(start + len(rows), len(texts))
    return vectors
