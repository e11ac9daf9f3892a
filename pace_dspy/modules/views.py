"""The multi-view generator: counter queries that hunt for what could block the request. Paper: multi-view generator."""

from __future__ import annotations

from collections.abc import Sequence

from pace_dspy.calendar import today_line
from pace_dspy.modules.base import StageAgent
from pace_dspy.signatures import WriteCounterViews
from pace_dspy.types import Cue, Task, View

REPLY_TOKENS = 200
MAX_QUERY_CHARS = 400


class MultiViewGenerator(StageAgent):
    """A task and cues in; the original view and up to ``counter_views_max`` counter views out.

    Args:
        counter_views_max: Most counter views. Paper: 3.
    """

    def __init__(self, counter_views_max: int = 3) -> None:
        super().__init__("views", WriteCounterViews, reply_tokens=REPLY_TOKENS)
        self.counter_views_max = counter_views_max

    def forward(self, task: Task, cues: Sequence[Cue]) -> tuple[View, ...]:
        """Return the views, the original first; only the original when the model fails."""
        request = task.request
        reply = self.ask(request=request, today=today_line(task.reference_date), cues=cue_lines(cues))
        queries = [] if reply is None else [" ".join(query.split())[:MAX_QUERY_CHARS] for query in reply.queries]
        distinct = dict.fromkeys(query for query in queries if query and query.lower() != request.lower())
        counters = tuple(View("counter", query) for query in distinct)[: self.counter_views_max]
        return (View("original", request), *counters)


def cue_lines(cues: Sequence[Cue]) -> str:
    """Return the cues as prompt lines; ``none`` without cues."""
    return "\n".join(f"- {cue.direction}: {cue.why}" for cue in cues) or "none"
