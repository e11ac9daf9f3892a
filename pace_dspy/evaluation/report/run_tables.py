"""What was run, what it cost at each stage, and what failed or fell back. Paper: Table 25 (cost)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pace_dspy.evaluation.metrics import decision_metrics, verdict_metrics
from pace_dspy.evaluation.report.paper import paper_results
from pace_dspy.evaluation.report.runs import ReportRun
from pace_dspy.evaluation.report.specs import outcome_of
from pace_dspy.evaluation.report.table import NOTHING, Cell, Column, Table, TableRow, counts_text, number, percent
from pace_dspy.evaluation.scores import finished, key_of
from pace_dspy.evaluation.summary import StageCost, summarise
from pace_dspy.types import Stage

STAGE_NAMES: dict[str, str] = {
    "pre_filter": "pre-hop filter",
    "post_filter": "post-hop filter",
    "second_look": "second look",
}

MAX_FAILURES = 30
"""Failed requests listed one by one."""


def runs_table(runs: Sequence[ReportRun]) -> Table:
    """Return what was run, from the manifests."""
    columns = ("Run", "Folder", "Config", "Model", "Judge", "Embedder", "Program", "Seed", "Commit")
    rows = []
    for run in runs:
        manifest = run.manifest
        commit, _, changed = (manifest.git_commit or NOTHING).partition("+")
        texts = (
            run.folder.resolve().name,
            run.config_name,
            _models(manifest.backends),
            run.judge or NOTHING,
            manifest.embedder.partition(":model=")[0],
            manifest.program[:12] if manifest.program else "zero-shot",
            str(manifest.seed),
            commit[:10] + (f" + {changed}" if changed else ""),
        )
        rows.append(TableRow(Cell(run.name), tuple(map(Cell, texts))))
    return Table("runs", "Runs", tuple(Column(title, numeric=False) for title in columns), tuple(rows))


def cost_table(runs: Sequence[ReportRun]) -> Table:
    """Return calls, tokens, time and money a request, by stage, from the finished requests. Paper: Table 25."""
    columns = (
        Column("Run and stage", numeric=False),
        Column("Model calls"),
        Column("Tokens read", "from the prefix cache"),
        Column("Tokens written"),
        Column("Seconds"),
        Column("US dollars"),
    )
    rows: list[TableRow] = []
    for run in runs:
        rows += _costs_of(run)
    cost = paper_results()["cost"]["pacemaker"]
    paper = TableRow(
        Cell("paper: PaceMaker", "one persona's requests"),
        (
            Cell(f"{cost['retrieval_llm_calls_per_query']} + answer"),
            *(Cell(NOTHING),) * 2,
            Cell(f"{cost['online_s_per_query']:.2f}", f"index {cost['index_s']:.2f} s once"),
            Cell(NOTHING),
        ),
        "paper",
    )
    note = (
        "Means over the finished requests; calls answered by our own reply cache cost nothing and are given apart. "
        "The time of a total is wall time with all stages; requests in flight together slow each other down."
    )
    return Table("cost", "Cost and latency a request, by stage", columns, (*rows, paper), note)


def _models(backends: Mapping[str, str | None]) -> str:
    agents, answerer = (backends.get(role) or "no model" for role in ("agents", "answerer"))
    return agents if agents == answerer else f"{agents}; answers: {answerer}"


def _costs_of(run: ReportRun) -> list[TableRow]:
    summary = summarise(run.rows)
    traces = [row["trace"] for row in finished(run.rows).rows if row["trace"]]
    n = max(len(traces), 1)
    priced = _priced(traces)
    rows = [
        TableRow(Cell(STAGE_NAMES.get(stage, stage)), _stage(summary.stages[stage], n, stage in priced), "part")
        for stage in get_args(Stage)
        if stage in summary.stages
    ]
    search = number((summary.retrieval_ms_per_request or 0) / 1000, 2)
    rows.append(TableRow(Cell("search, fusion, walk"), (*map(Cell, ("0", "0", "0")), Cell(search), Cell("0")), "part"))
    seconds = sorted(trace["total_ms"] / 1000 for trace in traces)
    spread = f"median {statistics.median(seconds):.2f}, slowest {seconds[-1]:.2f}" if seconds else ""
    stages = summary.stages
    total = StageCost(
        *(sum(getattr(cost, name) for cost in stages.values()) for name in StageCost.__dataclass_fields__)
    )
    cells = _stage(total, n, priced >= stages.keys())
    cells = (*cells[:3], Cell(number(summary.seconds_per_request, 2), spread, summary.seconds_per_request), cells[4])
    return [TableRow(Cell(run.name, f"all stages, {len(traces)} requests"), cells, "total"), *rows]


def _stage(cost: StageCost, n: int, priced: bool) -> tuple[Cell, ...]:
    reused = f"+ {cost.cached_calls / n:.2f} reused" if cost.cached_calls else ""
    again = f"{cost.repairs / n:.2f} repairs" if cost.repairs else ""
    cached = f"{percent(cost.prompt_cached_tokens / cost.prompt_tokens, 0)}%" if cost.prompt_tokens else ""
    dollars = number(cost.cost_usd / n, 4) if priced else NOTHING
    return (
        Cell(number(cost.calls / n, 2), ", ".join(text for text in (reused, again) if text), cost.calls / n),
        Cell(number(cost.prompt_tokens / n, 0), cached, cost.prompt_tokens / n),
        Cell(number(cost.completion_tokens / n, 0), value=cost.completion_tokens / n),
        Cell(number(cost.latency_ms / n / 1000, 2), value=cost.latency_ms / n / 1000),
        Cell(dollars, "" if priced else "no price known", cost.cost_usd / n if priced else None),
    )


def _priced(traces: Sequence[dict[str, Any]]) -> set[str]:
    """Return the stages whose every call has a price."""
    usages = [usage for trace in traces for usage in trace["usage"]]
    return {usage["stage"] for usage in usages} - {usage["stage"] for usage in usages if usage["cost_usd"] is None}


def failure_table(runs: Sequence[ReportRun]) -> Table:
    """Return what failed, what was undecided or not judged, which stages fell back, and what was trimmed."""
    columns = (
        Column("Run", numeric=False),
        Column("Asked"),
        Column("Failed", "error, count"),
        Column("Undecided"),
        Column("Judge errors"),
        Column("Fallbacks", "stage, count"),
        Column("Trimmed prompts", "stage, count"),
        Column("Score, %", "failures counted as wrong"),
    )
    rows = []
    for run in runs:
        summary, verdicts = summarise(run.rows), verdict_metrics(run.rows)
        decisions = decision_metrics(run.rows)
        judged = bool(verdicts.n or verdicts.n_judge_errors)
        outcome = outcome_of(run.rows)
        strict = (
            verdicts.pass_rate_failures_counted_as_wrong
            if outcome is not None and outcome.name == "pass"
            else decisions.rates_failures_counted_as_wrong.accuracy
        )
        cells = (
            Cell(str(summary.n_requests), value=summary.n_requests),
            Cell(str(summary.retrieval.n_failed), _kinds(summary.retrieval.reasons), summary.retrieval.n_failed),
            Cell(str(decisions.n_undecided) if decisions.n else NOTHING, value=decisions.n_undecided),
            Cell(str(verdicts.n_judge_errors) if judged else NOTHING, _kinds(verdicts.judge_error_reasons)),
            Cell(str(sum(summary.fallbacks.values())), _kinds(summary.fallbacks), sum(summary.fallbacks.values())),
            Cell(str(sum(summary.trims.values())), _kinds(summary.trims), sum(summary.trims.values())),
            Cell(percent(strict) if outcome else NOTHING, outcome.title if outcome else "", strict),
        )
        rows.append(TableRow(Cell(run.name), cells))
    note = "Failed requests are in no score above: a failure is not a wrong answer. Fallbacks are scored as they are."
    return Table("failures", "Failures and fallbacks", columns, tuple(rows), note)


def failed_table(runs: Sequence[ReportRun]) -> Table | None:
    """Return the failed requests with their messages, the first `MAX_FAILURES`; ``None`` when nothing failed."""
    failed = [(run, row) for run in runs for row in run.rows if row["error"] is not None]
    if not failed:
        return None
    columns = tuple(Column(title, numeric=False) for title in ("Run", "Request", "Error", "Message"))
    rows = tuple(
        TableRow(Cell(run.name), (Cell("/".join(key_of(row))), Cell(_kind(row)), Cell(row["error"].get("message", ""))))
        for run, row in failed[:MAX_FAILURES]
    )
    note = f"{len(failed)} failed; the first {MAX_FAILURES} are shown." if len(failed) > MAX_FAILURES else ""
    return Table("failed", "Failed requests", columns, rows, note)


def _kind(row: Any) -> str:
    return str(row["error"].get("kind", "unknown"))


def _kinds(counts: Mapping[str, int]) -> str:
    return counts_text({STAGE_NAMES.get(name, name): count for name, count in counts.items()}) if counts else ""
