"""From an HTTP answer of an embedding server to our typed errors and waits; no key in any message."""

from __future__ import annotations

import datetime as dt
import email.utils
import math

import httpx

from pace_dspy.errors import (
    AuthError,
    BackendError,
    BackendTimeoutError,
    BadRequestError,
    QuotaError,
    RateLimitError,
    ServerError,
)

RETRYABLE = frozenset({408, 409, 429, 500, 502, 503, 504})
_SHOWN = 200


def retry_wait(response: httpx.Response | None, attempt: int) -> float:
    """Return seconds to wait before the next try.

    Args:
        response: The answer, ``None`` when there was none.
        attempt: Tries made before this one, from 0.

    Returns:
        What Retry-After asks for (seconds or HTTP date), else 0.5, 1, 2, ... seconds; infinite when the account
        has no credit left, for waiting does not help.
    """
    if response is not None and _no_credit(response):
        return math.inf
    asked = response.headers.get("retry-after", "").strip() if response is not None else ""
    try:
        return max(0.0, float(asked))
    except ValueError:
        pass
    try:
        until = email.utils.parsedate_to_datetime(asked)
    except (ValueError, TypeError):
        return 0.5 * float(2**attempt)
    until = until if until.tzinfo else until.replace(tzinfo=dt.UTC)
    return max(0.0, (until - dt.datetime.now(dt.UTC)).total_seconds())


def error_of(
    response: httpx.Response | None,
    problem: str,
    wait: float,
    *,
    backend: str,
    model: str,
    key: str | None,
    variable: str,
) -> BackendError:
    """Return the typed error of a failed call.

    Args:
        response: The last answer, ``None`` when there was none.
        problem: What happened when there was none.
        wait: Seconds the server asked to wait.
        backend: Name for the message.
        model: Name for the message.
        key: The key, which is cut out of anything the server echoes.
        variable: Environment variable of the key, for the remedy.
    """
    if response is None:
        return BackendTimeoutError(problem, backend=backend, model=model, remedy="Check address and network")
    status = response.status_code
    said = " ".join(response.text.split())
    if key:
        said = said.replace(key, "[key]")
    said = said[:_SHOWN]
    kind: type[BackendError]
    if status in (401, 403):
        # The server's own words are left out: some echo part of the key.
        kind, said, remedy = AuthError, "the key was refused", f"Check the key in {variable}"
    elif status == 429 and _no_credit(response):
        kind, remedy = QuotaError, "The account has no credit left"
    elif status == 429:
        kind, remedy = RateLimitError, f"The server asks to wait {wait:.0f} s; try later or send smaller batches"
    elif status >= 500:
        kind, remedy = ServerError, "Try later, or check the server's log"
    elif 400 <= status < 500:
        kind, remedy = BadRequestError, "Check model name and address"
    else:
        kind, remedy = BackendError, "Check the address; redirects are not followed"
    return kind(f"HTTP {status}: {said}", backend=backend, model=model, remedy=remedy)


def _no_credit(response: httpx.Response) -> bool:
    return response.status_code == 429 and "insufficient_quota" in response.text
