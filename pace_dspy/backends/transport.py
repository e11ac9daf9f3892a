"""HTTP below a remote backend: one deadline a reply, a size limit, and no key in anything that comes back.

DSPy's transport waits up to its timeout for every single byte and reads without end; and a server may echo the key it
was sent, in an error, a page or a reply. Both end here, before any other code (or its log) sees the bytes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from dspy._vendor.lm15.transports import StdlibTransport, TransportRequest, TransportResponse
from dspy._vendor.lm15.transports import TransportError as NetworkError

MAX_BODY_BYTES = 32 * 2**20
MAX_CONNECTIONS = 256
CONNECT_TIMEOUT_S = 10.0
MIN_SECRET_CHARS = 8
"""Shorter keys (``EMPTY``, ``none``) are placeholders; hiding them would tear ordinary words apart."""
HIDDEN = "***"


class ReplyTooLate(NetworkError):
    """The reply trickled in and was not complete in time."""


class ReplyTooLarge(NetworkError):
    """The reply is larger than any reply we could use."""


class BoundedTransport(StdlibTransport):
    """DSPy's HTTP transport with a deadline, a size limit and the key blotted out of replies. Thread-safe.

    Args:
        timeout_s: Longest wait for the first byte, and for the complete reply.
        secret: The key that must not come back.
        trust_env: Whether proxy variables of the environment count.
    """

    def __init__(self, timeout_s: float, *, secret: str | None = None, trust_env: bool = True) -> None:
        super().__init__(
            connect_timeout=min(CONNECT_TIMEOUT_S, timeout_s),
            read_timeout=timeout_s,
            write_timeout=timeout_s,
            max_connections=MAX_CONNECTIONS,
            trust_env=trust_env,
        )
        self._timeout_s, self._secret, self._proxies = timeout_s, secret, trust_env
        self._last = threading.local()

    @property
    def parameter(self) -> str | None:
        """The parameter that the last refusal seen by this thread blames (OpenAI's ``error.param``), if it says so."""
        return getattr(self._last, "parameter", None)

    @property
    def retry_delay_s(self) -> float | None:
        """The wait that the body of the last refusal seen by this thread asks for (Gemini's ``RetryInfo``)."""
        return getattr(self._last, "retry_delay_s", None)

    def copy(self) -> BoundedTransport:
        """Return a fresh transport with the same settings."""
        return BoundedTransport(self._timeout_s, secret=self._secret, trust_env=self._proxies)

    def stream(self, request: TransportRequest) -> TransportResponse:
        """Send a request; the reply's chunks are bounded in time and size and hold no key.

        Raises:
            NetworkError: The server cannot be reached or does not answer in time.
        """
        self.note_refusal(200, b"")
        deadline = time.monotonic() + self._timeout_s
        answer = super().stream(request)
        chunks = hide(_bounded(iter(answer), deadline, self._timeout_s), self._secret)
        if answer.status >= 400:
            body = b"".join(chunks)
            self.note_refusal(answer.status, body)
            chunks = iter([body])
        return TransportResponse(
            status=answer.status,
            reason=answer.reason,
            headers=answer.headers,
            http_version=answer.http_version,
            chunks=chunks,
            release=lambda _: answer.close(),
        )

    def note_refusal(self, status: int, body: bytes) -> None:
        """Remember what a refusal blames and asks for; a status below 400 forgets the one before."""
        refused = status >= 400
        self._last.parameter = _blamed(body) if refused else None
        self._last.retry_delay_s = _retry_delay(body) if refused else None


def hide(chunks: Iterator[bytes], secret: str | None) -> Iterator[bytes]:
    """Yield the chunks with every occurrence of ``secret`` replaced, across chunk borders too."""
    if not worth_hiding(secret):
        yield from chunks
        return
    needle, kept = str(secret).encode(), b""
    for chunk in chunks:
        text = (kept + chunk).replace(needle, HIDDEN.encode())
        cut = max(0, len(text) - len(needle) + 1)
        kept = text[cut:]
        if cut:
            yield text[:cut]
    if kept:
        yield kept


def worth_hiding(secret: str | None) -> bool:
    """Return whether a key is a real one."""
    return secret is not None and len(secret) >= MIN_SECRET_CHARS


def _bounded(chunks: Iterator[bytes], deadline: float, timeout_s: float) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise ReplyTooLarge(f"the reply is larger than {MAX_BODY_BYTES // 2**20} MB")
        if time.monotonic() > deadline:
            raise ReplyTooLate(f"the reply was not complete after {timeout_s:g} s")
        yield chunk


def _retry_delay(body: bytes) -> float | None:
    try:
        details = json.loads(body)["error"]["details"]
        delays = [item["retryDelay"] for item in details if str(item.get("@type", "")).endswith("RetryInfo")]
        return float(str(delays[0]).removesuffix("s"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _blamed(body: bytes) -> str | None:
    try:
        value: Any = json.loads(body)
        param = value["error"]["param"]
    except (ValueError, LookupError, TypeError):
        return None
    return param if isinstance(param, str) and param else None
