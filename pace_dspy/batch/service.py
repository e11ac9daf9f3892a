"""OpenAI's Batch service: hand a round's prompts in, ask how far they are, bring the replies back.

The key lives in the client alone: in no file, message or address.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from pace_dspy.backends.addresses import check_address
from pace_dspy.backends.failures import readable
from pace_dspy.backends.profiles import check_key
from pace_dspy.backends.remote import is_loopback
from pace_dspy.backends.transport import HIDDEN
from pace_dspy.batch.files import OpenRound, used
from pace_dspy.batch.lines import URL
from pace_dspy.errors import (
    AuthError,
    BackendError,
    BackendTimeoutError,
    BadRequestError,
    ConfigError,
    MissingKeyError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from pace_dspy.evaluation.store import write_atomic

if TYPE_CHECKING:
    from openai.types import Batch, FileObject

BASE_URL = "https://api.openai.com/v1"
KEY_ENV = "OPENAI_API_KEY"
TIMEOUT_S = 120.0
_CHECK_ADDRESS = "Check --base-url: it ends in /v1"
ENDED = ("completed", "expired", "cancelled")
"""States of a batch in which its files hold all replies that there will be."""


class Receipt(BaseModel):
    """What is remembered of a handed-in round, in ``round-N.batch.json``."""

    batch_id: str
    base_url: str


@dataclass(frozen=True)
class BatchState:
    """How far a batch is.

    Attributes:
        batch_id: The service's name of it.
        status: The service's word, such as ``in_progress``.
        completed: Prompts answered.
        failed: Prompts refused.
        total: Prompts in it; 0 until the service has counted.
        problems: Why the service refused the whole file.
    """

    batch_id: str
    status: str
    completed: int = 0
    failed: int = 0
    total: int = 0
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        counted = f", {self.completed} of {self.total} answered, {self.failed} failed" if self.total else ""
        return f"batch {self.batch_id}: {self.status}{counted}{''.join(f'; {text}' for text in self.problems)}"


class BatchService:
    """One account at one server.

    Args:
        environ: Where the key is read from, such as ``os.environ``.
        base_url: Address of the server.
        key_env: The variable with the key.

    Raises:
        MissingKeyError: The variable is not set.
        ConfigError: The address cannot be used, or no HTTP header can hold the key.
    """

    def __init__(self, environ: Mapping[str, str], *, base_url: str = BASE_URL, key_env: str = KEY_ENV) -> None:
        check_address(base_url, "batch: --base-url", key_env)
        self._key = environ.get(key_env, "").strip()
        if not self._key:
            raise MissingKeyError(
                f"no key: {key_env} is not set",
                backend="batch",
                remedy=f"Run: export {key_env}=..., or name another variable with --key-env",
            )
        check_key(self._key, "batch", key_env)
        import openai  # a second or two, so only when it is used

        self.base_url = base_url.rstrip("/")
        self._openai = openai
        self._client = openai.OpenAI(
            api_key=self._key,
            base_url=self.base_url,
            timeout=TIMEOUT_S,
            http_client=openai.DefaultHttpxClient(trust_env=not is_loopback(base_url)),
        )

    def submit(self, its: OpenRound) -> BatchState:
        """Hand a round in; the receipt is beside it from then on.

        Raises:
            BackendError: The service cannot be reached or refuses.
        """
        with self._typed(), used(its.requests), its.requests.open("rb") as prompts:
            uploaded = self._client.files.create(file=(its.requests.name, prompts), purpose="batch")
            # Made once at most: a second attempt after a lost answer could be paid twice.
            batch = self._client.with_options(max_retries=0).batches.create(
                input_file_id=self._id(uploaded), endpoint=URL, completion_window="24h"
            )
        receipt = Receipt(batch_id=self._id(batch), base_url=self.base_url)
        with used(its.requests):
            write_atomic(receipt_path(its), receipt.model_dump_json(indent=2) + "\n")
        return self._state(batch)

    def state(self, batch_id: str) -> BatchState:
        """Ask how far a batch is.

        Raises:
            BackendError: The service cannot be reached, or does not know it.
        """
        with self._typed():
            return self._state(self._client.batches.retrieve(batch_id))

    def fetch(self, its: OpenRound, batch_id: str) -> BatchState:
        """Bring the replies of a batch that has ended; until then nothing is written.

        Raises:
            BackendError: The service cannot be reached, or the batch ended without any reply.
        """
        with self._typed():
            batch = self._client.batches.retrieve(batch_id)
            state = self._state(batch)
            if state.status == "failed":
                raise BackendError(f"the service refused {state}", backend="batch", remedy="Submit it with --again")
            if state.status not in ENDED:
                return state
            parts = [self._content(name) for name in (batch.output_file_id, batch.error_file_id) if name]
        lines = [line for part in parts for line in part.splitlines() if line.strip()]
        if not lines:
            raise BackendError(f"{state}, without any reply", backend="batch", remedy="Submit it with --again")
        with used(its.responses):
            write_atomic(its.responses, "".join(line + "\n" for line in lines))
        return state

    def _content(self, file_id: str) -> str:
        return self._client.files.content(file_id).content.decode("utf-8", errors="replace")

    def _id(self, reply: Batch | FileObject) -> str:
        """Return the name of what was made or asked for; the client hands on whatever a web page or proxy says."""
        name = getattr(reply, "id", None)
        if isinstance(name, str) and name:
            return name
        raise self._no_service()

    def _no_service(self) -> BackendError:
        told = f"{self.base_url} answers, but not as a Batch service does"
        return BadRequestError(told, backend="batch", remedy=_CHECK_ADDRESS)

    def _state(self, batch: Batch) -> BatchState:
        batch_id, counts = self._id(batch), batch.request_counts
        problems = (batch.errors.data if batch.errors else None) or []
        said = tuple(
            self._clean(f"line {item.line}: {item.message}" if item.line else f"{item.message}") for item in problems
        )
        return BatchState(
            batch_id,
            batch.status,
            counts.completed if counts else 0,
            counts.failed if counts else 0,
            counts.total if counts else 0,
            tuple(map(self._clean, said)),
        )

    def _clean(self, text: str) -> str:
        return readable(text.replace(self._key, HIDDEN))

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
            return
        except self._openai.OpenAIError as exc:
            error = self._error(exc)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            error = self._no_service()
        raise error  # outside, so that no request with its headers hangs on it

    def _error(self, exc: Exception) -> BackendError:
        openai = self._openai
        body = getattr(exc, "body", None)
        told = body.get("message") if isinstance(body, dict) else None
        text = self._clean(str(told or getattr(exc, "message", "") or exc))
        status = getattr(exc, "status_code", None)
        problem = f"{self.base_url}: {f'HTTP {status}: ' if status else ''}{text}"
        if isinstance(exc, openai.APIConnectionError):  # a timeout too
            return BackendTimeoutError(problem, backend="batch", remedy="Check --base-url and the network")
        if isinstance(exc, openai.AuthenticationError | openai.PermissionDeniedError):
            return AuthError(problem, backend="batch", remedy="Check the key and its permissions")
        if isinstance(exc, openai.RateLimitError):
            no_credit = getattr(exc, "code", None) == "insufficient_quota"
            kind = QuotaError if no_credit else RateLimitError
            return kind(
                problem, backend="batch", remedy="Check the account's credit" if no_credit else "Try again later"
            )
        if isinstance(exc, openai.APIStatusError) and (status or 0) < 500:
            return BadRequestError(problem, backend="batch", remedy=_CHECK_ADDRESS)
        return ServerError(problem, backend="batch", remedy="Try again later")


def receipt_path(its: OpenRound) -> Path:
    """Return where the receipt of a round is."""
    return its.requests.with_name(f"round-{its.number}.batch.json")


def read_receipt(its: OpenRound) -> Receipt | None:
    """Return the receipt of a round, ``None`` when it was not handed in.

    Raises:
        ConfigError: It is damaged.
    """
    path = receipt_path(its)
    with used(path):
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
    if text is None:
        return None
    try:
        return Receipt.model_validate(json.loads(text))
    except (ValueError, ValidationError) as exc:
        raise ConfigError(f"{path} is damaged; delete it and submit the round again") from exc
