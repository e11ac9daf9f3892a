"""The ``batch`` backend: prompts go out and replies come back in files, a stage at a time over all requests."""

from pace_dspy.batch.files import OpenRound
from pace_dspy.batch.folder import BatchFolder
from pace_dspy.batch.rounds import Rounds, open_rounds

__all__ = ["BatchFolder", "OpenRound", "Rounds", "open_rounds"]
