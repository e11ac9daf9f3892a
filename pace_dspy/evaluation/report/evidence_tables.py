"""Where evidence is lost, and what that does to the answers: funnel and coverage. Paper: Fig. 3; the funnel is ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pace_dspy.evaluation.coverage import COVERAGES, CoverageLevel, CoverageReport, Outcome, coverage_metrics
from pace_dspy.evaluation.funnel import FATES, STAGES, Fate
from pace_dspy.evaluation.funnel_report import Funnel, funnel_report
from pace_dspy.evaluation.report.paper import paper_results
from pace_dspy.evaluation.report.runs import ReportRun
from pace_dspy.evaluation.report.score_tables import GROUP_TITLES
from pace_dspy.evaluation.report.specs import PASS, MetricSpec
from pace_dspy.evaluation.report.table import NOTHING, Cell, Column, Table, TableRow, percent
from pace_dspy.evaluation.scores import Grouped, ratio

FATE_TITLES: Mapping[str, str] = {
    "cited": "cited",
    "in_evidence": "in the evidence",
    "not_cited": "found, not cited",
    "post_filter": "dropped by the post-hop filter or final cut",
    "prefilter": "dropped by the prefilter",
    "second_look": "lost by the second look",
    "walk": "lost by the walk",
    "pre_filter": "dropped by the pre-hop filter",
    "fusion": "cut by fusion",
    "no_view": "no view found it",
}
"""Fate of a gold fact in words."""

STAGE_TITLES: Mapping[str, str] = {
    "views": "found by a view",
    "fused": "fused list",
    "seeds": "seeds",
    "pool": "reached by the walk",
    "second_look": "after the second look",
    "prefilter": "after the prefilter",
    "evidence": "evidence",
    "cited": "cited",
}

COVERAGE_TITLES = {"none": "no gold fact", "partial": "some gold facts", "full": "all gold facts"}


def coverage_of_runs(runs: Sequence[ReportRun], spec: MetricSpec) -> dict[str, CoverageReport]:
    """Return the outcome by coverage of every run that has one."""
    outcome: Outcome = "pass" if spec is PASS else "decision_accuracy"
    reports = {run.name: coverage_metrics(run.rows, outcome=outcome) for run in runs}
    return {name: report for name, report in reports.items() if any(level.n for level in report.levels)}


def coverage_table(reports: Mapping[str, CoverageReport], spec: MetricSpec) -> Table:
    """Return the outcome by how much of the gold the first ten facts of the evidence cover. Paper: Fig. 3."""
    columns = [Column("Run", numeric=False), *(Column(COVERAGE_TITLES[name], "in the evidence") for name in COVERAGES)]
    rows = []
    for name, report in reports.items():
        rows.append(TableRow(Cell(name), tuple(_level(level) for level in report.levels)))
    note = ""
    if spec is PASS:
        published = paper_results()["coverage_figure"]
        full, partial = (published[key] for key in ("full_gold", "partial_hit_without_gold"))
        texts = (" / ".join(f"{value:.1f}" for value in values) for values in (partial, full))
        rows.append(TableRow(Cell("paper"), (Cell(NOTHING), *map(Cell, texts)), "paper"))
        note = f"The paper's numbers are those of {published['order']}."
    caption = f"{spec.title} by coverage of the gold facts, in percent"
    return Table("coverage", caption, tuple(columns), tuple(rows), note)


def funnels_of_runs(runs: Sequence[ReportRun]) -> dict[str, Grouped[Funnel]]:
    """Return the funnel of every run, overall, by label and by situation type."""
    return {run.name: funnel_report(run.rows) for run in runs}


def fate_table(funnels: Mapping[str, Grouped[Funnel]]) -> Table:
    """Return what became of the gold facts, as shares that sum up to 100 a run."""
    present = fates_present(report.overall for report in funnels.values())
    columns = (Column("Run", numeric=False), *(Column(FATE_TITLES.get(fate, fate)) for fate in present))
    rows = tuple(
        TableRow(Cell(name, f"{report.overall.n_gold} gold facts"), _fates(report.overall, present))
        for name, report in funnels.items()
    )
    note = "A fact is lost at the first stage after the last one that had it; facts found again later are not lost."
    return Table("fates", "Fate of the gold facts, in percent", columns, rows, note)


def group_fate_table(funnels: Mapping[str, Grouped[Funnel]]) -> Table:
    """Return the fates by label and situation type."""
    present = fates_present(report.overall for report in funnels.values())
    columns = (Column("Run and group", numeric=False), *(Column(FATE_TITLES.get(fate, fate)) for fate in present))
    rows = []
    for name, report in funnels.items():
        for group, funnel in {**report.by_label, **report.by_type}.items():
            title = f"{name}: {GROUP_TITLES.get(group, group)}"
            rows.append(TableRow(Cell(title, f"{funnel.n_gold} gold facts"), _fates(funnel, present)))
    return Table("fates-by-group", "Fate of the gold facts by label and type, in percent", columns, tuple(rows))


def stage_table(funnels: Mapping[str, Grouped[Funnel]]) -> Table:
    """Return the share of the gold facts that is in the list of each stage, and what each stage keeps."""
    names = {stage.stage for report in funnels.values() for stage in report.overall.stages}
    present = [spec.name for spec in STAGES if spec.name in names]
    columns = (Column("Run", numeric=False), *(Column(STAGE_TITLES.get(name, name)) for name in present))
    rows = []
    for name, report in funnels.items():
        own = {stage.stage: stage for stage in report.overall.stages}
        cells = []
        for stage in (own.get(stage_name) for stage_name in present):
            if stage is None:
                cells.append(Cell(NOTHING))
                continue
            added = f", {stage.n_new} new" if stage.n_new else ""
            cells.append(Cell(percent(stage.recall), f"kept {stage.n_kept} of {stage.n_offered}{added}", stage.recall))
        rows.append(TableRow(Cell(name), tuple(cells)))
    note = "Pooled over gold facts. A dash: the method has no such stage."
    return Table("stages", "Share of the gold facts after each stage, in percent", columns, tuple(rows), note)


def fates_present(funnels: Iterable[Funnel]) -> list[Fate]:
    """Return the fates that occur, from kept to lost earliest."""
    all_funnels = list(funnels)
    kept: tuple[Fate, ...] = ("cited", "in_evidence")
    order = [*kept, *(fate for fate in reversed(FATES) if fate not in kept)]
    return [fate for fate in order if any(funnel.fates[fate] for funnel in all_funnels)]


def _fates(funnel: Funnel, present: Sequence[Fate]) -> tuple[Cell, ...]:
    shares = {fate: ratio(funnel.fates[fate], funnel.n_gold) for fate in FATES}
    return tuple(Cell(percent(shares[fate]), str(funnel.fates[fate]), shares[fate]) for fate in present)


def _level(level: CoverageLevel) -> Cell:
    n = f"n = {level.n}" + (f" of {level.n_requests}" if level.n_unscored else "")
    return Cell(percent(level.value), f"{n}\n{percent(level.share, 0)}% of requests", level.value)
