"""The steps between the agents: search and fusion, walk, second look, prefilter, notes. None asks a model by itself."""

from pace_dspy.steps.notes import clash_notes
from pace_dspy.steps.prefilter import prefilter
from pace_dspy.steps.search import search
from pace_dspy.steps.second_look import look_again
from pace_dspy.steps.walk import walk

__all__ = ["clash_notes", "look_again", "prefilter", "search", "walk"]
