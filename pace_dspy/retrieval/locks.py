"""One writer at a time for a KB, and disk errors that name the path. Ours."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from pace_dspy.errors import PaceError
from pace_dspy.retrieval.layout import MANIFEST, check_folder

LOCK_WAIT_S = 60.0
_QUIET_S = 0.3
"""A wait shorter than this is not worth a message."""
_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def writing(folder: Path, kb_id: str, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the writer's lock of a KB.

    Args:
        folder: The KB's folder; made when missing.
        kb_id: The KB, for messages.
        on_wait: Told, in one sentence, that another writer is waited for; the log by default.

    Raises:
        PaceError: Another writer holds the KB too long, or the disk is full or read-only.
        ConfigError: A file is in the place of the folder.
    """
    check_folder(folder)
    wait_s = LOCK_WAIT_S
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=min(_QUIET_S, wait_s))
        except filelock.Timeout:
            tell = on_wait or _logger.warning
            tell(f"KB {kb_id!r} is being written by another process; waiting up to {wait_s:.0f} s")
            lock.acquire(timeout=wait_s)
        try:
            yield
        finally:
            lock.release()
    except filelock.Timeout as exc:
        raise PaceError(
            f"the index of KB {kb_id!r} in {folder} is being written by another process; try again when it is done "
            f"(waited {wait_s:.0f} s)"
        ) from exc
    except OSError as exc:
        raise PaceError(
            f"the index of KB {kb_id!r} cannot be written to {folder}: {exc.strerror or exc}. "
            f"{_what_is_left(folder)}; {_remedy(exc)}"
        ) from exc


def _what_is_left(folder: Path) -> str:
    return "An older version is intact" if os.path.lexists(folder / MANIFEST) else "Nothing is stored there"


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or choose another folder"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "make it writable or choose another folder"
    return "choose another folder"
