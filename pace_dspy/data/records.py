"""From raw rows of any format to checked records. Ours."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pace_dspy.data.profile import find_full_name
from pace_dspy.data.rows import Row
from pace_dspy.data.schema import TIMELINE_FIELDS, DataWarning, content_hash, find_situation_type
from pace_dspy.errors import DataError
from pace_dspy.text import broken_character
from pace_dspy.types import Case, Dataset, Fact, Request

_FACT_FIELDS = frozenset({"case_id", *TIMELINE_FIELDS, "doc_id", "text", "date"})
_REQUEST_FIELDS = frozenset({"case_id", *TIMELINE_FIELDS, "query_id", "query", "label", "gold_doc_ids", "judgment"})


@dataclass(frozen=True)
class RawTable:
    """Facts or requests of one case, as read.

    Attributes:
        file: The file, or the first of its shards.
        rows: File, row number in it from 1, and record.
        timeline: The dates given once for the whole case.
    """

    file: str
    rows: list[tuple[str, int, object]] = field(default_factory=list)
    timeline: object = field(default_factory=dict)


@dataclass(frozen=True)
class RawCase:
    """One persona as read, unchecked. ``profile`` is ``None`` when the data has none for it."""

    case_id: str
    corpus: RawTable
    queries: RawTable
    profile: Mapping[str, object] | None = None


def build_dataset(name: str, raw_cases: Iterable[RawCase], *, source: str) -> Dataset:
    """Check raw cases and turn them into records, sorted by case_id so that every format gives one order.

    Args:
        name: Name of the dataset.
        raw_cases: What a reader found.
        source: Where it came from, for messages.

    Returns:
        The dataset with its content hash.

    Raises:
        DataError: Any row is refused, or there is no case at all.
    """
    cases = tuple(_build_case(raw) for raw in sorted(raw_cases, key=lambda raw: raw.case_id))
    if not cases:
        raise DataError("the dataset is empty: it holds no case", file=source, remedy="Give a folder with PACE data")
    requests = [request for case in cases for request in case.requests]
    if untyped := sum(request.situation_type is None for request in requests):
        _warn(f"{source}: {untyped} of {len(requests)} requests have no known situation type; it is left null")
    if nameless := [case.case_id for case in cases if case.persona is None]:
        _warn(
            f"{source}: {len(nameless)} of {len(cases)} cases have no spec.demographic.full_name in their profile "
            f"({', '.join(nameless[:5])}); their persona is left null"
        )
    return Dataset(name=name, cases=cases, content_hash=content_hash(cases))


def _build_case(raw: RawCase) -> Case:
    corpus = [_row_of_case(raw, *row) for row in raw.corpus.rows]
    queries = [_row_of_case(raw, *row) for row in raw.queries.rows]
    timeline = _timeline(raw, corpus, queries)
    facts: dict[str, Fact] = {}
    for row in corpus:
        fact = _build_fact(row)
        if fact.doc_id in facts:
            problem, remedy = f"doc_id occurs twice in case {raw.case_id}", "Give every fact of a case its own doc_id"
            raise row.refuse(problem, field="doc_id", value=fact.doc_id, remedy=remedy)
        facts[fact.doc_id] = fact
    if not facts:
        problem, remedy = f"the dataset is empty: case {raw.case_id} has no facts", "Add facts or drop the case"
        raise DataError(problem, file=raw.corpus.file, field="corpus", remedy=remedy)
    requests: dict[str, Request] = {}
    for position, row in enumerate(queries):
        request = _build_request(raw, row, position, timeline["ref_date"], facts)
        if request.query_id in requests:
            problem, remedy = f"query_id occurs twice in case {raw.case_id}", "Give every request its own query_id"
            raise row.refuse(problem, field="query_id", value=request.query_id, remedy=remedy)
        requests[request.query_id] = request
    persona = find_full_name(raw.profile or {})
    if persona and (broken := broken_character(persona)):
        remedy = f"Write the whole character in the profile of case {raw.case_id}"
        raise DataError(broken, file=f"profile of {raw.case_id}", field="full_name", value=persona, remedy=remedy)
    return Case(
        case_id=raw.case_id,
        persona=persona,
        window_start=timeline["window_start"],
        reference_date=timeline["ref_date"],
        window_end=timeline["window_end"],
        facts=tuple(facts.values()),
        requests=tuple(requests.values()),
    )


def _build_fact(row: Row) -> Fact:
    return Fact(
        doc_id=row.identifier("doc_id"),
        text=row.text("text"),
        date=row.date("date"),
        metadata={key: value for key, value in row.values.items() if key not in _FACT_FIELDS},
    )


def _build_request(
    raw: RawCase, row: Row, position: int, case_date: dt.date | None, facts: Mapping[str, Fact]
) -> Request:
    text_field = "text" if "query" not in row.values and "text" in row.values else "query"
    query = row.text(text_field)
    reference_date = row.date("ref_date") or case_date
    if reference_date is None:
        remedy = "Give ref_date (YYYY-MM-DD) in the row or in the timeline"
        raise row.refuse("the request has no reference date", field="ref_date", remedy=remedy)
    situation_column, situation_type = find_situation_type(row.values)
    known = _REQUEST_FIELDS | {text_field, situation_column}
    return Request(
        case_id=raw.case_id,
        query_id=row.identifier("query_id") if "query_id" in row.values else f"q{position:03d}",
        query=query,
        reference_date=reference_date,
        label=row.label(),
        situation_type=situation_type,
        gold_doc_ids=row.gold(facts, raw.corpus.file),
        judgment=row.optional_text("judgment"),
        metadata={key: value for key, value in row.values.items() if key not in known},
    )


def _row_of_case(raw: RawCase, file: str, number: int, record: object) -> Row:
    row = Row.of(file, number, record, keep_null={"gold_doc_ids"})
    owner = row.values.get("case_id", raw.case_id)
    if str(owner) != raw.case_id:
        problem, remedy = f"the row stands under case {raw.case_id!r}", "Move it to its own case"
        raise row.refuse(problem, field="case_id", value=owner, remedy=remedy)
    return row


def _timeline(raw: RawCase, corpus: list[Row], queries: list[Row]) -> dict[str, dt.date | None]:
    """Return the dates of the case: the corpus timeline, else its rows, else the same of the queries."""
    sources = [
        [Row.of(raw.corpus.file, "timeline", raw.corpus.timeline)],
        corpus,
        [Row.of(raw.queries.file, "timeline", raw.queries.timeline)],
        queries,
    ]
    timeline: dict[str, dt.date | None] = {}
    for name in TIMELINE_FIELDS:
        found = (date for rows in sources for row in rows if (date := row.date(name)) is not None)
        timeline[name] = next(found, None)
    return timeline


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=4)
