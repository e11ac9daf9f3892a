"""Places that a user names: checked before any work, and refused in one line."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from pace_dspy.errors import ConfigError


def as_path(value: str | Path, name: str) -> Path:
    """Return a path as such.

    Raises:
        TypeError: It is neither text nor a path.
        ConfigError: It is empty, which would mean the current folder.
    """
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path (text or pathlib.Path), not {type(value).__name__}: {value!r}")
    if not str(value).strip():
        raise ConfigError(f"{name} is empty; give a path ('.' is the current folder)")
    return Path(value)


def writable_folder(path: Path, option: str = "--out") -> Path:
    """Return a folder that can be made and written to; tries it and leaves nothing behind.

    Raises:
        ConfigError: It is a file, or cannot be made or written to.
    """
    made = [place for place in (path, *path.parents) if not os.path.lexists(place)]
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as exc:
        remedy = "Give a new folder, or one that you may write to"
        raise ConfigError(f"{option} {str(path)!r} cannot be a folder to write to ({_reason(exc)}). {remedy}") from exc
    finally:
        for place in made:
            with contextlib.suppress(OSError, ValueError):
                place.rmdir()
    return path


def write_file(path: Path, content: str, option: str = "--out") -> None:
    """Write a text file in UTF-8 under a temporary name, then rename it; a missing folder is made.

    Raises:
        ConfigError: The path is a folder, a device or another thing that is no regular file, or cannot be written.
    """
    partial: Path | None = None
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise ConfigError(f"{option} {str(path)!r} is no regular file; give the path of a new or existing file")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".partial", dir=target.parent)
        partial = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
        partial.chmod(0o666 & ~_umask())
        partial.replace(target)
    except (OSError, RuntimeError) as exc:
        remedy = "Give a file in a folder that you may write to"
        raise ConfigError(f"{option} {str(path)!r} cannot be written ({_reason(exc)}). {remedy}") from exc
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _reason(exc: Exception) -> str:
    return (getattr(exc, "strerror", None) or str(exc)).lower()
