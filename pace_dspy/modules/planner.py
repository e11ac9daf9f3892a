"""The planner: where could a conflict hide? Paper: planner agent."""

from __future__ import annotations

from pace_dspy.calendar import today_line
from pace_dspy.modules.base import StageAgent
from pace_dspy.signatures import PlanProbes
from pace_dspy.types import Cue, Task

REPLY_TOKENS = 320


class Planner(StageAgent):
    """A task in, one to ``cues_max`` probing cues out; no cues when the model fails.

    Args:
        cues_max: Most cues kept. Paper: 3.
    """

    def __init__(self, cues_max: int = 3) -> None:
        super().__init__("planner", PlanProbes, reply_tokens=REPLY_TOKENS)
        self.cues_max = cues_max

    def forward(self, task: Task) -> tuple[Cue, ...]:
        """Return the cues. Anchors that are not words of the request are dropped."""
        reply = self.ask(request=task.request, today=today_line(task.reference_date))
        if reply is None:
            return ()
        lowered = task.request.lower()
        return tuple(
            Cue(
                direction=cue.direction.strip(),
                why=cue.why.strip(),
                anchors=tuple(anchor for anchor in cue.anchors if anchor.strip() and anchor.lower() in lowered),
            )
            for cue in reply.cues
            if cue.direction.strip()
        )[: self.cues_max]
