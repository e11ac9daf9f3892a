"""Renames that survive a power cut: contents first, then the name, then the folder that holds it."""

from __future__ import annotations

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Wait until a file or folder is on disk (folders only where the system can)."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a folder whose files are complete."""
    for path in source.iterdir():
        flush(path)
    flush(source)
    source.rename(target)
    flush(target.parent)


def replace_text(path: Path, text: str) -> None:
    """Replace a small file in one step."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    flush(temporary)
    temporary.replace(path)
    flush(path.parent)
