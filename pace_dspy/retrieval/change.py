"""What one change of a KB did, for whatever is derived from its facts. Ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from pace_dspy.retrieval.kb import KbIndex


@dataclass(frozen=True)
class KbChange:
    """From one index to a later one: facts taken out, then facts put at the end.

    Attributes:
        kb_id: The KB.
        version: Its version now; each change is one more.
        previous_hash: ``content_hash`` before.
        content_hash: ``content_hash`` now.
        removed_positions: Positions in the index before that were taken out, ascending.
        removed: Their ids; an updated fact is taken out and put in again.
        added: Ids put at the end of the corpus, in order.
        index: The index now.
    """

    kb_id: str
    version: int
    previous_hash: str
    content_hash: str
    removed_positions: tuple[int, ...]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    index: KbIndex = dataclasses.field(repr=False, compare=False)


def change_between(old: KbIndex, new: KbIndex) -> KbChange:
    """Return what leads from any index to any other: what stays in its order, then what was put at the end."""
    positions = {digest.tobytes(): position for position, digest in enumerate(old.facts.hashes)}
    stays = [-1]
    for digest in new.facts.hashes:
        position = positions.get(digest.tobytes(), -1)
        if position <= stays[-1]:
            break
        stays.append(position)
    removed = sorted(set(range(len(old))) - set(stays))
    return described(old, new, removed, len(new) + 1 - len(stays))


def described(old: KbIndex, new: KbIndex, removed: Sequence[int], n_added: int) -> KbChange:
    """Return the change that took out positions of ``old`` and put the last ``n_added`` facts of ``new`` in."""
    return KbChange(
        kb_id=new.kb_id,
        version=new.version,
        previous_hash=old.content_hash,
        content_hash=new.content_hash,
        removed_positions=tuple(removed),
        removed=tuple(old.doc_ids.take(removed)),
        added=tuple(new.doc_ids.take(range(len(new) - n_added, len(new)))),
        index=new,
    )
