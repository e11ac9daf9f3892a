"""What a validation found: findings, statistics, and their rendering. Ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pace_dspy.errors import DataError

Severity = Literal["error", "warning"]

MAX_SHOWN = 10
"""Findings of one check that the text shows; the rest is counted. `ValidationReport.to_dict` has all."""


@dataclass(frozen=True)
class Finding:
    """One defect.

    Attributes:
        severity: ``"error"`` (exit 2) or ``"warning"``.
        check: Name of the check.
        file: The file, or the folder for a finding about the whole dataset.
        row: doc_id, query_id or case_id that finds the place, or a row number from 1.
        field: Field or column.
        value: What is there.
        problem: What is wrong.
        remedy: What to do.
    """

    severity: Severity
    check: str
    file: str | None
    row: int | str | None
    field: str | None
    value: object
    problem: str
    remedy: str | None

    @classmethod
    def of_error(cls, error: DataError) -> Finding:
        """Make a finding of the error that kept the data from loading."""
        return cls("error", "load", error.file, error.row, error.field, error.value, error.problem, error.remedy)

    def to_text(self) -> str:
        """Return one line: check, place, problem, remedy."""
        message = DataError(
            self.problem, file=self.file, row=self.row, field=self.field, value=self.value, remedy=self.remedy
        )
        return f"[{self.check}] {message}"


@dataclass(frozen=True)
class ValidationReport:
    """Result of `validate`.

    Attributes:
        source: What was validated.
        content_hash: Hash of the data, ``None`` when it did not load.
        rules: Name of the rules applied.
        findings: Errors first, then warnings, each in data order.
        tables: Statistics by name; each a list of rows with the same keys.
    """

    source: str
    content_hash: str | None
    rules: str
    findings: tuple[Finding, ...]
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The errors."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The warnings."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    @property
    def exit_code(self) -> int:
        """2 when there is an error, else 0; warnings alone are no failure."""
        return 2 if self.errors else 0

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "source": self.source,
            "content_hash": self.content_hash,
            "rules": self.rules,
            "n_errors": len(self.errors),
            "n_warnings": len(self.warnings),
            "findings": [asdict(finding) | {"value": _json_value(finding.value)} for finding in self.findings],
            "tables": {name: [dict(row) for row in rows] for name, rows in self.tables.items()},
        }

    def to_text(self) -> str:
        """Return the report as plain text: statistics, findings by check, and a summary line."""
        blocks = [
            f"Validation of {self.source} (rules: {self.rules}, data: {(self.content_hash or 'not loaded')[:12]})"
        ]
        blocks += [f"{name}\n{_table(rows)}" for name, rows in self.tables.items() if rows]
        for severity, findings in (("errors", self.errors), ("warnings", self.warnings)):
            if findings:
                blocks.append(f"{severity}\n{_shown(findings)}")
        blocks.append(f"{len(self.errors)} errors, {len(self.warnings)} warnings")
        return "\n\n".join(blocks) + "\n"


def _shown(findings: Sequence[Finding]) -> str:
    totals = Counter(finding.check for finding in findings)
    seen: Counter[str] = Counter()
    lines = []
    for finding in findings:
        seen[finding.check] += 1
        if seen[finding.check] <= MAX_SHOWN:
            lines.append(f"  {finding.to_text()}")
    hidden = [f"{totals[check] - MAX_SHOWN} more of {check}" for check in totals if totals[check] > MAX_SHOWN]
    return "\n".join(lines + ([f"  and {', '.join(hidden)}"] if hidden else []))


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    header = list(rows[0])
    cells = [header, *([_cell(row[name]) for name in header] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(line, widths, strict=True)) for line in cells)
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _json_value(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)
