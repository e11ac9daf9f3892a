"""The contracts that every embedder, searcher and walk keeps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pace_dspy.types import View, ViewHits

FloatMatrix = NDArray[np.float32]
IntMatrix = NDArray[np.int32]

Progress = Callable[[int, int], None]
"""Called as ``progress(n_done, n_total)`` from the calling thread, with ``n_done`` rising to ``n_total``."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors.

    Contract (ours):
        * The vector of a text depends on the text alone, never on the texts around it, beyond rounding.
        * Rows are finite and of unit length, so that an inner product is a cosine similarity in [-1, 1].
        * The output has one row a text, in the order given; no texts give shape ``(0, dim)``.
        * Calls from several threads are safe, and the input is not changed.
        * ``id`` names everything that changes a vector (model, weights, prompts), never a key. Two embedders
          with one id give the same vectors; a stored index is refused when its embedder id differs.
    """

    @property
    def id(self) -> str:
        """Stable name of the vectors, stored in every index."""
        ...

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed facts.

        Args:
            texts: The texts, any number.

        Returns:
            ``(len(texts), dim)`` float32, rows of unit length.
        """
        ...

    def embed_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed queries; differs from `embed_documents` only for models trained with a query prompt.

        Args:
            texts: The texts, any number.

        Returns:
            ``(len(texts), dim)`` float32, rows of unit length.
        """
        ...


@dataclass(frozen=True)
class HopStep:
    """One hop that added something: ``hop`` counts from 0 as in the parity data (the seeds are before it)."""

    hop: int
    n_collected: int
    n_new: int


@dataclass(frozen=True)
class Expansion:
    """The facts a walk collected.

    Attributes:
        doc_ids: Seeds first, then facts in the order they were reached, without repeats.
        hops: Hop number of each, parallel to ``doc_ids``; 0 for a seed, 1 for its neighbours, and so on.
    """

    doc_ids: list[str]
    hops: list[int]

    @property
    def hop_trace(self) -> list[HopStep]:
        """Size of the collection after each hop that added something."""
        counts = np.bincount(np.asarray(self.hops, dtype=np.int64)) if self.hops else np.zeros(0, dtype=np.int64)
        totals = np.cumsum(counts)
        return [HopStep(hop - 1, int(totals[hop]), int(counts[hop])) for hop in range(1, len(counts))]


class Walk(Protocol):
    """Collects facts around seeds."""

    def expand(self, seeds: Sequence[str], max_hops: int, neighbors_per_hop: int) -> Expansion:
        """Walk from the seeds.

        Args:
            seeds: Fact ids of this KB; of a repeat the first is kept.
            max_hops: Hops at most; 0 returns the seeds.
            neighbors_per_hop: Neighbours followed per fact; 0 means none.

        Returns:
            The seeds and what they reach; the same input gives the same output.

        Raises:
            KeyError: A seed is not in this KB.
        """
        ...


class ViewSearcher(Protocol):
    """Searches one KB with all views of a request."""

    @property
    def kb_id(self) -> str:
        """The KB, and only this KB, that is searched."""
        ...

    def search(self, views: Sequence[View], k: int) -> list[ViewHits]:
        """Return at most ``k`` hits a retriever for each view, parallel to ``views``; blank views give none."""
        ...

    def text(self, doc_id: str) -> str:
        """Return the text of a fact of this KB."""
        ...

    def date(self, doc_id: str) -> dt.date | None:
        """Return the date of a fact of this KB, ``None`` when undated."""
        ...
