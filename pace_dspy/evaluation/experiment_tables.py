"""The tables that an experiment prints, as Markdown: results by run, one setting at a time, and what is expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pace_dspy.evaluation.estimate import Estimate
from pace_dspy.evaluation.flight import Outcome
from pace_dspy.evaluation.grid import Cell
from pace_dspy.evaluation.judge_report import JudgeReport
from pace_dspy.evaluation.run_card import overall_metrics
from pace_dspy.evaluation.samples import sample_of
from pace_dspy.evaluation.statistics import bootstrap_interval

COLUMNS = (
    ("R@5", "retrieval/recall_at_5"),
    ("R@10", "retrieval/recall_at_10"),
    ("Hit@10", "retrieval/hit_at_10"),
    ("Gold@10", "retrieval/gold_at_10"),
    ("MRR", "retrieval/mrr"),
    ("pool recall", "funnel/recall_pool"),
    ("pool", "funnel/pool_size"),
    ("accuracy", "decision/accuracy"),
    ("conflict recall", "decision/conflict_recall"),
    ("over-refusal", "decision/over_refusal_rate"),
    ("PASS", "judge/pass"),
    ("fallbacks", "fallbacks/all"),
    ("calls", "calls/all"),
    ("tokens read", "tokens/read"),
    ("USD", "cost/usd"),
    ("s/request", "time/seconds_per_request"),
)
MAX_REASON = 300
"""Longest message of a failed request in the list of what went wrong, in characters."""
COUNTS = {"fallbacks", "calls", "tokens read", "pool"}


@dataclass(frozen=True)
class CellResult:
    """One run of an experiment.

    Attributes:
        cell: What ran.
        folder: Its run folder.
        rows: Its rows; empty when it could not start.
        outcome: How it ended, ``None`` when it could not start.
        error: Why it could not start.
        judged: Verdicts, when it was judged.
    """

    cell: Cell
    folder: Path
    rows: tuple[dict[str, Any], ...] = ()
    outcome: Outcome | None = None
    error: str | None = None
    judged: JudgeReport | None = None

    @property
    def has_finished(self) -> bool:
        """Whether any request ended well."""
        return any(row["error"] is None for row in self.rows)


@dataclass(frozen=True)
class Problem:
    """Why runs of a backend lack results.

    Attributes:
        backend: How it is called.
        runs: Names of the runs.
        reason: One line.
    """

    backend: str
    runs: tuple[str, ...]
    reason: str


def results_table(results: Sequence[CellResult]) -> str:
    """Return one line a run: n, failures, an interval for Recall@10, and every column that any run has."""
    found = [(result, overall_metrics(result.rows)) for result in results if result.rows]
    columns = [(title, name) for title, name in COLUMNS if any(name in values for _, values in found)]
    lines = [["run", "n", "failed", "R@10, 95% interval (macro)", *(title for title, _ in columns)]]
    for result, values in found:
        counts = [f"{values['retrieval/n']:.0f}", f"{values['requests/failed']:.0f}"]
        cells = [_number(title, values.get(name)) for title, name in columns]
        lines.append([result.cell.name, *counts, _interval(result), *cells])
    return markdown(lines)


def sweep_tables(results: Sequence[CellResult]) -> str:
    """Return one small table a swept setting, the unchanged run among its values; empty when nothing was swept."""
    tables = []
    fields = dict.fromkeys(result.cell.varied[0] for result in results if result.cell.varied)
    columns = COLUMNS[:7]
    for field in fields:
        group, _, name = field.partition(".")
        lines = [[name, "n", *(title for title, _ in columns)]]
        own = [result for result in results if result.rows and (result.cell.varied or (field,))[0] == field]
        for value, result in sorted(((getattr(getattr(r.cell.config, group), name), r) for r in own), key=_order):
            values = overall_metrics(result.rows)
            mark = "" if result.cell.varied else " (default)"
            numbers = [_number(title, values.get(key)) for title, key in columns]
            lines.append([f"{value}{mark}", f"{values['retrieval/n']:.0f}", *numbers])
        tables.append(f"{field}\n\n{markdown(lines)}")
    return "\n\n".join(tables)


def problems_of(results: Sequence[CellResult]) -> tuple[Problem, ...]:
    """Return what did not run, or not to the end, or not without failed requests; equal reasons together."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        reason = _reason(result)
        if reason is not None:
            found.setdefault((result.cell.backend, " ".join(reason.split())), []).append(result.cell.name)
    return tuple(Problem(backend, tuple(runs), reason) for (backend, reason), runs in found.items())


