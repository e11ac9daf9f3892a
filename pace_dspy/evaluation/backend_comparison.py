"""What ``experiments/compare_backends.py`` adds to an experiment: backends beside each other, and the report of that.

Runs of the same method, config and seed are compared on the same requests; the first backend is the reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pace_dspy.evaluation.experiment_tables import CellResult, markdown, problems_of
from pace_dspy.evaluation.flight import usage_of
from pace_dspy.evaluation.resampling import Mean
from pace_dspy.evaluation.samples import sample_of
from pace_dspy.evaluation.scores import Row, finished
from pace_dspy.evaluation.statistics import Comparison, compare

if TYPE_CHECKING:
    from pace_dspy.evaluation.report import Report

METRICS: tuple[tuple[str, str, Mean], ...] = (
    ("balanced accuracy", "decision_accuracy", "balanced"),
    ("conflict recall", "conflict_recall", "micro"),
    ("over-refusal", "over_refusal_rate", "micro"),
    ("PASS", "pass", "micro"),
    ("R@10", "recall@10", "macro"),
    ("Gold@10", "gold@10", "macro"),
)
"""Title, metric and mean of what is compared."""


@dataclass(frozen=True)
class Spent:
    """What a finished request took on average.

    Attributes:
        seconds: Spent waiting for the model; ``None`` without a finished request. Unlike wall time it leaves out what
            is built once a knowledge base, which the first backend would pay for all.
        usd: Money; ``None`` without a finished request, or where the price of a call is not known.
        n_reused: Calls of all requests that the reply cache answered: they took no time and no money.
    """

    seconds: float | None
    usd: float | None
    n_reused: int


def spent(rows: Sequence[Row]) -> Spent:
    """Return what the finished requests of a run took on average."""
    traces = [row["trace"] for row in finished(rows).rows if row["trace"]]
    usages = [usage for trace in traces for usage in usage_of({"trace": trace})]
    known = bool(traces) and all(usage["cost_usd"] is not None for usage in usages if usage["calls"])
    return Spent(
        seconds=sum(usage["latency_ms"] for usage in usages) / len(traces) / 1000 if traces else None,
        usd=sum(usage["cost_usd"] or 0.0 for usage in usages) / len(traces) if known else None,
        n_reused=sum(usage["cached_calls"] for usage in usages),
    )


def money(usd: float) -> str:
    """Return an amount with two digits that count, such as ``0.00012``, and never an exponent."""
    return f"{usd:.{max(2, 1 - math.floor(math.log10(usd)))}f}" if usd > 0 else "0"


def groups_of(results: Sequence[CellResult]) -> list[list[CellResult]]:
    """Return the runs that differ in nothing but their backend, in the order of the backends."""
    groups: dict[tuple[object, ...], list[CellResult]] = {}
    for result in results:
        groups.setdefault(_what(result), []).append(result)
    return list(groups.values())


def shown_of(results: Sequence[CellResult]) -> list[CellResult]:
    """Return the runs to compare, by method: those that were asked everything, or else all with a finished request.

    A run that broke off early would leave only its few requests to compare all others on.
    """
    ended = [result for result in results if result.has_finished]
    whole = [result for result in ended if result.outcome is not None and len(result.rows) == result.outcome.planned]
    return [result for group in groups_of(whole or ended) for result in group]


def names_of(results: Sequence[CellResult]) -> list[str]:
    """Return a name for every run: its backend, with method and seed where these differ."""
    methods = {_method(result) for result in results}
    seeds = {result.cell.settings.seed for result in results}
    names = []
    for result in results:
        parts = [_method(result)] if len(methods) > 1 else []
        parts += [f"seed {result.cell.settings.seed}"] if len(seeds) > 1 else []
        names.append(f"{result.cell.backend}: {', '.join(parts)}" if parts else result.cell.backend)
    return names if len(set(names)) == len(names) else [result.cell.name for result in results]


def comparison_tables(results: Sequence[CellResult]) -> str:
    """Return what a request costs by backend, and the paired differences from the first one; empty without runs."""
    shown = shown_of(results)
    tables = [_spent_table(shown)] if shown else []
    tables += [table for group in groups_of(shown) if len(group) > 1 and (table := _difference_table(group))]
    return "\n\n".join(tables)


def comparison_page(results: Sequence[CellResult], page: Path, data: str, max_trails: int) -> Report:
    """Write the report, with the backends beside each other in front.

    Raises:
        ImportError: Matplotlib or Jinja is not installed.
        ConfigError: See `build_report`.
    """
    from pace_dspy.evaluation.report import build_report
    from pace_dspy.evaluation.report.backends import backends_section

    shown = shown_of(results)
    return build_report(
        [result.folder for result in shown],
        page,
        intersect=True,
        data=data,
        max_trails=max_trails,
        names=names_of(shown),
        groups=[[result.folder for result in group] for group in groups_of(shown)],
        first=partial(backends_section, problems=problems_of(results)),
    )


def _what(result: CellResult) -> tuple[object, ...]:
    settings = result.cell.settings
    return (settings.method, result.cell.config.name, settings.embedder, settings.seed, result.cell.varied)


def _method(result: CellResult) -> str:
    method, config = result.cell.settings.method, result.cell.config.name
    if method == "pacemaker":
        return config
    return method if config == "paper" else f"{method} {config}"


def _spent_table(results: Sequence[CellResult]) -> str:
    lines = [["run", "n", "failed", "seconds of the model", "USD", "fallbacks", "reused calls"]]
    for name, result in zip(names_of(results), results, strict=True):
        took, ended = spent(result.rows), finished(result.rows)
        n_fallbacks = sum(len(row["trace"]["fallbacks"]) for row in ended.rows if row["trace"])
        usd = "no price known" if took.usd is None else money(took.usd)
        seconds = "-" if took.seconds is None else f"{took.seconds:.2f}"
        counts = [str(len(ended.rows)), str(ended.n_failed)]
        lines.append([name, *counts, seconds, usd, str(n_fallbacks), str(took.n_reused)])
    return f"A request, by backend\n\n{markdown(lines)}"


def _difference_table(group: Sequence[CellResult]) -> str:
    """Return the differences from the first run of a group, empty when nothing can be compared."""
    names = names_of(group)
    titles = [title for title, _, _ in METRICS]
    found = [[_compared(result, group[0], metric, mean) for _, metric, mean in METRICS] for result in group[1:]]
    used = [column for column in range(len(METRICS)) if any(line[column].n_pairs for line in found)]
    lines = [["run", *(titles[column] for column in used)]]
    for name, line in zip(names[1:], found, strict=True):
        lines.append([name, *(_difference(line[column]) for column in used)])
    what = f"{_method(group[0])}: difference from {names[0]} on the same requests, 95% interval, pairs"
    return f"{what}\n\n{markdown(lines)}" if used else ""


def _compared(result: CellResult, reference: CellResult, metric: str, average: Mean) -> Comparison:
    one, other = (sample_of(each.rows, metric, each.cell.name) for each in (result, reference))
    return compare(one, other, intersect=True, average=average)


def _difference(pair: Comparison) -> str:
    if pair.difference is None:
        return "-"
    spread = "" if pair.low is None or pair.high is None else f" [{pair.low:+.3f}, {pair.high:+.3f}]"
    return f"{pair.difference:+.3f}{spread} n={pair.n_pairs}"
