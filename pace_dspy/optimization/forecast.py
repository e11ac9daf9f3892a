"""What a compile run will do and take, group by group, from numbers of its data: for the dry run and the guide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.backends.profiles import BackendProfile
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.estimate import pool_size
from pace_dspy.optimization.budget import OptimizerPlan, Size, least_metric_calls, plan_optimizer
from pace_dspy.optimization.cost import NOTHING, CallSize, Cost, call_size, calls_within, estimate, prompt_cost
from pace_dspy.optimization.examples import Key, Sets
from pace_dspy.optimization.groups import Group
from pace_dspy.optimization.metrics import offered_to
from pace_dspy.optimization.settings import NO_OPTIMIZER, Budget, CompileSettings
from pace_dspy.optimization.stage_programs import predictor_stages
from pace_dspy.program import PaceMakerProgram
from pace_dspy.types import Dataset, Trace

MAKES_LISTS = ("pre_filter", "post_filter")


@dataclass(frozen=True)
class Material:
    """What a run works on, in numbers.

    Attributes:
        n_train: Requests to learn from.
        n_dev: Requests to choose by.
        n_gold: Gold facts a request.
        n_facts: Facts a knowledge base.
        fact_chars: Characters a fact.
        offered: Facts that a filter is shown on dev, by stage; where recorded traces tell.
    """

    n_train: int
    n_dev: int
    n_gold: float
    n_facts: float
    fact_chars: float
    offered: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Forecast:
    """One group of stages: what its optimizer will do.

    Attributes:
        group: The group.
        plan: Options and limits of its optimizer.
        cost: Of optimizing, lists and proposals included.
        calibration: Of fitting the threshold afterwards.
    """

    group: Group
    plan: OptimizerPlan
    cost: Cost
    calibration: Cost = NOTHING


def material_of(dataset: Dataset, sets: Sets, recorded: Mapping[Key, Trace] | None) -> Material:
    """Return the numbers of a run's data."""
    asked = [example.case_id for example in (*sets.train, *sets.dev)]
    cases = [case for case in dataset.cases if case.case_id in set(asked)]
    texts = [len(fact.text) for case in cases for fact in case.facts]
    gold = [len(example.gold_doc_ids) for example in (*sets.train, *sets.dev)]
    traces = recorded or {}
    dev = [traces[key] for example in sets.dev if (key := (example.case_id, example.query_id)) in traces]
    offered = {stage: fmean(len(offered_to(stage, trace)) for trace in dev) for stage in MAKES_LISTS if dev}
    return Material(
        len(sets.train), len(sets.dev), fmean(gold), len(texts) / len(cases), fmean(texts) if texts else 0.0, offered
    )


def forecast(
    groups: Sequence[Group],
    program: PaceMakerProgram,
    settings: CompileSettings,
    material: Material,
    profile: BackendProfile,
    prompt_profile: BackendProfile | None,
    plans: Sequence[OptimizerPlan] | None = None,
) -> tuple[Forecast, ...]:
    """Plan every group inside its share of the budget, and compute what it costs.

    Args:
        groups: Groups of stages.
        program: The program.
        settings: The run.
        material: Its data.
        profile: Backend of the agents.
        prompt_profile: Backend that proposes, ``None`` when nothing is proposed.
        plans: Ready plans, one a group, in place of those that fit the budget.

    Raises:
        ConfigError: The budget cannot do one full proposal of a group.
    """
    parts = [_Part(group, program, settings, material, profile, prompt_profile) for group in groups]
    chosen = plans if plans is not None else _plans(parts, settings.budget)
    return tuple(
        Forecast(part.group, plan, part.cost(plan), part.calibration) for part, plan in zip(parts, chosen, strict=True)
    )


def shares(forecasts: Sequence[Forecast]) -> tuple[float, ...]:
    """Return the part of minutes and money, in (0, 1], that may be used up when each group ends.

    By what the groups are expected to take, calibration last; so a group that is slower than expected cannot use up
    what the later ones need.
    """
    costs = [one.cost for one in forecasts]
    whole = sum((one.cost + one.calibration for one in forecasts), NOTHING)
    if not whole.minutes:
        return tuple(1.0 for _ in costs)
    return tuple(sum(cost.minutes for cost in costs[: n + 1]) / whole.minutes for n in range(len(costs)))


