"""Printing: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

stdout = Console(soft_wrap=True, highlight=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False)


def emit_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def say(text: str) -> None:
    """Print one line on stderr."""
    stderr.print(text, markup=False)


def fail(text: str, exit_code: int) -> NoReturn:
    """Print one error line on stderr and exit."""
    stderr.print(f"error: {' '.join(text.split())}", markup=False)
    sys.exit(exit_code)


def abandon() -> NoReturn:
    """End at once after a second Ctrl-C: threads still wait for replies, and all that is finished is committed."""
    stderr.print("abandoned; finished work is kept", markup=False)
    sys.stdout.flush()
    os._exit(130)


@contextmanager
def counting(text: str, total: int) -> Iterator[Progress]:
    """Show a bar that counts items, on stderr; advance it with ``progress.advance(progress.task_ids[0])``."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=not stderr.is_terminal) as progress:
        progress.add_task(text, total=total)
        yield progress


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
