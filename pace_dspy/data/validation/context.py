"""What every check is given: the data, where it lies, and the rules. Ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pace_dspy.data.sources import Source
from pace_dspy.data.validation.report import Finding
from pace_dspy.data.validation.rules import ValidationRules
from pace_dspy.types import Case, Dataset, Fact, Request


@dataclass(frozen=True)
class Context:
    """A loaded dataset under validation; ``source`` is ``None`` for a dataset that has no files."""

    dataset: Dataset
    rules: ValidationRules
    source: Source | None = None

    def of_fact(self, check: str, case: Case, fact: Fact, problem: str, remedy: str, *, field: str = "text") -> Finding:
        """Make a finding about a fact."""
        file = self.source.corpus_file(case.case_id) if self.source else self.dataset.name
        value = fact.text if field == "text" else getattr(fact, field)
        row = self._row(case, fact.doc_id)
        return Finding(self.rules.severity(check), check, file, row, field, _plain(value), problem, remedy)

    def of_request(
        self, check: str, case: Case, request: Request, field: str, value: object, problem: str, remedy: str
    ) -> Finding:
        """Make a finding about a request."""
        row = self._row(case, request.query_id)
        return Finding(self.rules.severity(check), check, self._queries(case), row, field, value, problem, remedy)

    def of_case(
        self, check: str, case: Case, field: str, value: object, problem: str, remedy: str, *, corpus: bool = False
    ) -> Finding:
        """Make a finding about a whole persona."""
        file = self.source.corpus_file(case.case_id) if corpus and self.source else self._queries(case)
        return Finding(self.rules.severity(check), check, file, case.case_id, field, _plain(value), problem, remedy)

    def of_all(self, check: str, field: str, value: object, problem: str, remedy: str) -> Finding:
        """Make a finding about the whole dataset."""
        file = str(self.source.folder) if self.source else self.dataset.name
        return Finding(self.rules.severity(check), check, file, "all cases", field, value, problem, remedy)

    def requests(self) -> Iterator[tuple[Case, Request]]:
        """Yield each request with its case."""
        return ((case, request) for case in self.dataset.cases for request in case.requests)

    def facts(self) -> Iterator[tuple[Case, Fact]]:
        """Yield each fact with its case."""
        return ((case, fact) for case in self.dataset.cases for fact in case.facts)

    def _queries(self, case: Case) -> str:
        return self.source.queries_file(case.case_id) if self.source else self.dataset.name

    def _row(self, case: Case, row_id: str) -> str:
        return row_id if self.source and self.source.kind == "json" else f"{case.case_id}/{row_id}"


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)
