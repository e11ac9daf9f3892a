"""The first section of a comparison of backends: quality beside cost, and what did not run. Ours."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pace_dspy.evaluation.backend_comparison import money, spent
from pace_dspy.evaluation.experiment_tables import Problem
from pace_dspy.evaluation.report.content import Section
from pace_dspy.evaluation.report.cost_quality import cost_quality_plot
from pace_dspy.evaluation.report.runs import ReportRun
from pace_dspy.evaluation.report.specs import DECIDED, PASS, RECALL, MetricSpec
from pace_dspy.evaluation.report.table import (
    NOTHING,
    Cell,
    Column,
    Table,
    TableRow,
    counts_text,
    interval_cell,
    number,
)
from pace_dspy.evaluation.scores import finished
from pace_dspy.evaluation.summary import summarise

ACCURACY, BALANCED, CONFLICT_RECALL, OVER_REFUSAL = DECIDED
SPECS: tuple[MetricSpec, ...] = (BALANCED, CONFLICT_RECALL, OVER_REFUSAL, ACCURACY, PASS, RECALL)
"""Shown where any run has a value."""


def backends_section(runs: Sequence[ReportRun], problems: Sequence[Problem] = ()) -> Section:
    """Return the runs in one table, one plot of quality over cost, and the runs that lack results.

    Args:
        runs: One a backend and method, named so.
        problems: What did not run, or not to the end.
    """
    plot = cost_quality_plot(runs)
    lost = (problem_table(problems),) if problems else ()
    lead = "The same requests, asked of every backend. Fallbacks, seconds and dollars are means of a request."
    return Section("backends", "Backends", lead, (backend_table(runs), *lost), (plot,) if plot else ())


def backend_table(runs: Sequence[ReportRun]) -> Table:
    """Return one row a run: answers, evidence, failures, fallbacks, time and money."""
    shown = [spec for spec in SPECS if any(spec.sample(run.rows, run.name).values for run in runs)]
    columns = [Column("Run", numeric=False)]
    columns += [Column(spec.title, "lower is better" if spec.lower_is_better else "") for spec in shown]
    columns += [Column("Seconds", "for the model"), Column("US dollars"), Column("Fallbacks")]
    rows = tuple(TableRow(Cell(run.name, _asked(run)), (*_scores(run, shown), *_costs(run))) for run in runs)
    reused = [f"{run.name} {n}" for run in runs if (n := spent(run.rows).n_reused)]
    note = (
        "Small: 95% bootstrap intervals over personas, and medians. Seconds are those of waiting for the model, its "
        "queue and retries included; the wall time of a request is under Cost. Failed requests are in no score."
    )
    if reused:
        note += f" Calls answered by the reply cache took no time and no money: {', '.join(reused)}."
    return Table("backends", "Backends side by side, scores in percent", tuple(columns), rows, note)


def problem_table(problems: Sequence[Problem]) -> Table:
    """Return what did not run, or not to the end, and why."""
    columns = (Column("Backend", "runs", numeric=False), Column("Why", numeric=False))
    rows = tuple(TableRow(Cell(one.backend, "\n".join(one.runs)), (Cell(one.reason),)) for one in problems)
    return Table("not-run", "Not run, or not to the end", columns, rows)


def _asked(run: ReportRun) -> str:
    n_failed = finished(run.rows).n_failed
    return f"{len(run.rows)} requests" + (f", {n_failed} failed" if n_failed else "")


def _scores(run: ReportRun, specs: Sequence[MetricSpec]) -> list[Cell]:
    n = len(finished(run.rows).rows)
    return [interval_cell(spec.interval(run.rows, run.name), n) for spec in specs]


def _costs(run: ReportRun) -> tuple[Cell, ...]:
    summary, took, ended = summarise(run.rows), spent(run.rows), finished(run.rows)
    n = max(len(ended.rows), 1)
    n_fallbacks = sum(summary.fallbacks.values())
    traces = [row["trace"] for row in ended.rows if row["trace"]]
    seconds = [sum(usage["latency_ms"] for usage in trace["usage"]) / 1000 for trace in traces]
    dollars = [sum(usage["cost_usd"] or 0.0 for usage in trace["usage"]) for trace in traces]
    price = Cell(NOTHING, "no price known") if took.usd is None else Cell(money(took.usd), value=took.usd)
    if took.usd:
        price = Cell(money(took.usd), f"median {money(statistics.median(dollars))}", took.usd)
    median = f"median {number(statistics.median(seconds), 2)}" if seconds else ""
    return (
        Cell(number(took.seconds, 2), median, took.seconds),
        price,
        Cell(number(n_fallbacks / n, 2), counts_text(summary.fallbacks) if n_fallbacks else "", n_fallbacks / n),
    )
