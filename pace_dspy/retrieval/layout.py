"""Where the index of a KB lies below a root folder: the only file that knows. Ours.

``ROOT/ab/cd/<kb_id>/``, where ``abcd`` starts the SHA-256 of the kb_id: no folder gets large with a million KBs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

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
    """Yield the KBs stored below ``root``, folder by folder."""
    for first in sorted(Path(root).glob("[0-9a-f][0-9a-f]")):
        for path in sorted(first.glob(f"[0-9a-f][0-9a-f]/*/{MANIFEST}")):
            yield path.parent.name


def root_of(folder: Path) -> Path:
    """Return the root that a KB's folder lies below."""
    return folder.absolute().parents[2]
