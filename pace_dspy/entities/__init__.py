"""People, places and things of one knowledge base, and the links between facts that share them (ours)."""

from pace_dspy.entities.channels import TimeIndex, people_channel
from pace_dspy.entities.constraints import constraint_kinds, constraint_strength
from pace_dspy.entities.links import Shared, TermLinks
from pace_dspy.entities.names import Reading
from pace_dspy.entities.people import People, PersonMention
from pace_dspy.entities.places import Term, Vocabulary
from pace_dspy.entities.ppr import FactGraph, GraphKind, Reached
from pace_dspy.entities.spread import evidence_scores, spread

__all__ = [
    "FactGraph",
    "GraphKind",
    "People",
    "PersonMention",
    "Reached",
    "Reading",
    "Shared",
    "Term",
    "TermLinks",
    "TimeIndex",
    "Vocabulary",
    "constraint_kinds",
    "constraint_strength",
    "evidence_scores",
    "people_channel",
    "spread",
]
