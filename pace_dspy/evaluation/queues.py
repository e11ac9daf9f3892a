"""What runs next: work in order, or requests sharded over workers by persona. Ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from pace_dspy.evaluation.scores import Key


class Work(Protocol):
    """One piece of work: a request to check, a response to judge."""

    @property
    def key(self) -> Key:
        """``(case_id, query_id)``."""
        ...

    @property
    def position(self) -> int:
        """Place in the data, for a stable order."""
        ...


W = TypeVar("W", bound=Work)


class Queue(Protocol[W]):
    """Work that is not started yet, and what of it may start now. Used from one thread."""

    def __len__(self) -> int:
        """Return the number of pieces that are not started."""
        ...

    def take(self) -> W | None:
        """Take the next piece that may start now; ``None`` when a running one must end first, or none is left."""
        ...

    def ended(self, piece: W) -> None:
        """Note that a piece which was taken has ended."""
        ...


class InOrder(Generic[W]):
    """Work in the order given, a fixed number at once.

    Args:
        work: What to do.
        limit: Most pieces running.
    """

    def __init__(self, work: Sequence[W], limit: int) -> None:
        self._todo, self._free = deque(work), limit

    def __len__(self) -> int:
        return len(self._todo)

    def take(self) -> W | None:
        """See `Queue.take`."""
        if not self._todo or not self._free:
            return None
        self._free -= 1
        return self._todo.popleft()

    def ended(self, piece: W) -> None:
        """See `Queue.ended`."""
        self._free += 1


class Shards(Generic[W]):
    """Work sharded by persona: all of a persona goes to one worker, which opens its knowledge base once.

    A worker with a free slot goes on with a persona it has; when all of its own are begun, it takes the next in line.
    So no worker waits while a persona is left, however long single requests take.

    Args:
        work: What to do; personas keep their order.
        slots: Most pieces running, for each worker.
    """

    def __init__(self, work: Sequence[W], slots: Sequence[int]) -> None:
        personas: dict[str, deque[W]] = {}
        for piece in work:
            personas.setdefault(piece.key[0], deque()).append(piece)
        self._waiting = deque(personas.values())
        self._begun: list[deque[W]] = [deque() for _ in slots]
        self._free = list(slots)
        self._left = len(work)
        self._worker: dict[str, int] = {}

    def __len__(self) -> int:
        return self._left

    def take(self) -> W | None:
        """See `Queue.take`. The worker with most free slots comes first."""
        for worker in sorted(range(len(self._free)), key=lambda number: -self._free[number]):
            if self._free[worker] and (self._begun[worker] or self._waiting):
                return self._next_of(worker)
        return None

    def ended(self, piece: W) -> None:
        """See `Queue.ended`."""
        self._free[self.worker_of(piece)] += 1

    def worker_of(self, piece: W) -> int:
        """Return the number of the worker that a piece was taken for, from 0."""
        return self._worker[piece.key[0]]

    def _next_of(self, worker: int) -> W:
        if not self._begun[worker]:
            self._begun[worker] = self._waiting.popleft()
        piece = self._begun[worker].popleft()
        self._worker[piece.key[0]] = worker
        self._free[worker] -= 1
        self._left -= 1
        return piece
