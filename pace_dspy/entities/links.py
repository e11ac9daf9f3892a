"""Term links: which facts of a knowledge base share a rare word, name or date, as a sparse matrix (ours).

From the facts' terms the matrix takes milliseconds (60 at 10,000 facts), so a changed knowledge base builds it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        self.n_facts = n = len(rows)
        all_keys = sorted(set().union(*rows))
        columns = {key: column for column, key in enumerate(all_keys)}
        indices = np.fromiter((columns[key] for row in rows for key in sorted(row)), dtype=np.int32)
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)]).astype(np.int32)
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
        *,
        date_keys: Sequence[frozenset[str]] | None = None,
        name_weight: float = NAME_WEIGHT,
        hub_share: float = HUB_SHARE,
        hub_min: int = HUB_MIN,
        hub_max: int = HUB_MAX,
    ) -> TermLinks:
        """Link the facts of a vocabulary. A term is a name when it stands as one in any of them.

        Args:
            vocabulary: Terms of the facts.
            date_keys: For each fact, a key for every day it names (any text, such as ``2026-03-18``).
            name_weight: See the class.
            hub_share: See the class.
            hub_min: See the class.
            hub_max: See the class.

        Raises:
            ValueError: ``date_keys`` are not one (perhaps empty) set for each fact.
        """
        rows: Sequence[frozenset[str]] = vocabulary.rows
        if date_keys is not None:
            if len(date_keys) != len(rows):
                raise ValueError(
                    f"{len(rows)} facts but {len(date_keys)} date_keys; give one (perhaps empty) set for each fact"
                )
            rows = [
                row | {f"@{day}" for day in days} if days else row for row, days in zip(rows, date_keys, strict=True)
            ]
        return cls(
            rows,
            names=vocabulary.name_keys,
            name_weight=name_weight,
            hub_share=hub_share,
            hub_min=hub_min,
            hub_max=hub_max,
        )

    def __len__(self) -> int:
        return self.n_facts

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
