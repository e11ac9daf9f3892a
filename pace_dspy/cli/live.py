"""What a person sees while waiting: which stage runs and for how long, and downloads with a bar. All on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import Progress

from pace_dspy.backends import weights
from pace_dspy.backends.usage import watching
from pace_dspy.cli.output import download_bar, say, stderr
from pace_dspy.types import Stage

STAGE_WORDS: dict[Stage, str] = {
    "planner": "planning where a conflict could hide",
    "views": "writing counter views",
    "pre_filter": "choosing seeds",
    "second_look": "looking for what is missing",
    "post_filter": "choosing evidence",
    "answerer": "deciding",
    "judge": "judging",
    "react": "searching the notes step by step",
}


@contextmanager
def stage_status(title: str) -> Iterator[None]:
    """Show the running stage and the seconds since the start; one plain line a stage when stderr is no terminal."""
    started = time.monotonic()
    if not stderr.is_terminal:
        with watching(lambda stage: say(f"{title}: {STAGE_WORDS[stage]} ({time.monotonic() - started:.0f} s)")):
            yield
        return
    with stderr.status(title) as status, watching(lambda stage: status.update(f"{title}: {STAGE_WORDS[stage]}")):
        yield


@contextmanager
def with_weights() -> Iterator[None]:
    """Show a bar for every weights file that is fetched inside."""
    bars: dict[str, Progress] = {}
    with weights.reporting(_reporter(bars)):
        try:
            yield
        finally:
            for bar in bars.values():
                bar.stop()


def _reporter(bars: dict[str, Progress]) -> Callable[[str, int, int], None]:
    def report(name: str, done: int, total: int) -> None:
        if name not in bars:
            bars[name] = download_bar(name)
        bar = bars[name]
        bar.update(bar.task_ids[0], completed=done, total=total)

    return report
