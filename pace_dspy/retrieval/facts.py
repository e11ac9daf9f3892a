"""The facts of one KB as columns, with the hash that an index must agree with."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from pace_dspy.retrieval.ids import DocIds, check_lengths
from pace_dspy.types import Fact

_HASH_BYTES = 32


class FactTable:
    """Ids, texts and dates in corpus order. Immutable; a change makes a new table that shares what stays.

    Args:
        doc_ids: n unique ids.
        texts: n texts.
        dates: n dates or ``None``.
        hashes: ``(n, 32)`` uint8, `fact_hash` of each; computed when not given.

    Raises:
        ValueError: Different lengths.
    """

    def __init__(
        self,
        doc_ids: DocIds,
        texts: Sequence[str],
        dates: Sequence[dt.date | None],
        hashes: NDArray[np.uint8] | None = None,
    ) -> None:
        check_lengths(doc_ids, texts, "texts")
        check_lengths(doc_ids, dates, "dates")
        self.doc_ids, self.texts, self.dates = doc_ids, tuple(texts), tuple(dates)
        self.hashes = _hashes(zip(doc_ids, self.texts, self.dates, strict=True)) if hashes is None else hashes
        self.content_hash = hashlib.sha256(self.hashes.tobytes()).hexdigest()

    @classmethod
    def of(cls, facts: Sequence[Fact]) -> FactTable:
        """Return the table of facts in their order.

        Raises:
            ValueError: A ``doc_id`` is empty or occurs twice.
        """
        ids = DocIds(fact.doc_id for fact in facts)
        return cls(ids, [fact.text for fact in facts], [fact.date for fact in facts])

    def __len__(self) -> int:
        return len(self.doc_ids)

    def facts(self) -> list[Fact]:
        """Return the facts in corpus order, without metadata: an index does not keep it."""
        return [Fact(*columns) for columns in zip(self.doc_ids, self.texts, self.dates, strict=True)]

    def changed(self, kept: NDArray[np.bool_], added: Sequence[Fact]) -> FactTable:
        """Return the table after facts were taken out and new ones put at the end.

        Args:
            kept: ``(n,)`` whether each fact stays.
            added: New facts.

        Raises:
            ValueError: An id would occur twice.
        """
        stays = kept.tolist()
        new = _hashes((fact.doc_id, fact.text, fact.date) for fact in added)
        return FactTable(
            DocIds([*compress(self.doc_ids, stays), *(fact.doc_id for fact in added)]),
            [*compress(self.texts, stays), *(fact.text for fact in added)],
            [*compress(self.dates, stays), *(fact.date for fact in added)],
            np.concatenate([self.hashes[kept], new]),
        )


def fact_hash(doc_id: str, text: str, date: dt.date | None) -> bytes:
    """Return the SHA-256 of one fact; no two facts are written the same."""
    written = f"{len(doc_id)}:{doc_id}{len(text)}:{text}{date.isoformat() if date else ''}"
    return hashlib.sha256(written.encode("utf-8", errors="surrogatepass")).digest()


def content_hash(facts: Iterable[tuple[str, str, dt.date | None]]) -> str:
    """Return the SHA-256 (hex) over `fact_hash` of ``(doc_id, text, date)`` in corpus order."""
    return hashlib.sha256(_hashes(facts).tobytes()).hexdigest()


def _hashes(facts: Iterable[tuple[str, str, dt.date | None]]) -> NDArray[np.uint8]:
    joined = b"".join(fact_hash(*fact) for fact in facts)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, _HASH_BYTES)
