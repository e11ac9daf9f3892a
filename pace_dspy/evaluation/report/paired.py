"""Paired differences of runs as text: every metric beside its interval, p and number of pairs. Ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.report.runs import ReportRun, load_runs
from pace_dspy.evaluation.report.score_tables import comparisons, reading
from pace_dspy.evaluation.report.specs import ACCURACY, DECIDED, JUDGED, RETRIEVAL, MetricSpec
from pace_dspy.evaluation.report.table import percent, points, span
from pace_dspy.evaluation.statistics import Comparison, McNemar, mcnemar_exact

SPECS: Mapping[str, MetricSpec] = {spec.name: spec for spec in (*DECIDED, *JUDGED, *RETRIEVAL)}
HEAD = ("", "before", "after", "difference", "95% interval", "p", "pairs", "")


@dataclass(frozen=True)
class Paired:
    """One run against the first one.

    Attributes:
        before: The first run.
        after: The other one.
        differences: By metric, after minus before; metrics without any pair are left out.
        decisions: Right and wrong decisions side by side, ``None`` when no request was decided in both.
    """

    before: ReportRun
    after: ReportRun
    differences: Mapping[str, Comparison]
    decisions: McNemar | None


def paired_differences(folders: Sequence[Path], *, intersect: bool = False) -> tuple[Paired, ...]:
    """Compare every run with the first one, request by request.

    Args:
        folders: Run folders, at least two.
        intersect: Compare on the requests all runs share when they were asked different ones.

    Raises:
        ConfigError: Fewer than two folders, or runs that `load_runs` refuses.
    """
    if len(folders) < 2:
        raise ConfigError(f"two run folders or more are compared, received {len(folders)}; give the first one first")
    first, *others = load_runs(folders, intersect=intersect)
    found = comparisons((first, *others), first, tuple(SPECS.values()))
    return tuple(Paired(first, run, found[run.name], _decisions(first, run)) for run in others)


def paired_lines(pair: Paired) -> list[str]:
    """Return one comparison as lines of text."""
    before, after = pair.before, pair.after
    head = f"{after.name} ({after.folder}) against {before.name} ({before.folder}), {len(before.rows)} requests"
    lines = [head, *_table([_row(SPECS[name], found) for name, found in pair.differences.items()])]
    if (test := pair.decisions) is not None:
        lines.append(
            f"decisions: both right {test.both_right}, only after {test.only_a}, only before {test.only_b}, both wrong "
            f"{test.both_wrong}; McNemar's exact p {test.p_value:.3f} (as if no two requests shared a persona)"
        )
    return lines


def _decisions(first: ReportRun, run: ReportRun) -> McNemar | None:
    after, before = ACCURACY.sample(run.rows, run.name), ACCURACY.sample(first.rows, first.name)
    return mcnemar_exact(after, before) if set(after.values) & set(before.values) else None


def _row(spec: MetricSpec, pair: Comparison) -> tuple[str, ...]:
    p_value = "" if pair.p_value is None else f"{pair.p_value:.3f}"
    interval = span(pair.low, pair.high, signed=True)
    numbers = (percent(pair.value_b), percent(pair.value_a), points(pair.difference), interval, p_value)
    return (spec.title, *numbers, str(pair.n_pairs), reading(spec, pair) if pair.n_pairs else "no pair")


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in (HEAD, *rows)) for column in range(len(HEAD))]
    lines = []
    for title, *cells in (HEAD, *rows):
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join((title.ljust(widths[0]), *padded)).rstrip())
    return lines
