"""Answering a round through any chat-completions server, one request at a time: the road without a batch service.

Bodies are sent as they are. Finished replies are kept at once, so that a stopped start continues; the responses file
appears when every prompt has an outcome.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import filelock
import httpx

from pace_dspy.backends.failures import readable
from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.local import LocalLM
from pace_dspy.backends.remote import RemoteEngine, is_loopback
from pace_dspy.backends.retry import FIRST_BACKOFF_S, MAX_BACKOFF_S, MAX_RETRY_AFTER_S
from pace_dspy.backends.served import OPENAI_DIALECT
from pace_dspy.batch.files import OpenRound, read_lines, read_prompts, used
from pace_dspy.batch.lines import Reply, failure_line, outcome_of, parse_line, response_line
from pace_dspy.errors import (
    AuthError,
    BackendError,
    BackendTimeoutError,
    BadRequestError,
    BadSettingError,
    ConfigError,
    RateLimitError,
    ServerError,
)
from pace_dspy.evaluation.flight import Limits, OnRow, Outcome, error_of, run_work
from pace_dspy.evaluation.scores import Key
from pace_dspy.evaluation.store import PARTIAL, write_atomic

DEFAULT_ADDRESS = "https://api.openai.com/v1"
Post = Callable[[dict[str, Any]], httpx.Response]
sleep = time.sleep


@dataclass(frozen=True)
class Prompt:
    """One line of a round, as a piece of work."""

    custom_id: str
    body: dict[str, Any]
    position: int

    @property
    def key(self) -> Key:
        """``("", custom_id)``."""
        return ("", self.custom_id)


class ReplySink:
    """The replies so far, a line each, beside the responses file; a `pace_dspy.evaluation.flight.Sink`."""

    def __init__(self, its: OpenRound) -> None:
        self.path = its.responses.with_name(its.responses.name + PARTIAL)

    def lines(self) -> dict[str, dict[str, Any]]:
        """Return the last line of each prompt; a line that was cut by a stop is left out."""
        found = (parse_line(line) for line in read_lines(self.path))
        return {line["custom_id"]: line for line in found if line is not None}

    def finished(self) -> set[Key]:
        """Return the prompts that need not be asked again."""
        return {("", name) for name, line in self.lines().items() if isinstance(outcome_of(line), Reply)}

    def put(self, row: dict[str, Any], position: int) -> None:
        """Append a line."""
        if row["line"] is None:
            return
        with used(self.path), self.path.open("ab") as file:
            if file.tell() and not self._ends_well():
                file.write(b"\n")
            file.write(json.dumps(row["line"]).encode() + b"\n")

    def _ends_well(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) == b"\n"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other processes out meanwhile."""
        lock = filelock.FileLock(self.path.with_name(".answer.lock"), timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout as exc:
            raise ConfigError(f"another process answers {self.path.parent}; wait for it or stop it") from exc
        try:
            yield
        finally:
            lock.release()


def answer_round(
    its: OpenRound,
    lm: BackendLM,
    *,
    concurrency: int | None = None,
    limits: Limits | None = None,
    on_row: OnRow | None = None,
) -> Outcome:
    """Have every prompt of a round answered, and write its responses file when all have an outcome.

    Args:
        its: The round.
        lm: Who answers; must be the model that the prompts name.
        concurrency: Requests in flight; the backend's slots by default.
        limits: When to stop early.
        on_row: See `pace_dspy.evaluation.flight.run_work`.

    Returns:
        The outcome; ``failed`` prompts are in the file as failures, and go into the next round unless refused.

    Raises:
        ConfigError: The round asks another model, the backend has no chat-completions server, or another process is
            at it.
    """
    prompts = [
        Prompt(line["custom_id"], line["body"], position) for position, line in enumerate(read_prompts(its.requests))
    ]
    sink = ReplySink(its)
    with _poster(lm, its.model) as post:
        execute = partial(answer_one, post, lm)
        slots = concurrency or lm.profile.slots
        outcome = run_work(execute, prompts, sink, concurrency=slots, limits=limits, on_row=on_row)
    lines = sink.lines()
    if outcome.stopped is None and all(prompt.custom_id in lines for prompt in prompts):
        texts = [json.dumps(lines[prompt.custom_id]) + "\n" for prompt in prompts]
        with used(its.responses):
            write_atomic(its.responses, "".join(texts))
            sink.path.unlink(missing_ok=True)
    return outcome


def answer_one(post: Post, lm: BackendLM, prompt: Prompt) -> dict[str, Any]:
    """Ask once, again after failures that can pass, and return a row for `run_work`; its ``line`` is what to keep."""
    for attempt in range(1, lm.profile.num_retries + 2):
        waited = None
        try:
            reply = post(prompt.body)
        except httpx.HTTPError as exc:
            error: Exception = BackendTimeoutError(lm.scrub(str(exc) or type(exc).__name__), backend=lm.profile.name)
            line = failure_line(prompt.custom_id, "no_answer", str(error))
        else:
            if (refusal := _refusal(reply, lm)) is not None:
                return _row(None, error_of(refusal), None)
            line = response_line(prompt.custom_id, reply.status_code, _json(lm.scrub(reply.text)))
            outcome = outcome_of(line)
            if isinstance(outcome, Reply):
                final = None if outcome.status == 200 else error_of(_refused(reply, lm))
                return _row(line, final, lm.profile.cost_usd(*outcome.usage))
            kind = RateLimitError if reply.status_code == 429 else ServerError
            error, waited = kind(str(outcome), backend=lm.profile.name), _retry_after(reply)
        if attempt <= lm.profile.num_retries:
            backoff = min(FIRST_BACKOFF_S * 2 ** (attempt - 1), MAX_BACKOFF_S) * random.uniform(0.5, 1.0)
            sleep(backoff if waited is None else min(waited, MAX_RETRY_AFTER_S))
    return _row(line, error_of(error), None)


def _refusal(reply: httpx.Response, lm: BackendLM) -> BackendError | None:
    """Return an error that would meet every prompt, so that the start ends and nothing is kept of it."""
    status, said = reply.status_code, readable(lm.scrub(reply.text[:2000]))
    if status in {401, 403}:
        return AuthError(f"HTTP {status}: {said}", backend=lm.profile.name, remedy="Check the key")
    if status in {404, 405}:
        return BadSettingError(f"HTTP {status}: {said}", backend=lm.profile.name, remedy="Check base_url and model")
    return None


def _refused(reply: httpx.Response, lm: BackendLM) -> BackendError:
    """Return the error of a prompt that is refused for good; its line is kept, and nothing is asked again."""
    return BadRequestError(
        f"HTTP {reply.status_code}: {readable(lm.scrub(reply.text[:2000]))}", backend=lm.profile.name
    )


def _row(line: dict[str, Any] | None, error: dict[str, Any] | None, cost_usd: float | None) -> dict[str, Any]:
    return {"line": line, "error": error, "usage": [{"cost_usd": cost_usd}]}


@contextmanager
def _poster(lm: BackendLM, model: str) -> Iterator[Post]:
    """Yield what sends a body to the backend."""
    mine = lm.server.alias if isinstance(lm, LocalLM) else lm.model.partition("/")[2]
    if model not in (mine, lm.model):
        raise ConfigError(
            f"the round asks {model}, backend {lm.profile.name} answers as {mine}; use --set model={model}, or write "
            f"the round for {mine} (run --backend batch --set model={mine})"
        )
    if isinstance(lm, LocalLM):
        lm.server.start()
        headers = {"Authorization": f"Bearer {lm.server.api_key}"}
        with httpx.Client(headers=headers, timeout=lm.profile.timeout_s, trust_env=False) as client:

            def post(body: dict[str, Any]) -> httpx.Response:
                with lm.server.request() as address:
                    return client.post(f"{address}/chat/completions", json=body)

            yield post
        return
    engine = lm.engine
    if not isinstance(engine, RemoteEngine) or lm.profile.provider not in OPENAI_DIALECT:
        raise ConfigError(
            f"backend {lm.profile.name} has no chat-completions server of its own; use --backend openai-compatible "
            "with the address of one (--set base_url=...)"
        )
    address = engine.base_url or DEFAULT_ADDRESS
    with httpx.Client(
        headers=engine.auth_headers(), timeout=lm.profile.timeout_s, trust_env=not is_loopback(address)
    ) as client:
        yield lambda body: client.post(f"{address}/chat/completions", json=body)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text[:2000]


def _retry_after(reply: httpx.Response) -> float | None:
    try:
        return max(0.0, float(reply.headers["retry-after"]))
    except (KeyError, ValueError):
        return None
