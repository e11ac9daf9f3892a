"""What the report says, section by section, and what a reader must know before the numbers. Ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pace_dspy.evaluation.report.evidence_tables import (
    coverage_of_runs,
    coverage_table,
    fate_table,
    funnels_of_runs,
    group_fate_table,
    stage_table,
)
from pace_dspy.evaluation.report.figures import Plot
from pace_dspy.evaluation.report.plots import coverage_plot, difference_plot, funnel_plot, group_plot
from pace_dspy.evaluation.report.run_tables import cost_table, failed_table, failure_table, runs_table
from pace_dspy.evaluation.report.runs import ReportRun
from pace_dspy.evaluation.report.score_tables import (
    comparisons,
    difference_table,
    group_intervals,
    group_table,
    main_tables,
)
from pace_dspy.evaluation.report.specs import DECIDED, GOLD, PASS, RECALL, MetricSpec, outcome_of
from pace_dspy.evaluation.report.table import Table
from pace_dspy.evaluation.report.texts import Texts
from pace_dspy.evaluation.scores import finished

FEW_CASES = 20
"""Below this many personas an interval from drawing personas is too narrow; the report says so. Ours."""


@dataclass(frozen=True)
class Section:
    """One section: what it tells, its plots, its tables, and tables that are folded away."""

    id: str
    title: str
    lead: str
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...] = ()
    folded: tuple[Table, ...] = ()


def sections(runs: Sequence[ReportRun], groups: Sequence[Sequence[ReportRun]]) -> tuple[Section, ...]:
    """Return all sections with something to say.

    Args:
        runs: The runs.
        groups: Runs that are compared within their group, with its first one.
    """
    return tuple(_sections(runs, groups))


def _sections(runs: Sequence[ReportRun], groups: Sequence[Sequence[ReportRun]]) -> Iterator[Section]:
    outcome = next((spec for run in runs if (spec := outcome_of(run.rows)) is PASS), None) or next(
        (spec for run in runs if (spec := outcome_of(run.rows)) is not None), None
    )
    lead = "Small lines are 95% bootstrap intervals over personas. Retrieval is averaged over personas, as in the paper"
    if outcome is None:
        lead += ". None of these runs decided anything, so there is no answer table"
    yield Section("results", "Results", lead + ".", tuple(main_tables(runs)))
    compared = [group for group in groups if len(group) > 1]
    if compared:
        yield _differences(runs, compared, outcome)
    yield _groups(runs, outcome)
    if outcome is not None:
        yield from _coverage(runs, outcome)
    funnels = funnels_of_runs(runs)
    yield Section(
        "funnel",
        "Evidence funnel",
        "Where each gold fact was lost on its way to the answer.",
        (fate_table(funnels), stage_table(funnels)),
        (funnel_plot(funnels),),
        (group_fate_table(funnels),),
    )
    yield Section("cost", "Cost and latency", "What one request costs, stage by stage.", (cost_table(runs),))
    failed = failed_table(runs)
    yield Section(
        "failures",
        "Failures and fallbacks",
        "What went wrong, counted apart from wrong answers.",
        (failure_table(runs), *((failed,) if failed else ())),
    )
    yield Section("runs", "Runs", "What was run; the manifest in each run folder holds the rest.", (runs_table(runs),))


def _differences(
    runs: Sequence[ReportRun], groups: Sequence[Sequence[ReportRun]], outcome: MetricSpec | None
) -> Section:
    answers = () if outcome is None else (*((PASS,) if outcome is PASS else ()), DECIDED[0], *DECIDED[2:])
    specs = (RECALL, GOLD, *answers)
    tables, plots = [], []
    for number, (baseline, *others) in enumerate(groups, start=1):
        suffix = f"-{number}" if len(groups) > 1 else ""
        pairs = comparisons(others, baseline, specs)
        table = difference_table(pairs, specs, baseline)
        plot = difference_plot(pairs, specs, baseline.name, [run.name for run in runs])
        tables.append(replace(table, id=f"{table.id}{suffix}"))
        plots.append(replace(plot, name=f"{plot.name}{suffix}"))
    names = ", ".join(group[0].name for group in groups)
    against = names if len(groups) == 1 else f"the first one of its group ({names})"
    lead = f"Every run against {against}, on the same requests."
    return Section("differences", "Paired differences", lead, tuple(tables), tuple(plots))


def _groups(runs: Sequence[ReportRun], outcome: MetricSpec | None) -> Section:
    shown = (RECALL,) if outcome is None else (RECALL, outcome)
    plots = tuple(group_plot({run.name: group_intervals(run, spec) for run in runs}, spec) for spec in shown)
    tables = tuple(group_table(runs, spec) for spec in shown)
    lead = "The same runs, split by what was asked."
    return Section("groups", "By label and situation type", lead, tables, plots, (group_table(runs, GOLD),))


def _coverage(runs: Sequence[ReportRun], outcome: MetricSpec) -> Iterator[Section]:
    reports = coverage_of_runs(runs, outcome)
    if reports:
        lead = "Does having the decisive facts in the first ten of the evidence make the answer right?"
        table, plot = coverage_table(reports, outcome), coverage_plot(reports, outcome, [run.name for run in runs])
        yield Section("coverage", "Answer by coverage", lead, (table,), (plot,))


def notes(runs: Sequence[ReportRun], texts: Texts, n_trails: int) -> tuple[str, ...]:
    """Return what a reader must know before the numbers, as sentences."""
    return tuple(_notes(runs, texts, n_trails))


def _notes(runs: Sequence[ReportRun], texts: Texts, n_trails: int) -> Iterator[str]:
    rows = runs[0].rows
    if runs[0].data_name != "pace":
        yield (
            f"These runs are on {runs[0].manifest.dataset}, not on PACE: the paper's numbers stand beside them for "
            "orientation and cannot be compared with them."
        )
    n_cases = len({row["case_id"] for row in rows})
    if n_cases < FEW_CASES:
        yield (
            f"Only {n_cases} persona{'s' if n_cases > 1 else ''}: intervals are rough and rather too narrow; "
            "read small differences as noise."
        )
    if any(run.n_left_out for run in runs):
        left = ", ".join(f"{run.name} {run.n_left_out}" for run in runs)
        yield f"Only the {len(rows)} requests that all runs share are reported; left out: {left}."
    failed = {run.name: n for run in runs if (n := finished(run.rows).n_failed)}
    if failed:
        yield (
            "Scores are over finished requests only. Failed requests: "
            + ", ".join(f"{name} {n} of {len(rows)}" for name, n in failed.items())
            + "."
        )
    if texts.missing:
        yield f"Facts are shown by id, without their texts: {texts.missing}."
    if n_trails < len(rows):
        yield (
            f"Trails are shown for {n_trails} of {len(rows)} requests: failed ones first, then wrong answers, then "
            "those with lost gold facts. The run folders hold all."
        )
