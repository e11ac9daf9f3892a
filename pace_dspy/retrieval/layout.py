"""Where the index of a KB lies below a root folder: the only file that knows. Ours.

``ROOT/ab/cd/<kb_id>/``, where ``abcd`` starts the SHA-256 of the kb_id: no folder gets large with a million KBs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from pace_dspy.errors import ConfigError
from pace_dspy.retrieval.kb import check_kb_id

MANIFEST = "manifest.json"


def index_dir(root: Path | str, kb_id: str) -> Path:
    """Return the folder of a KB's index below ``root``.

    Raises:
        ConfigError: ``kb_id`` may not be part of a path.
    """
    prefix = hashlib.sha256(check_kb_id(kb_id).encode()).hexdigest()
    return Path(root) / prefix[:2] / prefix[2:4] / kb_id


def stored_kb_ids(root: Path | str) -> Iterator[str]:
    """Yield the KBs stored below ``root``, folder by folder.

    Raises:
        ConfigError: ``root`` is a file.
    """
    check_folder(Path(root))
    for first in sorted(Path(root).glob("[0-9a-f][0-9a-f]")):
        for path in sorted(first.glob(f"[0-9a-f][0-9a-f]/*/{MANIFEST}")):
            yield path.parent.name


def check_folder(folder: Path, setting: str | None = None) -> Path:
    """Return a folder of indexes, or below it, unless a file is in its place; it need not exist.

    Args:
        folder: The folder.
        setting: Name of the option or variable that chose it, for the message.

    Raises:
        ConfigError: It, or a folder above it, is a file.
    """
    nearest = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if os.path.lexists(nearest) and not nearest.is_dir():
        where = f"{setting}={folder}: " if setting else ""
        raise ConfigError(
            f"{where}{nearest} is a file where a folder of indexes is needed; move it away, or choose another folder "
            f"with {setting or '--index or PACE_INDEX_DIR'}"
        )
    return folder


def root_of(folder: Path) -> Path:
    """Return the root that a KB's folder lies below."""
    return folder.absolute().parents[2]
