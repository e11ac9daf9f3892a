"""Main tables beside the paper's numbers, the same by label and situation type, and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pace_dspy.evaluation.report.paper import PaperRow, paper_rows
from pace_dspy.evaluation.report.runs import ReportRun
from pace_dspy.evaluation.report.specs import DECIDED, JUDGED, RETRIEVAL, MetricSpec
from pace_dspy.evaluation.report.table import (
    NOTHING,
    Cell,
    Column,
    Table,
    TableRow,
    interval_cell,
    points,
    span,
)
from pace_dspy.evaluation.scores import grouped
from pace_dspy.evaluation.statistics import Comparison, Interval, compare

GROUP_TITLES = {"conflict": "conflict", "non_conflict": "non-conflict"}


def main_tables(runs: Sequence[ReportRun]) -> list[Table]:
    """Return the main tables: retrieval, judged answers, typed decisions; the latter two where there are any."""
    tables = [_main("retrieval", "Retrieval: evidence against the gold facts, in percent", RETRIEVAL, runs)]
    notes = "Share of the judged requests, judge errors left out."
    tables.append(_main("judged", "Answers as judged, in percent", JUDGED, runs, notes))
    tables.append(_main("decided", "Typed decisions (no judge needed), in percent", DECIDED, runs))
    return [table for table in tables if any(cell.value is not None for row in table.rows for cell in row.cells)]


def _main(name: str, caption: str, specs: Sequence[MetricSpec], runs: Sequence[ReportRun], note: str = "") -> Table:
    columns = [Column("Run", numeric=False)]
    columns += [Column(spec.title, "lower is better" if spec.lower_is_better else "") for spec in specs]
    rows: list[TableRow] = []
    last = {(run.manifest.method, run.config_name): run for run in runs}  # published rows stand once, behind it
    for run in runs:
        scores = [spec.interval(run.rows, run.name) for spec in specs]
        largest = max(score.n for score in scores)
        cells = tuple(interval_cell(score, largest) for score in scores)
        rows.append(TableRow(Cell(run.name, f"n = {largest}"), cells))
        if run is last[run.manifest.method, run.config_name]:
            rows += _paper(specs, paper_rows(run.manifest.method, run.config_name))
    return Table(name, caption, tuple(columns), tuple(rows), note)


def _paper(specs: Sequence[MetricSpec], published: Sequence[PaperRow]) -> list[TableRow]:
    rows = []
    for row in published:
        numbers = [row.values.get(spec.name) for spec in specs]
        if any(value is not None for value in numbers):
            cells = (Cell(NOTHING if value is None else f"{value:.2f}") for value in numbers)
            rows.append(TableRow(Cell(f"paper, {row.title}"), tuple(cells), "paper"))
    return rows


def group_intervals(run: ReportRun, spec: MetricSpec) -> dict[str, Interval]:
    """Return one metric of a run: ``all``, then each label, then each situation type that occurs."""
    groups = grouped(run.rows, lambda rows: spec.interval(rows, run.name))
    types = {name if name != "unknown" else "unknown type": score for name, score in groups.by_type.items()}
    labels = {GROUP_TITLES.get(name, f"{name} label"): score for name, score in groups.by_label.items()}
    return {"all": groups.overall, **labels, **types}


def group_table(runs: Sequence[ReportRun], spec: MetricSpec) -> Table:
    """Return one metric by label and situation type. Paper: Figures 5-7."""
    scores = {run.name: group_intervals(run, spec) for run in runs}
    first = scores[runs[0].name]
    asked = {name: score.n + score.n_failed + score.n_unscored for name, score in first.items()}
    columns = (Column("Run", numeric=False), *(Column(name, f"{n} requests") for name, n in asked.items()))
    rows = tuple(
        TableRow(Cell(name), tuple(interval_cell(score, asked[group]) for group, score in own.items()))
        for name, own in scores.items()
    )
    how = "macro over personas" if spec.average == "macro" else "over requests"
    return Table(f"by-group-{spec.name}", f"{spec.title} by label and situation type, in percent, {how}", columns, rows)


def comparisons(
    runs: Sequence[ReportRun], baseline: ReportRun, specs: Sequence[MetricSpec]
) -> dict[str, dict[str, Comparison]]:
    """Compare every run with the baseline, on the requests scored in both.

    Returns:
        By run and metric; metrics that no run shares with the baseline are left out.
    """
    own = {spec.name: spec.sample(baseline.rows, baseline.name) for spec in specs}
    pairs = {
        run.name: {
            spec.name: compare(spec.sample(run.rows, run.name), own[spec.name], average=spec.average) for spec in specs
        }
        for run in runs
        if run is not baseline
    }
    scored = {spec.name for spec in specs if any(found[spec.name].n_pairs for found in pairs.values())}
    return {run: {name: pair for name, pair in found.items() if name in scored} for run, found in pairs.items()}


def difference_table(
    pairs: Mapping[str, Mapping[str, Comparison]], specs: Sequence[MetricSpec], baseline: ReportRun
) -> Table:
    """Return the paired differences from the baseline, one row a run."""
    shown = [spec for spec in specs if any(spec.name in found for found in pairs.values())]
    columns = [Column("Run", numeric=False)]
    columns += [Column(spec.title, "lower is better" if spec.lower_is_better else "") for spec in shown]
    rows = tuple(
        TableRow(Cell(run), tuple(_difference(spec, found[spec.name]) for spec in shown))
        for run, found in pairs.items()
    )
    note = (
        "Each request is compared with itself; personas are drawn with all their requests (2,000 resamples). "
        "Better and worse: the 95% interval leaves out 0; unclear: it does not. "
        "p is two-sided, not corrected for the number of comparisons."
    )
    return Table("differences", f"Difference from {baseline.name}, in percentage points", tuple(columns), rows, note)


def _difference(spec: MetricSpec, pair: Comparison) -> Cell:
    if pair.difference is None:
        return Cell(NOTHING, "no pair")
    p_value = "" if pair.p_value is None else f", p = {pair.p_value:.3f}"
    lines = [span(pair.low, pair.high, signed=True), reading(spec, pair) + p_value, f"{pair.n_pairs} pairs"]
    return Cell(points(pair.difference), "\n".join(line for line in lines if line), pair.difference)


def clear(pair: Comparison) -> bool:
    """Return whether the interval of a difference leaves out 0."""
    return pair.low is not None and pair.high is not None and not pair.low <= 0 <= pair.high


def reading(spec: MetricSpec, pair: Comparison) -> str:
    """Return ``better``, ``worse`` or ``unclear``; the interval decides."""
    if pair.low is None or pair.difference is None:
        return "one persona, no interval"
    if not clear(pair):
        return "unclear"
    return "better" if (pair.difference > 0) != spec.lower_is_better else "worse"
