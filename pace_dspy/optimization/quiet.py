"""Keeping the prints and bars of DSPy's optimizers off our output."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep optimizers' prints and bars off our output; their log goes to the ``dspy`` logger as ever."""
    logger = logging.getLogger("dspy")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(_Through(sys.stderr)):
            yield
    finally:
        logger.setLevel(level)


class _Through(io.StringIO):
    """Swallows progress bars (lines without an end) and passes on whole lines.

    Our own messages and bar go past it: rich writes to ``rich_proxied_file`` where a stream has one.
    """

    def __init__(self, target: Any) -> None:
        super().__init__()
        self._target = target
        self.rich_proxied_file = getattr(target, "rich_proxied_file", target)

    def write(self, text: str) -> int:
        if text.strip() and text.endswith("\n") and "\r" not in text and "it/s" not in text and "rollouts" not in text:
            self._target.write(text)
        return len(text)

    def isatty(self) -> bool:
        return False
