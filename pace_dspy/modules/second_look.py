"""The second look (ours): keep what matters of the pool and ask for what is still missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pace_dspy.calendar import today_line
from pace_dspy.modules.base import StageAgent, chosen_positions, numbered
from pace_dspy.modules.views import MAX_QUERY_CHARS
from pace_dspy.signatures import LookAgain
from pace_dspy.types import Candidate, Task

REPLY_TOKENS = 240


@dataclass(frozen=True)
class Looked:
    """What one second look gave.

    Attributes:
        selected: Ids of useful facts, best first.
        follow_ups: Queries for what is missing; empty when nothing is, or when the reply stayed unusable.
    """

    selected: tuple[str, ...]
    follow_ups: tuple[str, ...]


class SecondLook(StageAgent):
    """The first facts of the pool in; useful facts and up to ``follow_ups_max`` follow-up queries out.

    Args:
        reads: Facts shown.
        keep: Most useful facts kept.
        follow_ups_max: Most follow-up queries.
    """

    def __init__(self, reads: int = 20, keep: int = 10, follow_ups_max: int = 3) -> None:
        super().__init__("second_look", LookAgain, reply_tokens=REPLY_TOKENS)
        self.reads, self.keep, self.follow_ups_max = reads, keep, follow_ups_max

    def forward(self, task: Task, candidates: Sequence[Candidate], asked: Sequence[str]) -> Looked:
        """Look once.

        Args:
            task: The request.
            candidates: The pool, best first.
            asked: Query texts that were searched before; a repeat is dropped.
        """
        offered = candidates[: self.reads]
        if not offered:
            return Looked((), ())
        lines = numbered([candidate.text for candidate in offered])
        fixed = {"request": task.request, "today": today_line(task.reference_date)}
        shown = self.fit(lines, "candidates", **fixed)
        reply = self.ask(**fixed, candidates="\n".join(lines[:shown]))
        if reply is None:
            return Looked((), ())
        positions = chosen_positions(reply.useful, shown, self.keep)
        known = {folded(text) for text in asked}
        queries = [" ".join(query.split())[:MAX_QUERY_CHARS] for query in reply.missing]
        fresh = {folded(query): query for query in reversed(queries)}
        follow_ups = [query for key, query in reversed(fresh.items()) if key and key not in known]
        return Looked(
            tuple(offered[position].doc_id for position in positions), tuple(follow_ups[: self.follow_ups_max])
        )


def folded(query: str) -> str:
    """Return a query without case, punctuation and repeated blanks, to tell repeats."""
    return " ".join("".join(c if c.isalnum() else " " for c in query.lower()).split())