def problem_table(results: Sequence[CellResult]) -> str:
    """Return `problems_of` as a table, empty without any."""
    problems = problems_of(results)
    lines = [[one.backend, ", ".join(one.runs), one.reason.replace("|", "/")] for one in problems]
    return f"Not run, or not to the end\n\n{markdown([['backend', 'runs', 'why'], *lines])}" if lines else ""


def _reason(result: CellResult) -> str | None:
    outcome = result.outcome
    if outcome is None:
        return result.error
    failed = [row["error"] for row in result.rows if row["error"] is not None]
    of_all, n_finished = f"of {outcome.planned} requests", len(result.rows) - len(failed)
    if outcome.stopped is not None:
        return f"stopped after {n_finished} {of_all}: {outcome.stopped}"
    if failed:
        kinds = ", ".join(f"{kind} {n}" for kind, n in Counter(str(error["kind"]) for error in failed).items())
        return f"{len(failed)} {of_all} failed ({kinds}), the last one: {str(failed[-1]['message'])[:MAX_REASON]}"
    if outcome.rounds:
        files = ", ".join(str(its["requests"]) for its in outcome.rounds)
        return f"{outcome.paused} {of_all} wait for replies to {files}; have them answered and start again"
    return f"{outcome.planned - n_finished} {of_all} not answered yet" if n_finished < outcome.planned else None


def estimate_table(estimates: Sequence[tuple[Cell, Estimate]]) -> str:
    """Return calls, tokens, price and time of every run, and their sums."""
    lines = [["run", "requests", "calls", "tokens read", "tokens written", "USD", "time"]]
    for cell, one in estimates:
        lines.append([cell.name, str(one.n_requests), *_expected(one)])
    prices = [one.cost_usd for _, one in estimates]
    total = Estimate(
        sum(one.n_requests for _, one in estimates),
        sum(one.calls for _, one in estimates),
        sum(one.prompt_tokens for _, one in estimates),
        sum(one.completion_tokens for _, one in estimates),
        None if any(price is None for price in prices) else sum(price or 0.0 for price in prices),
        sum(one.seconds for _, one in estimates),
        {},
    )
    last = ["all", str(total.n_requests), *_expected(total)]
    known = [price for price in prices if price is not None]
    if known and total.cost_usd is None:
        last[-2] = f"{sum(known):.2f} and unknown"
    return markdown([*lines, last])


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns; the first line is the header."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
        for line in (lines[0], rule, *lines[1:])
    )


def _order(pair: tuple[Any, CellResult]) -> tuple[str, float]:
    value = pair[0]
    return ("", float(value)) if isinstance(value, int | float) else (str(value), 0.0)


def _interval(result: CellResult) -> str:
    found = bootstrap_interval(sample_of(result.rows, "recall@10"), average="macro")
    if found.value is None:
        return "-"
    spread = "" if found.low is None or found.high is None else f" [{found.low:.3f}, {found.high:.3f}]"
    return f"{found.value:.3f}{spread}"


def _number(title: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if title in COUNTS else f"{value:.3f}"


def _expected(one: Estimate) -> list[str]:
    price = "no price known" if one.cost_usd is None else f"{one.cost_usd:.2f}"
    hours, minutes = divmod(round(one.seconds / 60), 60)
    time = f"{one.seconds:.0f} s" if one.seconds < 120 else f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
    return [f"{one.calls:,.0f}", f"{one.prompt_tokens:,.0f}", f"{one.completion_tokens:,.0f}", price, time]
