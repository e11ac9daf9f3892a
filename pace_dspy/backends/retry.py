"""When a failed call is made again, and after how long. Ours; DSPy's own retries are switched off.

DSPy 3.4.1 sleeps as long as a server asks (an hour, if it says so), without jitter, and does not count.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from dspy.clients._http import finite_seconds
from dspy.utils.exceptions import LMError, LMTimeoutError, is_retryable_lm_error

MAX_RETRY_AFTER_S = 60.0
"""Longest wait that a server may ask for; more than that is an error at once. Ours."""
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 20.0
MAX_TIMEOUT_RETRIES = 1
"""A server that let one call time out is asked once more, not ``num_retries`` times. Ours."""

log = logging.getLogger(__name__)
sleep = time.sleep
T = TypeVar("T")


def pause_before_retry(error: Exception, attempt: int) -> float | None:
    """Return the seconds to wait before attempt ``attempt + 1``, or ``None`` when asking again is wrong.

    A server's Retry-After is obeyed up to `MAX_RETRY_AFTER_S`; without one the wait doubles each time, and half of it
    is left to chance, so that requests in flight do not come back together.

    Args:
        error: What the attempt ended with.
        attempt: Attempts made so far, from 1.
    """
    if not is_retryable_lm_error(error):
        return None
    if isinstance(error, LMTimeoutError) and attempt > MAX_TIMEOUT_RETRIES:
        return None
    asked: float | None = finite_seconds(getattr(error, "retry_after", None))
    if asked is not None and asked > MAX_RETRY_AFTER_S:
        return None
    backoff: float = min(FIRST_BACKOFF_S * 2 ** (attempt - 1), MAX_BACKOFF_S)
    if asked is None:
        return backoff * random.uniform(0.5, 1.0)
    return asked + FIRST_BACKOFF_S * random.uniform(0.1, 1.0)


def with_retries(call: Callable[[], T], retries: int, on_retry: Callable[[], None]) -> T:
    """Return what ``call`` returns, making it again after failures that can pass.

    Args:
        call: One attempt.
        retries: Most attempts after the first.
        on_retry: Called before each of them.

    Raises:
        LMError: The last failure.
    """
    attempt = 1
    while True:
        try:
            return call()
        except LMError as exc:
            pause = pause_before_retry(exc, attempt) if attempt <= retries else None
            if pause is None:
                raise
            log.info("%s: attempt %d of %d in %.1f s", type(exc).__name__, attempt + 1, retries + 1, pause)
        on_retry()
        sleep(pause)
        attempt += 1
