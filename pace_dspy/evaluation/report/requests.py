"""The requests of a report, by persona, each with its trail through every run. Ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from pace_dspy.evaluation.funnel_report import stages_of
from pace_dspy.evaluation.report.runs import ReportRun
from pace_dspy.evaluation.report.texts import Texts
from pace_dspy.evaluation.report.trail import FactLine, RunTrail, run_trail
from pace_dspy.evaluation.scores import Key, Row, finished, key_of


@dataclass(frozen=True)
class RequestTrail:
    """One request.

    Attributes:
        key: ``(case_id, query_id)``.
        text: The request as typed, ``None`` when neither the data nor a view holds it.
        label: Gold label.
        situation_type: temporal / personal / state.
        day: Reference date with its weekday, empty when unknown.
        judgment: Gold rationale, ``None`` when unknown.
        gold: The gold facts.
        runs: Its trail in every run, in the order of the report.
    """

    key: Key
    text: str | None
    label: str | None
    situation_type: str | None
    day: str
    judgment: str | None
    gold: tuple[FactLine, ...]
    runs: tuple[RunTrail, ...]

    @property
    def anchor(self) -> str:
        """Fragment that links to it."""
        return f"request-{'-'.join(self.key)}"


@dataclass(frozen=True)
class PersonaTrails:
    """The requests of one persona."""

    case_id: str
    persona: str | None
    requests: tuple[RequestTrail, ...]


def trails(runs: Sequence[ReportRun], texts: Texts, limit: int) -> tuple[PersonaTrails, ...]:
    """Return the trails of at most ``limit`` requests, in data order.

    Where there are more, those that failed come first, then wrong answers, then those with lost gold facts.
    """
    by_key = [{key_of(row): row for row in run.rows} for run in runs]
    keys = list(by_key[0])
    if len(keys) > limit:
        worst = sorted(keys, key=lambda key: min(_rank(rows[key]) for rows in by_key))[:limit]
        keys = [key for key in keys if key in set(worst)]
    ran = [stages_of(finished(run.rows).rows) for run in runs]
    cases: dict[str, list[RequestTrail]] = {}
    for key in keys:
        rows = [rows[key] for rows in by_key]
        parts = tuple(run_trail(run.name, row, texts, stages) for run, row, stages in zip(runs, rows, ran, strict=True))
        cases.setdefault(key[0], []).append(_request(key, rows, texts, parts))
    return tuple(PersonaTrails(case_id, texts.personas.get(case_id), tuple(found)) for case_id, found in cases.items())


def _rank(row: Row) -> int:
    if row["error"] is not None:
        return 0
    decided = row.get("decision") is not None and row.get("label") is not None
    if row.get("verdict", "PASS") not in (None, "PASS") or (decided and row["decision"] != row["label"]):
        return 1
    return 2 if set(row["gold_doc_ids"]) - set(row["evidence"]) else 3


def _request(key: Key, rows: Sequence[Row], texts: Texts, parts: tuple[RunTrail, ...]) -> RequestTrail:
    request, row = texts.requests.get(key), rows[0]
    gold = tuple(
        FactLine(doc_id, texts.facts.get((key[0], doc_id)), gold=True) for doc_id in dict.fromkeys(row["gold_doc_ids"])
    )
    return RequestTrail(
        key,
        request.query if request else _typed(rows),
        row["label"],
        row["situation_type"],
        _day(request.reference_date.isoformat() if request else row.get("reference_date")),
        request.judgment if request else row.get("judgment"),
        gold,
        parts,
    )


def _typed(rows: Sequence[Row]) -> str | None:
    """Return the request as a row or its original view holds it."""
    texts = [row["query"] for row in rows if row.get("query")]
    traces = [row["trace"] for row in rows if row.get("trace")]
    texts += [view["text"] for trace in traces for view in trace["views"] if view["kind"] == "original"]
    return next(iter(texts), None)


def _day(iso: str | None) -> str:
    return f"{dt.date.fromisoformat(iso):%A} {iso}" if iso else ""
