"""Tables of the report as plain records, so that tests read numbers and the template only lays out. Ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pace_dspy.evaluation.statistics import Interval

NOTHING = "–"
"""Shown where there is no number."""

RowKind = Literal["run", "paper", "total", "part"]


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: What is shown.
        small: Smaller lines below: an interval, a count.
        value: The number behind it, in [0, 1] where it is a share; ``None`` when there is none.
    """

    text: str
    small: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """One column: its title, a second line for units or counts, and whether it holds numbers."""

    title: str
    small: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class TableRow:
    """One row: its header cell, its cells, and what it is (a run, the paper's number, a total, a part)."""

    header: Cell
    cells: tuple[Cell, ...]
    kind: RowKind = "run"


@dataclass(frozen=True)
class Table:
    """One table; the first column is the header of the rows.

    Attributes:
        id: Unique in the page.
        caption: What it shows.
        columns: Header column first.
        rows: As many cells as columns, header included.
        note: A sentence below, empty for none.
    """

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...] = field(default=())
    note: str = ""


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in [0, 1] as percent without the sign, a dash for ``None``."""
    return NOTHING if value is None else f"{100 * value:.{digits}f}"


def points(value: float | None) -> str:
    """Return a difference of shares in percentage points with its sign (a true minus)."""
    if value is None:
        return NOTHING
    text = f"{100 * value:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def span(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """Return an interval in percent, empty when there is none."""
    if low is None or high is None:
        return ""
    write = points if signed else percent
    return f"{write(low)} to {write(high)}"


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with thousands separators, a dash for ``None``."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def interval_cell(interval: Interval, expected: int | None = None) -> Cell:
    """Return a score with its interval; the n is added where it is not the ``expected`` one."""
    lines = [span(interval.low, interval.high)]
    if interval.value is not None and interval.n != expected:
        lines.append(f"n = {interval.n}")
    return Cell(percent(interval.value), "\n".join(line for line in lines if line), interval.value)


def counts_text(counts: dict[str, int] | None) -> str:
    """Return ``name 3, other 1``, a dash for none."""
    return ", ".join(f"{name} {count}" for name, count in (counts or {}).items()) or NOTHING
