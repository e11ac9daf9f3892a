"""DSPy's warning about a truncated reply, kept off stderr while our boundary handles exactly that."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_quiet: ContextVar[bool] = ContextVar("pace_dspy_quiet_truncation", default=False)


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (_quiet.get() and "truncated" in record.getMessage())


@contextmanager
def quiet_truncation() -> Iterator[None]:
    """Drop the warning for calls made inside; a cut reply is asked for again and counted as a repair."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


logging.getLogger("dspy.clients.lm").addFilter(_Filter())
