"""One ``dspy.Module`` per agent of the paper."""

from pace_dspy.modules.answerer import Answer, Answerer
from pace_dspy.modules.evidence import EvidenceFilter, PostHopFilter, PreHopFilter
from pace_dspy.modules.planner import Planner
from pace_dspy.modules.views import MultiViewGenerator

__all__ = ["Answer", "Answerer", "EvidenceFilter", "MultiViewGenerator", "Planner", "PostHopFilter", "PreHopFilter"]
