"""Which module plays each agent: chosen by config, so that ablations and variants never copy the program."""

from __future__ import annotations

import dspy

from pace_dspy.config import AgentsConfig
from pace_dspy.modules.answerer import Answerer
from pace_dspy.modules.evidence import PostHopFilter, PreHopFilter
from pace_dspy.modules.off import KeepFirst, NoAnswerer, NoPlanner, OriginalViewOnly
from pace_dspy.modules.planner import Planner
from pace_dspy.modules.rules import EmbeddingFilter, RulePlanner, TemplateViews
from pace_dspy.modules.second_look import SecondLook
from pace_dspy.modules.views import MultiViewGenerator


def make_planner(agents: AgentsConfig) -> dspy.Module:
    """Return the planner of a config."""
    if agents.planner == "rules":
        return RulePlanner(agents.cues_max)
    return Planner(agents.cues_max) if agents.planner == "model" else NoPlanner()


def make_views(agents: AgentsConfig) -> dspy.Module:
    """Return the multi-view generator of a config."""
    if agents.views == "rules":
        return TemplateViews(agents.counter_views_max)
    return MultiViewGenerator(agents.counter_views_max) if agents.views == "model" else OriginalViewOnly()


def make_pre_filter(agents: AgentsConfig) -> dspy.Module:
    """Return the filter before the walk."""
    if agents.pre_filter == "rules":
        return _rule_filter(agents, agents.seeds)
    return PreHopFilter(agents.seeds) if agents.pre_filter == "model" else KeepFirst(agents.seeds)


def make_second_look(agents: AgentsConfig) -> dspy.Module | None:
    """Return the second look of a config, ``None`` with 0 rounds."""
    return SecondLook(agents.look_reads, agents.evidence, agents.follow_ups_max) if agents.rounds else None


def make_post_filter(agents: AgentsConfig) -> dspy.Module:
    """Return the filter after the walk."""
    if agents.post_filter == "rules":
        return _rule_filter(agents, agents.evidence)
    return PostHopFilter(agents.evidence) if agents.post_filter == "model" else KeepFirst(agents.evidence)


def make_answerer(agents: AgentsConfig) -> dspy.Module:
    """Return the answerer of a config."""
    return Answerer() if agents.answerer == "model" else NoAnswerer()


def _rule_filter(agents: AgentsConfig, keep: int) -> EmbeddingFilter:
    return EmbeddingFilter(
        keep, penalty=agents.spread, restart_discount=agents.restart_discount, wording=agents.wording
    )
