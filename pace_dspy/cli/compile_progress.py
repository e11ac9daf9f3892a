"""What a compile run shows while it works: a bar with the time left, and a readable line for every candidate."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pace_dspy.cli.output import LINE_EVERY_S, say, stderr
from pace_dspy.optimization import Compilation, Watch
from pace_dspy.optimization.ledger import Candidate

_RECENT = 24
"""Examples from whose pace the time left is reckoned."""


class Pace:
    """Examples scored and the time left, reckoned from the last ones.

    Args:
        expected: Examples that each group will probably score, in order.
        clock: Seconds.
    """

    def __init__(self, expected: dict[str, int], clock: Callable[[], float] = time.monotonic) -> None:
        self.expected, self._clock = expected, clock
        self._done: dict[str, int] = {}
        self._recent: deque[tuple[float, int]] = deque([(clock(), 0)], maxlen=_RECENT)

    @property
    def total(self) -> int:
        """Examples expected in all, never less than were scored."""
        return sum(max(n, self._done.get(group, 0)) for group, n in self.expected.items())

    @property
    def done(self) -> int:
        """Examples scored; a group that ended early counts as whole as soon as the next one begins."""
        begun = [group for group in self.expected if group in self._done]
        ended = sum(max(self.expected[group], self._done[group]) for group in begun[:-1])
        return ended + (self._done[begun[-1]] if begun else 0)

    def scored(self, group: str, done: int) -> None:
        """Note that ``done`` examples of a group have been scored."""
        self._done[group] = done
        self._recent.append((self._clock(), self.done))

    def left_s(self) -> float | None:
        """Return the seconds left, ``None`` before the first examples."""
        (start, first), (end, last) = self._recent[0], self._recent[-1]
        return None if last <= first else (end - start) / (last - first) * (self.total - self.done)

    def to_text(self) -> str:
        """Return how far it is, as ``87 of about 166 examples, 9 min left``."""
        left = self.left_s()
        return f"{self.done} of about {self.total} examples" + ("" if left is None else f", {_minutes(left)} left")


@contextmanager
def compile_progress(
    compilation: Compilation, on_candidate: Callable[[str, Candidate], None] | None = None
) -> Iterator[Watch]:
    """Show a compile run on stderr.

    Args:
        compilation: The run.
        on_candidate: Told of every candidate as well, such as a tracker.

    Yields:
        What the run is to be watched by.
    """
    expected = {one.group.name: one.plan.expected for one in compilation.forecasts if one.plan.expected}
    if compilation.settings.calibrate:
        expected["calibration"] = len(compilation.sets.dev)
    pace, seen = Pace(expected), _Seen()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[left]}"), console=stderr, transient=not stderr.is_terminal) as bar:
        task = bar.add_task("examples", total=pace.total, left="")
        last_line = time.monotonic()

        def scored(group: str, done: int) -> None:
            nonlocal last_line
            pace.scored(group, done)
            left = pace.left_s()
            shown = "" if left is None else f"{_minutes(left)} left"
            bar.update(task, completed=pace.done, total=pace.total, description=group, left=shown)
            if not stderr.is_terminal and time.monotonic() - last_line >= LINE_EVERY_S:
                last_line = time.monotonic()
                say(f"{group}: {pace.to_text()}")

        def candidate(group: str, made: Candidate) -> None:
            say(f"{group}: {seen.line(group, made)}; {pace.to_text()}")
            if on_candidate is not None:
                on_candidate(group, made)

        yield Watch(say, candidate, scored)


def _minutes(seconds: float) -> str:
    return "less than a minute" if seconds < 60 else f"about {seconds / 60:.0f} min"


class _Seen:
    """The candidates so far, to tell what is new in one."""

    def __init__(self) -> None:
        self._first: dict[str, Candidate] = {}
        self._best: dict[str, Candidate] = {}

    def line(self, group: str, made: Candidate) -> str:
        """Return a candidate in one line: its score, beside that of the program as it was, and what it is made of."""
        first = self._first.setdefault(group, made)
        best = self._best.get(group)
        if best is None or made.score > best.score:
            self._best[group] = made
        if made is first:
            return f"as it was, {made.score:.3f} on dev"
        rank = "the best so far" if self._best[group] is made else f"best {self._best[group].score:.3f}"
        demos = sum(len(part.demos) for part in made.state.values())
        texts = [name for name, part in made.state.items() if part.instructions != first.state[name].instructions]
        wording = f"new instructions for {', '.join(texts)}" if texts else "instructions as they were"
        score = f"{made.score:.3f} on dev ({rank}, as it was {first.score:.3f})"
        return f"candidate {made.number} {score}, {demos} demos, {wording}"