@dataclass(frozen=True)
class _Part:
    """What the plan and the cost of one group depend on."""

    group: Group
    program: PaceMakerProgram
    settings: CompileSettings
    material: Material
    profile: BackendProfile
    prompt_profile: BackendProfile | None

    def least(self) -> Cost:
        """Return the cost of the least plan there is."""
        optimizer = self.settings.optimizer
        calls = None if optimizer == NO_OPTIMIZER else least_metric_calls(optimizer, self.size)
        return self.cost(plan_optimizer(optimizer, self.size, calls))

    def plan_within(self, budget: Budget) -> OptimizerPlan:
        """Return the plan that a budget has room for, proposals and everything else included."""
        settings, size = self.settings, self.size
        calls = calls_within(budget, self._examples)
        plan = plan_optimizer(settings.optimizer, size, calls)
        while settings.optimizer != NO_OPTIMIZER and not _inside(self.cost(plan), budget):
            try:
                plan = plan_optimizer(settings.optimizer, size, int(plan.metric_calls * 0.97))
            except ConfigError:  # the least that can be done; the limits of the run itself still hold
                break
        return plan

    def cost(self, plan: OptimizerPlan) -> Cost:
        """Return what a plan costs, with lists to be made and proposals."""
        settings = self.settings
        total = self._examples(plan.expected - plan.repeated) if plan.expected else NOTHING
        if self.group.name in MAKES_LISTS and settings.recorded is None and settings.optimizer != NO_OPTIMIZER:
            total = total + self._lists()
        if self.prompt_profile is not None:
            total = total + prompt_cost(self.prompt_profile, plan.proposal_calls)
        return total

    @property
    def size(self) -> Size:
        """Its examples."""
        return Size(self.material.n_train, self.material.n_dev, len(self.group.predictors), self.settings.max_demos)

    @property
    def calibration(self) -> Cost:
        """What fitting the threshold costs."""
        wanted = self.settings.calibrate and "answerer" in self.group.stages
        return self._examples(self.material.n_dev) if wanted else NOTHING

    @cached_property
    def _calls(self) -> tuple[CallSize, ...]:
        """The calls of one example."""
        asked = predictor_stages(self.group.student(self.program)).values()
        stages = self.group.stages if self.group.staged else tuple(dict.fromkeys(asked))
        distractors = self.settings.n_distractors if self.group.staged else None
        return _sizes(stages, self.program, self.material, distractors)

    def _examples(self, n: int) -> Cost:
        settings = self.settings
        demos, programs = settings.max_demos if settings.optimizer != "gepa" else 0, max(1, n // self.material.n_dev)
        return estimate(self.profile, self._calls, n, programs, demos=demos, in_flight=settings.threads)

    def _lists(self) -> Cost:
        """Return the cost of making a filter's candidate lists: every earlier stage, once a request."""
        stages = tuple(dict.fromkeys(predictor_stages(self.program).values()))
        before = _sizes(stages[: stages.index(self.group.name)], self.program, self.material, None)
        n = self.material.n_train + self.material.n_dev
        return estimate(self.profile, before, n, 1, in_flight=self.settings.threads)


def _inside(cost: Cost, budget: Budget) -> bool:
    slow = budget.minutes is not None and cost.minutes > budget.minutes
    return not slow and not (budget.usd is not None and cost.usd is not None and cost.usd > budget.usd)


def facts_shown(stage: str, config: PaceMakerConfig, material: Material, n_distractors: int | None) -> float:
    """Return how many facts a stage is shown.

    Args:
        stage: The stage.
        config: Of the program.
        material: The data.
        n_distractors: Of the answerer on frozen facts; ``None`` in the whole program.
    """
    agents = config.agents
    if stage == "answerer":
        return agents.evidence if n_distractors is None else material.n_gold + n_distractors
    shown = {
        "pre_filter": min(config.retrieval.fused_top_k, material.n_facts),
        "second_look": min(agents.look_reads, material.n_facts),
        "post_filter": pool_size(config, material.n_facts),
    }
    return material.offered.get(stage, shown.get(stage, 0.0))


def _sizes(
    stages: Sequence[str], program: PaceMakerProgram, material: Material, n_distractors: int | None
) -> tuple[CallSize, ...]:
    adapter = PaceAdapter()
    return tuple(
        call_size(
            adapter,
            getattr(program, stage),
            facts_shown(stage, program.config, material, n_distractors),
            material.fact_chars,
        )
        for stage in stages
    )


def _plans(parts: Sequence[_Part], budget: Budget) -> list[OptimizerPlan]:
    """Fit every part into its share: equal parts of the metric calls; minutes and money by what its least plan needs.

    The calibration's minutes and money are set aside first.
    """
    least = [part.least() for part in parts]
    left = sum((part.calibration for part in parts), NOTHING)
    minutes = None if budget.minutes is None else max(0.0, budget.minutes - left.minutes)
    usd = None if budget.usd is None else max(0.0, budget.usd - (left.usd or 0.0))
    whole = sum(cost.minutes for cost in least)
    plans = []
    for part, cost in zip(parts, least, strict=True):
        share = cost.minutes / whole if whole else 1 / len(parts)
        calls = None if budget.metric_calls is None else budget.metric_calls // len(parts)
        own = Budget(calls, None if minutes is None else minutes * share, None if usd is None else usd * share)
        plans.append(part.plan_within(own))
    return plans
