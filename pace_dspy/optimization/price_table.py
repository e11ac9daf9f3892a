"""What compiling costs, by optimizer, stages and backend: the same forecast as the dry run's, with no data at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pace_dspy.config import PaceMakerConfig
from pace_dspy.data.splits import DEFAULT_RATIOS
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.entries import BackendEntry
from pace_dspy.evaluation.report.paper import paper_results
from pace_dspy.optimization.budget import OptimizerPlan, Size, plan_proposals
from pace_dspy.optimization.cost import NOTHING, Cost
from pace_dspy.optimization.forecast import Material, forecast
from pace_dspy.optimization.groups import Group, groups_of
from pace_dspy.optimization.optimizers import needs_prompt_model
from pace_dspy.optimization.settings import CompileSettings, OptimizerName
from pace_dspy.program import PaceMakerProgram

FACT_CHARS = 79.0
"""Characters a fact: the mean of PACE-mini; that of PACE is not known to us."""
CHOICES: tuple[tuple[str, bool], ...] = (
    ("answerer", False),
    ("filters", False),
    ("planner,views", False),
    ("all", False),
    ("all", True),
)
"""Stages, and whether end to end, in the order of the table."""


@dataclass(frozen=True)
class PriceRow:
    """One line of the table.

    Attributes:
        stages: What is compiled.
        optimizer: With what.
        plans: One a group of stages.
        costs: By label of the backend.
    """

    stages: str
    optimizer: OptimizerName
    plans: tuple[OptimizerPlan, ...]
    costs: dict[str, Cost]


def pace_material(limit: int | None = None) -> Material:
    """Return PACE's train and dev sides in numbers, by our split of personas and the paper's means.

    Args:
        limit: Most requests of each side.
    """
    numbers = paper_results()["dataset"]
    train, dev = (round(numbers["queries"] * ratio) for ratio in DEFAULT_RATIOS[:2])
    most = limit or max(train, dev)
    gold, facts = float(numbers["gold_facts_per_query_mean"]), float(numbers["facts_per_case_mean"])
    return Material(min(train, most), min(dev, most), gold, facts, FACT_CHARS)


def price_rows(
    material: Material,
    backends: Sequence[BackendEntry],
    optimizers: Sequence[OptimizerName],
    *,
    proposals: int,
    config: str = "paper",
    max_demos: int = 3,
) -> list[PriceRow]:
    """Compute the cost of every optimizer on every choice of stages that it and the config can do.

    Args:
        material: The data in numbers.
        backends: Models that play the agents and propose.
        optimizers: Which ones.
        proposals: Candidates that each search scores on dev, a group of stages.
        config: Named config or file.
        max_demos: Most demos of a predictor.

    Raises:
        ConfigError: Unknown config, backend or setting.
    """
    program = PaceMakerProgram(PaceMakerConfig.load(config))
    rows = []
    for stages, end_to_end in CHOICES:
        for optimizer in optimizers:
            settings = CompileSettings(
                optimizer, "pace", Path("none"), stages=stages, end_to_end=end_to_end, max_demos=max_demos, threads=999
            )
            if optimizer == "labeled" and (end_to_end or stages not in ("answerer", "filters")):
                continue  # has no gold outputs to show
            try:
                groups = groups_of(program, settings)
            except ConfigError:
                continue  # this config asks no model in these stages
            plans = tuple(plan_proposals(optimizer, _size(material, group, max_demos), proposals) for group in groups)
            costs = {entry.label: _cost(groups, program, settings, material, entry, plans) for entry in backends}
            rows.append(PriceRow("end to end" if end_to_end else stages, optimizer, plans, costs))
    return rows


def table_lines(rows: Sequence[PriceRow]) -> list[str]:
    """Return the table in Markdown: what is done, and what it costs with each backend."""
    labels = list(rows[0].costs) if rows else []
    head = ["stages", "optimizer", "proposals", "examples scored", "model calls", "tokens read", "written", *labels]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        first = next(iter(row.costs.values()), NOTHING)
        counts = [
            str(sum(plan.proposals for plan in row.plans)),
            f"{sum(plan.expected for plan in row.plans):,}",
            f"{first.calls:,}",
            f"{first.prompt_tokens / 1e6:.1f} M",
            f"{first.completion_tokens / 1e6:.2f} M",
        ]
        money = ["no price" if cost.usd is None else f"${cost.usd:,.2f}" for cost in row.costs.values()]
        lines.append([row.stages, row.optimizer, *counts, *money])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _size(material: Material, group: Group, max_demos: int) -> Size:
    return Size(material.n_train, material.n_dev, len(group.predictors), max_demos)


def _cost(
    groups: Sequence[Group],
    program: PaceMakerProgram,
    settings: CompileSettings,
    material: Material,
    entry: BackendEntry,
    plans: Sequence[OptimizerPlan],
) -> Cost:
    profile = entry.profile()
    proposing = profile if needs_prompt_model(settings.optimizer) else None
    made = forecast(groups, program, settings, material, profile, proposing, plans)
    return sum((one.cost for one in made), NOTHING)
