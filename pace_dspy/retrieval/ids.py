"""Fact ids in corpus order, shared by the indexes of one KB: ``doc_ids`` are ours, ``positions`` are row numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sized
from functools import cached_property


class DocIds:
    """An immutable list of unique ids with a look-up from id to position.

    Args:
        doc_ids: Ids in corpus order.

    Raises:
        ValueError: An id occurs twice or is empty.
    """

    def __init__(self, doc_ids: Iterable[str]) -> None:
        self._ids = tuple(doc_ids)
        if not all(self._ids):
            raise ValueError(f"doc_id at position {self._ids.index('')} is empty; every fact needs its own id")
        if len(set(self._ids)) != len(self._ids):
            twice = next(doc_id for doc_id, count in Counter(self._ids).items() if count > 1)
            raise ValueError(f"doc_id {twice!r} occurs twice; every fact needs its own id")

    @classmethod
    def of(cls, doc_ids: DocIds | Iterable[str]) -> DocIds:
        """Return ``doc_ids`` itself when it is a `DocIds` already, so that one KB holds its ids once."""
        return doc_ids if isinstance(doc_ids, cls) else cls(doc_ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __getitem__(self, position: int) -> str:
        return self._ids[position]

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self._positions

    def position(self, doc_id: str) -> int:
        """Return the row number of an id.

        Raises:
            KeyError: Not an id of this KB.
        """
        try:
            return self._positions[doc_id]
        except KeyError:
            raise KeyError(f"no fact {doc_id!r} among the {len(self)} facts of this index") from None

    def take(self, positions: Iterable[int]) -> list[str]:
        """Return the ids at positions."""
        ids = self._ids
        return [ids[position] for position in positions]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {doc_id: position for position, doc_id in enumerate(self._ids)}


def check_k(k: int, name: str = "k") -> int:
    """Return ``k`` when it is a count.

    Raises:
        ValueError: ``k`` is negative or no integer.
    """
    if isinstance(k, bool) or int(k) != k or k < 0:
        raise ValueError(f"{name} is {k!r}; it must be an integer >= 0")
    return int(k)


def check_lengths(doc_ids: DocIds, other: Sized, name: str) -> None:
    """Refuse columns of different length.

    Raises:
        ValueError: With both lengths.
    """
    if len(doc_ids) != len(other):
        raise ValueError(f"{len(doc_ids)} doc_ids but {len(other)} {name}; give one for each fact")
