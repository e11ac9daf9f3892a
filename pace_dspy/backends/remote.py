"""The engine of every remote backend: one attempt a call, lm15's dialects, our transport, errors of the right kind.

The key lives here and nowhere else: not in ``lm.kwargs``, a saved state, a history entry or a trace. Retries are the
business of `pace_dspy.backends.retry`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from dspy._vendor.lm15 import errors as lm15_errors
from dspy._vendor.lm15.transports._exceptions import ConnectTimeout, ReadTimeout, WriteTimeout
from dspy._vendor.lm15.types import StreamEvent
from dspy.clients.engines.lm15_engine import LM15Engine
from dspy.lm15 import LM15Error, Request, Response, RouterConfig

from pace_dspy.backends.profiles import BackendProfile, Connection
from pace_dspy.backends.transport import HIDDEN, BoundedTransport, ReplyTooLarge, ReplyTooLate, worth_hiding

NO_KEY = "no-key"
"""Sent to servers that ask for none; without it lm15 would look for another provider's key in the environment."""

_TOO_LATE = (ConnectTimeout, ReadTimeout, WriteTimeout, ReplyTooLate)
_WINDOW = re.compile(
    r"context[ _](length|window|size)|maximum (context|prompt|input)|prompt is too long|too many (input )?tokens"
    r"|max_model_len|input is too long|decoder prompt",
    re.IGNORECASE,
)


_BAD_KEY = re.compile(r"api[ _]key (is )?(not valid|invalid|expired)|invalid api[ _]key", re.IGNORECASE)
"""Gemini says so with status 400."""


class RemoteEngine:
    """Engine of ``dspy.LM`` for one server.

    Args:
        profile: Timeouts and dialect.
        connection: Address, model and key.
        transport: Sends requests and returns replies; by default a new one for this server.

    Attributes:
        base_url: Address of the server, ``None`` for the provider's own.
    """

    def __init__(
        self, profile: BackendProfile, connection: Connection, *, transport: BoundedTransport | None = None
    ) -> None:
        self.base_url = connection.base_url
        self._key = connection.api_key
        self._timeout_s = profile.timeout_s
        provider = LM15Engine(RouterConfig(env={})).resolve(connection.model).provider
        self._transport = transport or BoundedTransport(
            profile.timeout_s, secret=connection.api_key, trust_env=not is_loopback(connection.base_url)
        )
        self._engine = LM15Engine(
            RouterConfig(
                env={},
                api_keys={provider: connection.api_key or NO_KEY},
                base_urls={provider: connection.base_url} if connection.base_url else None,
                transport=self._transport,
            )
        )

    def __repr__(self) -> str:
        return f"RemoteEngine({self.base_url or 'default address'})"

    def __deepcopy__(self, memo: dict[int, Any]) -> RemoteEngine:
        return self

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a backend's connection holds its key and is never pickled; build it again with make_lm")

    def complete(self, request: Request) -> Response:
        """Ask once.

        Raises:
            LM15Error: The failure, of the kind that tells whether asking again can help.
        """
        with self._typed():
            return self._engine.complete(request)

    def stream(self, request: Request) -> Iterator[StreamEvent]:
        """Ask once and yield the events of the reply as they come."""
        with self._typed():
            yield from self._engine.stream(request)

    def close(self) -> None:
        """Close idle connections."""
        self._engine.close()

    def scrub(self, text: str) -> str:
        """Return ``text`` without the key."""
        return text.replace(str(self._key), HIDDEN) if worth_hiding(self._key) else text

    def auth_headers(self) -> dict[str, str]:
        """Return the header that carries the key in OpenAI's dialect; empty without a key."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except LM15Error as exc:
            typed = self._retyped(exc)
            typed.parameter = self._transport.parameter
            if typed.retry_after is None:
                typed.retry_after = self._transport.retry_delay_s
            if typed is exc:
                raise
            raise typed from exc
        except (TypeError, ValueError, LookupError, AttributeError) as exc:
            raise lm15_errors.ServerError(f"the reply is not a model's reply ({type(exc).__name__}: {exc})") from exc

    def _retyped(self, exc: LM15Error) -> LM15Error:
        cause = exc.__cause__
        if isinstance(exc, lm15_errors.TransportError):
            if isinstance(cause, _TOO_LATE):
                return lm15_errors.TimeoutError(f"no complete reply within {self._timeout_s:g} s")
            return lm15_errors.ProviderError(str(cause)) if isinstance(cause, ReplyTooLarge) else exc
        details = {"status": exc.status, "provider_code": exc.provider_code, "retry_after": exc.retry_after}
        if isinstance(exc, lm15_errors.InvalidRequestError) and _BAD_KEY.search(exc.message):
            return lm15_errors.AuthError(exc.message, **details)
        if _is_window_error(exc):
            return lm15_errors.ContextLengthError(exc.message, **details)
        if exc.status is None or exc.status < 400:
            return _inside_a_success(exc, details)
        return exc


def is_loopback(address: str | None) -> bool:
    """Return whether an address is this machine itself (proxies of the environment are then ignored)."""
    host = urlsplit(address or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_window_error(exc: LM15Error) -> bool:
    return (
        isinstance(exc, lm15_errors.InvalidRequestError)
        and not isinstance(exc, lm15_errors.ContextLengthError)
        and _WINDOW.search(exc.message) is not None
    )


def _inside_a_success(exc: LM15Error, details: dict[str, Any]) -> LM15Error:
    """Type an error that came with status 200: an envelope with a code, or something that is no model's reply."""
    code = exc.provider_code or ""
    if code.isdigit() and 400 <= int(code) < 600:
        return lm15_errors.map_http_error(int(code), exc.message, retry_after=exc.retry_after)
    if type(exc) is lm15_errors.ProviderError:
        return lm15_errors.ServerError(exc.message, **details)
    return exc
