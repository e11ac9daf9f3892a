"""Term links: which facts of a knowledge base share a rare word, name or date, as a sparse matrix (ours).

The incidence matrix (one row a fact, one column a term) is kept whole, hubs and lone terms included. A changed fact
is a row taken out or put in; document frequencies, weights and the product are then computed again, which takes
milliseconds. The result equals a build from scratch for the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pace_dspy.entities.places import Vocabulary

HUB_SHARE, HUB_MIN, HUB_MAX = 0.05, 10, 30
NAME_WEIGHT = 6.0
"""How much more a shared name links than a shared word as rare (our choice; 4 to 16 do the same on PACE-mini)."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A term that two facts share, with the weight it gives their link (higher is rarer)."""

    key: str
    weight: float


class TermLinks:
    """Links between facts that share rare terms. Use `build`.

    Two facts are linked by the sum of ``idf^2 / doc_freq`` over the terms they share, names counted `NAME_WEIGHT`
    times, so that a term in two facts links them strongly and one in thirty hardly, and two facts about one Milan more
    than two that happen to say "ring the bell". A term in more than ``max(hub_min, hub_share * n)`` facts, or in
    more than ``hub_max``, links nothing: the owner's name is such a term.

    Args:
        rows: Term keys of each fact.
        names: Keys that are names of people, places and things.
        name_weight: Factor of a name's weight, > 0.
        hub_share: Share of the facts above which a term is a hub (our choice).
        hub_min: Facts up to which a term is never a hub, for small knowledge bases (our choice).
        hub_max: Facts above which a term always is one (our choice).
    """

    def __init__(
        self,
        rows: Sequence[frozenset[str]],
        *,
        names: frozenset[str] = frozenset(),
        name_weight: float = NAME_WEIGHT,
        hub_share: float = HUB_SHARE,
        hub_min: int = HUB_MIN,
        hub_max: int = HUB_MAX,
    ) -> None:
        if not 0.0 < name_weight < float("inf"):
            raise ValueError(f"name_weight must be a positive number, received {name_weight}; 1 treats names as words")
        self.rows, self.names, self.name_weight = tuple(rows), names, name_weight
        self.hub_share, self.hub_min, self.hub_max = hub_share, hub_min, hub_max
        n = len(self.rows)
        all_keys = sorted(set().union(*self.rows))
        columns = {key: column for column, key in enumerate(all_keys)}
        indices = np.fromiter((columns[key] for row in self.rows for key in sorted(row)), dtype=np.int32)
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in self.rows], dtype=np.int64)]).astype(np.int32)
        doc_freqs = np.bincount(indices, minlength=len(all_keys))
        kept = np.flatnonzero((doc_freqs >= 2) & (doc_freqs <= min(hub_max, max(hub_min, hub_share * n))))
        whole = sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(n, len(all_keys)))
        self.keys = tuple(all_keys[column] for column in kept.tolist())
        idf = np.log((n + 1) / (doc_freqs[kept] + 1))
        factor = np.where([key in names for key in self.keys], name_weight, 1.0)
        self.weights: NDArray[np.float32] = (factor * idf**2 / np.maximum(doc_freqs[kept], 1)).astype(np.float32)
        self.incidence = whole[:, kept]
        self.matrix = self._product()

    @classmethod
    def build(
        cls,
        vocabulary: Vocabulary,
        texts: Sequence[str],
        *,
        date_keys: Sequence[frozenset[str]] | None = None,
        name_weight: float = NAME_WEIGHT,
        hub_share: float = HUB_SHARE,
        hub_min: int = HUB_MIN,
        hub_max: int = HUB_MAX,
    ) -> TermLinks:
        """Link facts. A term is a name when it stands as one in any of them.

        Args:
            vocabulary: Finds the terms of a text.
            texts: Facts in corpus order.
            date_keys: For each fact, a key for every day it names (any text, such as ``2026-03-18``).
            name_weight: See the class.
            hub_share: See the class.
            hub_min: See the class.
            hub_max: See the class.

        Raises:
            ValueError: ``date_keys`` and ``texts`` differ in length.
        """
        rows = rows_of(vocabulary, texts, date_keys)
        names = frozenset(key for text in texts for key, kind in vocabulary.keys(text).items() if kind == "name")
        return cls(rows, names=names, name_weight=name_weight, hub_share=hub_share, hub_min=hub_min, hub_max=hub_max)

    def __len__(self) -> int:
        return len(self.rows)

    def repaired(
        self,
        *,
        removed: Iterable[int] = (),
        added: Sequence[frozenset[str]] = (),
        names: frozenset[str] = frozenset(),
    ) -> TermLinks:
        """Return the links after facts were taken out and put at the end; a changed fact is both.

        Args:
            removed: Positions taken out.
            added: Term keys of the new facts (`rows_of`).
            names: Names among them that were none before; a name stays one when its facts are taken out.
        """
        gone = set(removed)
        rows = [row for position, row in enumerate(self.rows) if position not in gone]
        return TermLinks(
            [*rows, *added],
            names=self.names | names,
            name_weight=self.name_weight,
            hub_share=self.hub_share,
            hub_min=self.hub_min,
            hub_max=self.hub_max,
        )

    def shared(self, first: int, second: int) -> tuple[Shared, ...]:
        """Return the terms that link two facts, strongest first (ties by key); none for a fact and itself."""
        if first == second:
            return ()
        found = [
            Shared(self.keys[column], float(self.weights[column]))
            for column in self._columns(first) & self._columns(second)
        ]
        return tuple(sorted(found, key=lambda shared: (-shared.weight, shared.key)))

    def _columns(self, row: int) -> set[int]:
        start, end = self.incidence.indptr[row], self.incidence.indptr[row + 1]
        return set(self.incidence.indices[start:end].tolist())

    def _product(self) -> sp.csr_matrix:
        """Return the ``(n, n)`` float32 symmetric matrix of link weights, diagonal empty."""
        if not self.keys:
            return sp.csr_matrix((len(self), len(self)), dtype=np.float32)
        scaled = self.incidence.multiply(np.sqrt(self.weights)[None, :]).tocsr()
        product = (scaled @ scaled.T).tocsr()
        product.setdiag(0)
        product.eliminate_zeros()
        product.sort_indices()
        return product


def rows_of(
    vocabulary: Vocabulary, texts: Sequence[str], date_keys: Sequence[frozenset[str]] | None = None
) -> list[frozenset[str]]:
    """Return the term keys of each fact, its days marked with ``@``.

    Raises:
        ValueError: ``date_keys`` and ``texts`` differ in length.
    """
    if date_keys is not None and len(date_keys) != len(texts):
        raise ValueError(
            f"{len(texts)} texts but {len(date_keys)} date_keys; give one (perhaps empty) set for each fact"
        )
    days = date_keys or [frozenset()] * len(texts)
    return [
        frozenset(vocabulary.keys(text)) | {f"@{day}" for day in fact_days}
        for text, fact_days in zip(texts, days, strict=True)
    ]
