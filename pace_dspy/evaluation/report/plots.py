"""The plots of a report: metric by group, funnel, coverage, paired differences, time a stage. Paper: Figures 3, 5-7."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from pace_dspy.evaluation.coverage import COVERAGES, CoverageReport
from pace_dspy.evaluation.funnel_report import Funnel
from pace_dspy.evaluation.report.evidence_tables import COVERAGE_TITLES, FATE_TITLES, fates_present
from pace_dspy.evaluation.report.figures import (
    COLOURS,
    MARKERS,
    Plot,
    draw_plot,
    legend_above,
    percent_axis,
    plain,
)
from pace_dspy.evaluation.report.score_tables import clear
from pace_dspy.evaluation.report.specs import MetricSpec
from pace_dspy.evaluation.report.table import percent, points
from pace_dspy.evaluation.scores import Grouped
from pace_dspy.evaluation.statistics import Comparison, Interval

FATE_COLOURS: Mapping[str, str] = {
    "cited": "#0B5D3B",
    "in_evidence": "#2E8B62",
    "not_cited": "#A7D8B8",
    "post_filter": "#FBD38D",
    "prefilter": "#F7CB83",
    "second_look": "#F2C879",
    "walk": "#F6AD55",
    "pre_filter": "#E8804A",
    "fusion": "#C8553D",
    "no_view": "#6B2737",
}
"""Green: kept; from yellow to dark red: lost, the earlier the darker."""

LIGHT = frozenset({"not_cited", "post_filter", "prefilter", "second_look", "walk", "pre_filter"})


def group_plot(scores: Mapping[str, Mapping[str, Interval]], spec: MetricSpec) -> Plot:
    """Draw one metric by label and situation type, with intervals, one colour and shape a run."""
    groups = list(next(iter(scores.values())))
    step = 0.8 / max(len(scores), 1)

    def draw(axes: Axes, narrow: bool) -> None:
        for i, (run, own) in enumerate(scores.items()):
            at = [row + (i - (len(scores) - 1) / 2) * step for row in range(len(groups))]
            _dots(axes, [own[group] for group in groups], at, i, plain(run))
        _rows(axes, groups)
        percent_axis(axes, f"{spec.title}, %", -2, 102)
        legend_above(axes, _columns(scores, narrow))

    title = f"{spec.title} by label and situation type; lines are 95% intervals over personas"
    alt = f"{title}. Over all: " + ", ".join(f"{run} {percent(own['all'].value)}%" for run, own in scores.items())
    height = 1.1 + len(groups) * (0.22 + 0.13 * len(scores))
    return draw_plot(
        f"{spec.name.replace('@', '_at_')}_by_group",
        title,
        alt + ". All numbers are in the table below.",
        draw,
        height_in=height,
        narrow_height_in=height + 0.2 * _legend_rows(scores, narrow=True),
    )


def funnel_plot(funnels: Mapping[str, Grouped[Funnel]]) -> Plot:
    """Draw the fates of the gold facts as one bar a run."""
    shares = {run: report.overall.shares for run, report in funnels.items()}
    present = fates_present(report.overall for report in funnels.values())

    def draw(axes: Axes, narrow: bool) -> None:
        left = [0.0] * len(shares)
        for fate in present:
            widths = [100 * (share[fate] or 0.0) for share in shares.values()]
            bars = axes.barh(
                range(len(shares)),
                widths,
                left=left,
                color=FATE_COLOURS.get(fate, "#999999"),
                edgecolor="white",
                height=0.62,
                label=FATE_TITLES.get(fate, fate),
            )
            texts = [f"{width:.0f}" if width >= (9 if narrow else 4) else "" for width in widths]
            axes.bar_label(bars, texts, label_type="center", color="#222222" if fate in LIGHT else "white", fontsize=9)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        names = [textwrap.fill(run, 13, break_long_words=False) if narrow else run for run in shares]
        axes.set_yticks(range(len(shares)), [plain(name) for name in names])
        axes.set_ylim(len(shares) - 0.5, -0.5)
        percent_axis(axes, "share of the gold facts, %")
        legend_above(axes, 1 if narrow else 2)

    title = "The evidence funnel: what became of the gold facts"
    kept = {
        run: percent((share["cited"] or 0) + (share["in_evidence"] or 0) + (share["not_cited"] or 0))
        for run, share in shares.items()
    }
    alt = f"{title}. In the evidence: " + ", ".join(f"{run} {value}%" for run, value in kept.items())
    height = 0.8 + 0.42 * len(shares)
    return draw_plot(
        "funnel",
        title,
        alt + ". All shares are in the table below.",
        draw,
        height_in=height + 0.22 * ((len(present) + 1) // 2),
        narrow_height_in=height + 0.22 * len(present),
    )


def coverage_plot(reports: Mapping[str, CoverageReport], spec: MetricSpec, order: Sequence[str]) -> Plot:
    """Draw the outcome by coverage of the gold facts; ``order`` holds all runs, for their colours. Paper: Fig. 3."""
    step = 0.8 / len(reports)

    def draw(axes: Axes, narrow: bool) -> None:
        for i, (run, report) in enumerate(reports.items()):
            at = [row + (i - (len(reports) - 1) / 2) * step for row in range(len(COVERAGES))]
            widths = [100 * (level.value or 0.0) for level in report.levels]
            bars = axes.barh(
                at, widths, height=step * 0.9, color=COLOURS[order.index(run) % len(COLOURS)], label=plain(run)
            )
            texts = [f" {percent(level.value, 0)} (n = {level.n})" if level.n else " n = 0" for level in report.levels]
            axes.bar_label(bars, texts, fontsize=8.5)
        axes.set_yticks(range(len(COVERAGES)), [COVERAGE_TITLES[name].replace(" gold", "\ngold") for name in COVERAGES])
        axes.set_ylim(len(COVERAGES) - 0.5, -0.5)
        percent_axis(axes, f"{spec.title}, %", 0, 130 if narrow else 112)
        axes.set_xticks(range(0, 101, 20))
        legend_above(axes, _columns(reports, narrow))

    title = f"{spec.title} by how much of the gold is in the evidence"
    texts = (
        f"{run}: " + ", ".join(f"{COVERAGE_TITLES[level.coverage]} {percent(level.value)}%" for level in report.levels)
        for run, report in reports.items()
    )
    height = 1.0 + len(COVERAGES) * (0.25 + 0.2 * len(reports))
    extra = 0.2 * _legend_rows(reports, narrow=True)
    alt = f"{title}. {'; '.join(texts)}."
    return draw_plot("coverage", title, alt, draw, height_in=height, narrow_height_in=height + extra)


def difference_plot(
    pairs: Mapping[str, Mapping[str, Comparison]], specs: Sequence[MetricSpec], baseline: str, order: Sequence[str]
) -> Plot:
    """Draw paired differences from the baseline with intervals, one colour and shape a run, by ``order``."""
    shown = [spec for spec in specs if any(spec.name in found for found in pairs.values())]
    step = 0.8 / max(len(pairs), 1)

    def draw(axes: Axes, narrow: bool) -> None:
        for i, (run, found) in enumerate(pairs.items()):
            at = [row + (i - (len(pairs) - 1) / 2) * step for row in range(len(shown))]
            _dots(axes, [found[spec.name] for spec in shown], at, order.index(run), plain(run))
        axes.axvline(0, color="#222222", linewidth=1)
        _rows(axes, [spec.title.replace(" ", "\n") if narrow else spec.title for spec in shown])
        left, right = axes.get_xlim()
        percent_axis(axes, "difference, points", min(left, -5), max(right, 5))
        legend_above(axes, _columns(pairs, narrow))

    title = f"Paired differences from {baseline}; filled: the 95% interval leaves out 0"
    texts = (
        f"{run}: " + ", ".join(f"{spec.title} {points(found[spec.name].difference)}" for spec in shown)
        for run, found in pairs.items()
    )
    height = 1.1 + len(shown) * (0.22 + 0.13 * len(pairs))
    extra = 0.2 * _legend_rows(pairs, narrow=True)
    alt = f"{title}. {'; '.join(texts)}."
    return draw_plot("differences", title, alt, draw, height_in=height, narrow_height_in=height + extra)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a dot plot, top first, with a light line between them."""
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    for row in range(1, len(names)):
        axes.axhline(row - 0.5, color="#eeeeee", linewidth=0.8)


def _dots(axes: Axes, scores: Sequence[Interval | Comparison], at: Sequence[float], number: int, label: str) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    for score, y in zip(scores, at, strict=True):
        value = score.value if isinstance(score, Interval) else score.difference
        if value is None:
            continue
        known = score.low is not None and score.high is not None
        if score.low is not None and score.high is not None:
            axes.plot([100 * score.low, 100 * score.high], [y, y], color=colour, linewidth=1.6)
        open_dot = isinstance(score, Comparison) and not (known and clear(score))
        face = "white" if open_dot else colour
        axes.plot(100 * value, y, marker, color=colour, markerfacecolor=face, markersize=5.5, linestyle="none")
    axes.plot([], [], marker, color=colour, markersize=5.5, linestyle="none", label=label)


def _columns(runs: Mapping[str, object], narrow: bool) -> int:
    longest = max((len(run) for run in runs), default=1)
    return max(1, min(len(runs), (34 if narrow else 84) // (longest + 6)))


def _legend_rows(runs: Mapping[str, object], narrow: bool) -> int:
    return -(-len(runs) // _columns(runs, narrow))
