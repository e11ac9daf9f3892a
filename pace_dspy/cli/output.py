"""Printing: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

LINE_EVERY_S = 60.0
"""Without a terminal, how often a line tells how far long work is. Ours."""

stdout = Console(soft_wrap=True, highlight=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False)


_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_UNSAFE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, marks that turn the direction of writing, and halves of characters."""


def printable(text: str) -> str:
    """Return a text of others as one harmless line: line breaks become spaces, control characters are spelled out."""
    line = _BREAKS.sub(" ", text)
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), line)


def shown(text: str) -> str:
    """Return a text of others for a line with markup."""
    return escape(printable(text))


def show_line(text: str) -> None:
    """Print one line on stdout, with no markup."""
    stdout.print(printable(text), markup=False)


def emit_json(value: Any) -> None:
    """Print one JSON document on stdout; ASCII only where the terminal's encoding cannot hold all characters."""
    ascii_only = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=ascii_only, indent=2, default=str) + "\n")


def say(text: str) -> None:
    """Print one line on stderr."""
    stderr.print(printable(text), markup=False)


def fail(text: str, exit_code: int) -> NoReturn:
    """Print one error line on stderr and exit."""
    stderr.print(f"error: {printable(' '.join(text.split()))}", markup=False)
    sys.exit(exit_code)


def abandon() -> NoReturn:
    """End at once after a second Ctrl-C: threads still wait for replies, and all that is finished is committed."""
    stderr.print("abandoned; finished work is kept", markup=False)
    sys.stdout.flush()
    os._exit(130)


@contextmanager
def counting(text: str, total: int) -> Iterator[Progress]:
    """Show a bar that counts items, on stderr; advance it with ``progress.advance(progress.task_ids[0])``.

    In a log or a pipe it is one plain line every `LINE_EVERY_S` seconds.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr) if stderr.is_terminal else _Lines(text) as progress:
        progress.add_task(text, total=total)
        yield progress


class _Lines(Progress):
    """A bar that is never drawn: a line from time to time says what it would show."""

    def __init__(self, text: str) -> None:
        super().__init__(console=stderr, disable=True)
        self._text, self._last = text, time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        with self._lock:
            if time.monotonic() - self._last < LINE_EVERY_S:
                return
            self._last = time.monotonic()
            task = self._tasks[task_id]
            left, note = task.time_remaining, task.description
        parts = [f"{self._text}: {task.completed:,.0f} of {task.total or 0:,.0f}"]
        parts += [] if left is None else [f"about {left / 60:.0f} min left"]
        say(", ".join(parts + ([] if note == self._text else [note])))


def download_bar(text: str) -> Progress:
    """Return a started bar that counts bytes, on stderr; the caller stops it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=stderr)
    bar.add_task(text, total=None)
    bar.start()
    return bar
