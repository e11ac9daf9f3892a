"""Quality over cost: one point a run, money to the right, or time where nothing costs any. Ours."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from pace_dspy.evaluation.backend_comparison import money, spent
from pace_dspy.evaluation.report.figures import COLOURS, MARKERS, Plot, draw_plot, legend_above, plain
from pace_dspy.evaluation.report.runs import ReportRun
from pace_dspy.evaluation.report.specs import DECIDED, PASS, MetricSpec
from pace_dspy.evaluation.report.table import percent
from pace_dspy.evaluation.statistics import Interval

BALANCED = DECIDED[1]
LEGEND_WIDE, LEGEND_NARROW = 84, 34
"""Letters in a line of the legend."""
WIDE_RATIO = 8.0
"""From this ratio of the dearest to the cheapest on, the axis is logarithmic. Ours."""


@dataclass(frozen=True)
class Axis:
    """The horizontal axis.

    Attributes:
        title: Its label.
        values: By run; ``None`` where it is not known.
        why: Why it is time, for the caption; empty for money.
    """

    title: str
    values: tuple[float | None, ...]
    why: str = ""


def cost_axis(runs: Sequence[ReportRun]) -> Axis:
    """Return money where every run has a price and one is not free, else seconds."""
    took = [spent(run.rows) for run in runs]
    unknown = [run.name for run, one in zip(runs, took, strict=True) if one.usd is None]
    if not unknown and any(one.usd for one in took):
        return Axis("US dollars a request", tuple(one.usd for one in took))
    why = f"no price known for {', '.join(unknown)}" if unknown else "no run costs money"
    if len(unknown) == len(runs):
        why = "no price known"
    return Axis("seconds a request waits for the model", tuple(one.seconds for one in took), why)


def quality_of(runs: Sequence[ReportRun]) -> MetricSpec | None:
    """Return PASS where any run was judged, else balanced accuracy, ``None`` where nothing was decided."""
    return next(
        (spec for spec in (PASS, BALANCED) if any(spec.sample(run.rows, run.name).values for run in runs)), None
    )


def cost_quality_plot(runs: Sequence[ReportRun]) -> Plot | None:
    """Draw a point a run, with the interval of its quality; ``None`` where there is no quality or no cost."""
    spec, axis = quality_of(runs), cost_axis(runs)
    if spec is None:
        return None
    found = [
        (number, run.name, value, score)
        for number, (run, value) in enumerate(zip(runs, axis.values, strict=True))
        if value is not None and (score := spec.interval(run.rows, run.name)).value is not None
    ]
    if not found:
        return None

    longest = max(len(name) for _, name, _, _ in found)

    def columns(narrow: bool) -> int:
        return max(1, min(len(found), (LEGEND_NARROW if narrow else LEGEND_WIDE) // (longest + 6)))

    def draw(axes: Axes, narrow: bool) -> None:
        for number, name, value, score in found:
            _point(axes, number, textwrap.fill(name, LEGEND_NARROW - 2) if narrow else name, value, score)
        _set_up(axes, axis, spec, [value for _, _, value, _ in found])
        legend_above(axes, columns(narrow))

    what = f"{spec.title} and {axis.title}" + (f" ({axis.why})" if axis.why else "")
    points = (f"{name} {percent(score.value)}% at {value:.3g}" for _, name, value, score in found)
    return draw_plot(
        "cost_quality",
        f"{what}; lines are 95% intervals over personas",
        f"{what}: {', '.join(points)}. All numbers are in the table below.",
        draw,
        height_in=3.0 + 0.2 * -(-len(found) // columns(narrow=False)),
        narrow_height_in=2.6 + 0.2 * len(found) * (1 + longest // LEGEND_NARROW),
    )


def _point(axes: Axes, number: int, name: str, value: float, score: Interval) -> None:
    around, place = divmod(number, len(COLOURS))
    colour, marker = COLOURS[place], MARKERS[(place + around) % len(MARKERS)]
    if score.low is not None and score.high is not None:
        axes.plot([value, value], [100 * score.low, 100 * score.high], color=colour, linewidth=1.4)
    height = 100 * (score.value or 0.0)
    axes.plot(value, height, marker, color=colour, markersize=7, linestyle="none", label=plain(name))


def _set_up(axes: Axes, axis: Axis, spec: MetricSpec, values: Sequence[float]) -> None:
    if min(values) > 0 and max(values) / min(values) > WIDE_RATIO:
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 1.6, max(values) * 1.6)
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    else:
        axes.set_xlim(0, max(max(values) * 1.12, 1e-9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value >= 0.01 else money(value)))
    axes.set_xlabel(axis.title)
    axes.set_ylim(-3, 103)
    axes.set_ylabel(f"{spec.title}, %")
    if spec is BALANCED:
        axes.axhline(50, color="#888888", linewidth=1, linestyle="--")
        axes.annotate(
            "the same answer to everything",
            (0.995, 52),
            xycoords=("axes fraction", "data"),
            ha="right",
            fontsize=8,
            color="#666666",
        )
    axes.grid(color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, which="both")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
