"""What a compile run tells those who look on: the screen and MLflow. Nothing they do changes the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pace_dspy.optimization.ledger import Candidate


def _silent(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Watch:
    """Functions that a run calls.

    Attributes:
        say: With a line of progress.
        candidate: With the group's name and each candidate scored on dev, in order, from the thread of the run.
        scored: With the group's name and the examples scored in it so far; from any thread, so it must be quick.
    """

    say: Callable[[str], None] = _silent
    candidate: Callable[[str, Candidate], None] = _silent
    scored: Callable[[str, int], None] = _silent
