"""The folder of one model's rounds. Everything that is known follows from the files in it, so any stop is harmless.

``round-N.requests.jsonl`` holds the prompts of round N; whoever answers them writes ``round-N.responses.jsonl``. To
have a round answered again, delete its responses; to have it written again, its requests.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from pace_dspy.batch.files import (
    OpenRound,
    read_lines,
    read_prompts,
    requests_path,
    responses_path,
    round_numbers,
    round_of,
    used,
)
from pace_dspy.batch.lines import MISSING, Failure, Reply, custom_id_of, outcome_of, parse_line, request_line
from pace_dspy.errors import (
    BackendError,
    BackendTimeoutError,
    ConfigError,
    PendingReplyError,
    RateLimitError,
    ServerError,
)
from pace_dspy.evaluation.store import write_atomic

OWNER_NAME = "batch.json"


class BatchFolder:
    """Replies that are known, and prompts that are not answered. Used inside `session`; safe for threads.

    Args:
        path: The folder; made when the first round is written.
        model: Model as the bodies name it.
        identity: Who is asked (`pace_dspy.backends.profiles.identity`); a folder belongs to one.
        tries: Rounds that a prompt may be in before it is a failure.

    Attributes:
        waiting: The round that must be answered first, ``None`` when there is none.
        note: What the last answered round held, in one line; ``None`` before the first.
    """

    def __init__(self, path: Path, *, model: str, identity: str, tries: int) -> None:
        self.path, self.model, self.identity, self.tries = path, model, identity, tries
        self.waiting: OpenRound | None = None
        self.note: str | None = None
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._last = 0
        self._replies: dict[str, Reply] = {}
        self._failures: dict[str, list[Failure]] = {}
        self._open: dict[str, str] = {}
        self.waiting = self.note = None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Read the files, and keep other processes out meanwhile.

        Raises:
            ConfigError: Another process is at it, the folder is another model's, or a file cannot be used.
        """
        with used(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.path / ".lock", timeout=0)
            try:
                lock.acquire()
            except filelock.Timeout as exc:
                raise ConfigError(f"another process works on {self.path}; wait for it or stop it") from exc
        try:
            self._clear()
            self._load()
            yield
        finally:
            lock.release()

    def answer(self, body: dict[str, Any]) -> Reply:
        """Return the reply to a prompt.

        Args:
            body: What a live server would be sent.

        Raises:
            PendingReplyError: There is none yet; the prompt goes into the next round.
            BackendError: None came in as many rounds as are allowed.
        """
        custom_id = custom_id_of(body)
        with self._lock:
            reply = self._replies.get(custom_id)
            if reply is not None:
                return reply
            failures = self._failures.get(custom_id, [])
            if len(failures) < self.tries:
                self._open.setdefault(custom_id, request_line(custom_id, body))
                raise PendingReplyError(f"prompt {custom_id} is not answered yet")
        raise self._given_up(failures)

    @property
    def n_open(self) -> int:
        """Prompts for the next round."""
        return len(self._open)

    def usage(self) -> tuple[int, int, int]:
        """Return the tokens of all replies, each counted once: read, of these from a prefix cache, written."""
        counts = [reply.usage for reply in self._replies.values()]
        return sum(count[0] for count in counts), sum(count[1] for count in counts), sum(count[2] for count in counts)

    def close_round(self) -> OpenRound | None:
        """Write the next round, and return it; ``None`` when no prompt is open.

        Raises:
            ConfigError: It cannot be written.
        """
        if not self._open:
            return None
        number = self._last + 1
        with used(self.path):
            owner = {"identity": self.identity, "model": self.model}
            write_atomic(self.path / OWNER_NAME, json.dumps(owner, indent=2) + "\n")
            path = requests_path(self.path, number)
            write_atomic(path, "".join(line + "\n" for line in self._open.values()))
        return OpenRound(number, len(self._open), self.model, path, responses_path(self.path, number))

    def _load(self) -> None:
        self._check_owner()
        for number in round_numbers(self.path):
            self._last = number
            prompts = read_prompts(requests_path(self.path, number))
            lines = read_lines(responses_path(self.path, number))
            self.waiting = None if lines else round_of(self.path, number, prompts)
            if lines:
                self._take(number, [prompt["custom_id"] for prompt in prompts], lines)

    def _check_owner(self) -> None:
        path = self.path / OWNER_NAME
        if not path.is_file():
            return
        try:
            owner = json.loads(path.read_text(encoding="utf-8"))["identity"]
        except (OSError, ValueError, LookupError, TypeError) as exc:
            raise ConfigError(f"{path} is damaged; give another --batch, or delete it") from exc
        if owner != self.identity:
            raise ConfigError(
                f"the rounds in {self.path} ask {owner}, this command {self.identity}; give another --batch"
            )

    def _take(self, number: int, asked: list[str], lines: list[bytes]) -> None:
        found: dict[str, Reply | Failure] = {}
        ignored: Counter[str] = Counter()
        known = set(asked)
        for line in lines:
            parsed = parse_line(line)
            if parsed is None:
                ignored["cut at the end" if line is lines[-1] and not line.endswith(b"\n") else "unreadable"] += 1
                continue
            custom_id = parsed["custom_id"]
            if custom_id not in known:
                ignored["with an unknown custom_id"] += 1
                continue
            if custom_id in found:
                ignored["repeated"] += 1
            if not isinstance(found.get(custom_id), Reply):
                found[custom_id] = outcome_of(parsed)
        if not found:
            raise ConfigError(
                f"{responses_path(self.path, number)} holds no reply to this round ({_counted(ignored)}); "
                "put the right file there, or delete it"
            )
        outcomes = {custom_id: found.get(custom_id, Failure(MISSING)) for custom_id in asked}
        for custom_id, outcome in outcomes.items():
            if isinstance(outcome, Reply):
                self._replies.setdefault(custom_id, outcome)
            elif custom_id not in self._replies:
                self._failures.setdefault(custom_id, []).append(outcome)
        self.note = self._told(number, outcomes, ignored)

    def _told(self, number: int, outcomes: dict[str, Reply | Failure], ignored: Counter[str]) -> str:
        kinds: Counter[str] = Counter()
        for outcome in outcomes.values():
            if isinstance(outcome, Failure):
                kinds[outcome.kind] += 1
            elif outcome.status != 200:
                kinds[f"HTTP {outcome.status}, not asked again"] += 1
        tries = [len(self._failures[custom_id]) for custom_id in outcomes if custom_id not in self._replies]
        given_up = sum(count >= self.tries for count in tries)
        again = len(tries) - given_up
        parts = [
            f"round {number}: {len(outcomes) - kinds.total()} of {len(outcomes)} prompts answered",
            f"failed: {_counted(kinds)}" if kinds else "",
            f"asked again: {again}" if again else "",
            f"given up after {self.tries} rounds: {given_up}" if given_up else "",
            f"lines ignored: {_counted(ignored)}" if ignored else "",
        ]
        return "; ".join(part for part in parts if part)

    def _given_up(self, failures: list[Failure]) -> BackendError:
        last = failures[-1]
        kinds = {MISSING: BackendTimeoutError, "HTTP 429": RateLimitError}
        said = "no reply" if last.kind == MISSING else f"the last one said {last}"
        return kinds.get(last.kind, ServerError)(
            f"no usable reply in {len(failures)} rounds ({said})",
            backend="batch",
            model=self.model,
            remedy=f"Use --set num_retries={len(failures) + 1} to ask again",
        )


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
