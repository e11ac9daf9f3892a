"""What single experiments add to the common table: coverage, cost by stage, agreement of judges."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pace_dspy.data import load_pace
from pace_dspy.evaluation.coverage import coverage_metrics
from pace_dspy.evaluation.experiment_tables import CellResult, markdown
from pace_dspy.evaluation.scores import finished
from pace_dspy.evaluation.summary import summarise
from pace_dspy.retrieval import KbIndex, make_embedder


def coverage_table(results: Sequence[CellResult]) -> str:
    """Return the outcome by how much of the gold the evidence covers. Paper: Fig. 3.

    PASS where a run was judged, the typed decision's accuracy otherwise; ``-`` without either.
    """
    lines = [["run", "outcome", *(f"{level} (share, n, outcome)" for level in ("none", "partial", "full"))]]
    for result in results:
        if not result.rows:
            continue
        judged = any(row.get("verdict") for row in result.rows)
        report = coverage_metrics(result.rows, outcome="pass" if judged else "decision_accuracy")
        cells = [f"{_share(level.share)}, {level.n}, {_share(level.value)}" for level in report.levels]
        lines.append([result.cell.name, report.outcome, *cells])
    return f"Coverage of the gold by the first 10 facts\n\n{markdown(lines)}"


def cost_table(results: Sequence[CellResult]) -> str:
    """Return calls, tokens, money and seconds a request by stage, and what one index costs. Paper: Table 25."""
    lines = [["run", "stage", "calls", "tokens read", "of it cached", "tokens written", "USD", "seconds"]]
    for result in results:
        summary, n = summarise(result.rows), max(len(finished(result.rows).rows), 1)
        for stage, cost in summary.stages.items():
            counts = (cost.calls, cost.prompt_tokens, cost.prompt_cached_tokens, cost.completion_tokens)
            shown = [f"{count / n:,.1f}" for count in counts]
            lines.append(
                [result.cell.name, stage, *shown, f"{cost.cost_usd / n:.5f}", f"{cost.latency_ms / n / 1e3:.2f}"]
            )
        if summary.retrieval_ms_per_request is not None:
            seconds = f"{summary.retrieval_ms_per_request / 1000:.3f}"
            lines.append([result.cell.name, "search, fusion, walk", "0", "0", "0", "0", "0", seconds])
    return f"A request, by stage\n\n{markdown(lines)}\n\n{index_table(results)}"


def index_table(results: Sequence[CellResult]) -> str:
    """Build the index of the largest persona once an embedder, fresh, and return the seconds it took."""
    lines = [["embedder", "persona", "facts", "seconds", "model calls"]]
    for embedder, data in dict.fromkeys((r.cell.settings.embedder, r.cell.settings.data) for r in results if r.rows):
        case = max(load_pace(data).cases, key=lambda case: len(case.facts))
        model, started = make_embedder(embedder), time.perf_counter()
        KbIndex.build("cost-of-one-index", case.facts, model)
        spent = f"{time.perf_counter() - started:.2f}"
        lines.append([embedder, case.case_id, str(len(case.facts)), spent, "0"])
    return f"Building one index\n\n{markdown(lines)}"


def judge_tables(results: Sequence[CellResult]) -> str:
    """Return verdicts and agreement of every judged run. Paper: Table 8."""
    tables = []
    for result in results:
        if result.judged is not None:
            lines = [[result.cell.name, ""], *([name, value] for name, value in result.judged.to_text().items())]
            tables.append(markdown(lines))
    return "\n\n".join(tables) or "No run was judged: give --judge-backend B (and --second-judge C for the agreement)."


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
