"""A checked request as text and as JSON. Works on result rows, so that stored runs print the same way."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len

from pace_dspy.cli.output import printable, shown, stdout
from pace_dspy.retrieval import KbIndex
from pace_dspy.types import Request


def row_as_dict(row: Mapping[str, Any], request: Request, kb: KbIndex) -> dict[str, Any]:
    """Return a checked request as a JSON-ready dictionary, evidence with its texts."""
    cited = set(row["cited"])
    return {
        "request": request.query,
        "reference_date": request.reference_date.isoformat(),
        "decision": row["decision"],
        "response": row["response"],
        "evidence": [
            {"doc_id": doc_id, "text": kb.text(doc_id), "cited": doc_id in cited} for doc_id in row["evidence"]
        ],
        "trace": row["trace"],
    }


def print_row(row: Mapping[str, Any], request: Request, kb: KbIndex) -> None:
    """Print cues, views, facts per stage, evidence with citations, decision, response, seconds and tokens."""
    stdout.print(f"[bold]Request[/]   {shown(request.query)} [dim](asked on {_day(request.reference_date)})[/]")
    if row["error"]:
        stdout.print(f"[bold red]Failed[/]    {shown(row['error']['message'])}")
        return
    trace = row["trace"]
    _print_list("Cues", [f"{cue['direction']}: {cue['why']}" for cue in trace["cues"]])
    _print_list("Views", [view["text"] for view in trace["views"][1:]])
    _print_list("Missing", [query for look in trace["looks"] for query in look["follow_ups"]])
    stdout.print(f"Facts     {fact_counts(trace, len(kb))}")
    _print_evidence(row, kb, frozenset(request.gold_doc_ids))
    _print_list("Derived", [note["text"] for note in trace["notes"]])
    _print_decision(row, request)
    for fallback in trace["fallbacks"]:
        stdout.print(f"Fallback  {fallback['stage']}: {shown(fallback['reason'])}")
    for trim in trace["trims"]:
        stdout.print(f"Trimmed   {trim['stage']}: {trim['shown']} of {trim['offered']} facts fit the window")
    stdout.print(f"Cost      {cost_line(trace)}")


def fact_counts(trace: Mapping[str, Any], total: int) -> str:
    """Return the number of facts at each stage, as ``160 in the KB > 41 found by 4 views > 20 fused > ...``."""
    found = {hit["doc_id"] for hits in trace["hits"] for hit in (*hits["dense"], *hits["sparse"])}
    found |= {doc_id for channel in trace["channels"] for doc_id in channel["doc_ids"]}
    steps = [
        (total, "in the KB"),
        (len(found), f"found by {len(trace['views'])} view{'s' if len(trace['views']) > 1 else ''}"),
        (len(trace["fused"]), "fused"),
        (len(trace["seeds"]), "seeds"),
        (len(trace["pool"]), "reached by the walk"),
        (len(looks[-1]) if (looks := [look["pool"] for look in trace["looks"] if look["pool"]]) else 0, "after a look"),
        (len(trace.get("prefiltered") or ()), "prefiltered"),
        (len(trace["evidence"]), "evidence"),
    ]
    return " > ".join(f"{count} {name}" for count, name in steps if count)


def cost_line(trace: Mapping[str, Any]) -> str:
    """Return seconds, calls and tokens of one request."""
    usage = trace["usage"]
    read = sum(stage["prompt_tokens"] for stage in usage)
    cached = sum(stage["prompt_cached_tokens"] for stage in usage)
    wrote = sum(stage["completion_tokens"] for stage in usage)
    calls = sum(stage["calls"] for stage in usage)
    reused = sum(stage["cached_calls"] for stage in usage)
    share = f" ({cached / read:.0%} from the prompt cache)" if read else ""
    again = f", {reused} replies reused" if reused else ""
    return (
        f"{trace['total_ms'] / 1000:.1f} s, {calls} model calls{again}, {read:,} tokens read{share}, {wrote:,} written"
    )


def print_summary(title: str, values: Mapping[str, str]) -> None:
    """Print name-value pairs as a small table; values are never cut, whatever the width."""
    if title:
        stdout.print(printable(title), style="bold", markup=False)
    width = max((cell_len(name) for name in values), default=0)
    for name, value in values.items():
        stdout.print(f" {name}{' ' * (width - cell_len(name))}  {printable(value)}", markup=False)


def _print_list(name: str, items: list[str]) -> None:
    for number, item in enumerate(items, start=1):
        stdout.print(f"{name if number == 1 else '':<9} {number}. {shown(item)}")


def _print_evidence(row: Mapping[str, Any], kb: KbIndex, gold: frozenset[str]) -> None:
    cited = set(row["cited"])
    for number, doc_id in enumerate(row["evidence"]):
        marks = f"{'cited' if doc_id in cited else '':<5} {'gold' if doc_id in gold else '':<4}"
        line = f"{'Evidence' if number == 0 else '':<9} {marks} {shown(kb.text(doc_id))} [dim]{shown(doc_id)}[/]"
        stdout.print(f"[bold]{line}[/]" if doc_id in cited else line)


def _print_decision(row: Mapping[str, Any], request: Request) -> None:
    verdict = row["decision"] or "none"
    colour = {"conflict": "red", "non_conflict": "green"}.get(verdict, "yellow")
    known = f" [dim](gold label: {request.label})[/]" if request.label else ""
    stdout.print(f"[bold]Decision[/]  [bold {colour}]{verdict}[/]{known}")
    if row["response"]:
        stdout.print(f"Response  {shown(row['response'])}")


def _day(day: dt.date) -> str:
    return f"{day:%A} {day.isoformat()}"
