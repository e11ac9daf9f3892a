"""A tiny set that keeps every rule, to be broken one defect at a time."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from pace_files import TIMELINE, write_json

from pace_dspy.data import MINI_RULES

RULES = replace(MINI_RULES, name="tiny", facts_per_case=(30, 40), requests_per_case=6)

_WHO = "Ana Rui Maya Teo Lia Noor Otto Pia Quin Sol".split()  # noqa: SIM905
_DID = "painted borrowed repaired washed carried sold lost found measured wrapped".split()  # noqa: SIM905
_WHAT = "lantern kettle ladder carpet violin saddle compass teapot blanket basket".split()  # noqa: SIM905
_WHERE = "harbour orchard chapel mill tunnel bakery quarry stable lighthouse meadow".split()  # noqa: SIM905
_WHY = "before rain came|after long talks|without much noise|against good advice|during one break".split("|")  # noqa: SIM905


def sentences(n: int, seed: int) -> list[str]:
    """Different sentences of 11 words or so; every third has a date inside the window."""
    draw = random.Random(seed)
    made: dict[str, None] = {}
    while len(made) < n:
        who, other = draw.sample(_WHO, 2)
        what, where = draw.sample(_WHAT, 2), draw.sample(_WHERE, 2)
        day = f" on {draw.randint(1, 28)} February" if len(made) % 3 == 0 else ""
        made[
            f"{who} {draw.choice(_DID)} {what[0]} and {what[1]} for {other} between {where[0]} and {where[1]}"
            f"{day} {draw.choice(_WHY)}."
        ] = None
    return list(made)


def valid_persona(case_id: str, seed: int) -> dict[str, Any]:
    """36 facts, 6 requests (3 types in both labels), 3 gold facts each."""
    texts = sentences(36, seed)
    corpus = [{"doc_id": f"f{i}", "text": text} for i, text in enumerate(texts)]
    queries = []
    asks = ("Book us seats upstairs.", "Order new tyres today.", "Invite everybody again.", "Renew my pass soon.")
    asks += ("Cancel our standing order.", "Send him both invoices.")
    for number, ask in enumerate(asks):
        conflict = (number + seed) % 2 == 0
        query = {
            "query_id": f"q00{number}",
            "query": ask,
            "label": "conflict" if conflict else "non_conflict",
            "situation_type": ("temporal", "personal", "state")[number // 2],
            "gold_doc_ids": [f"f{3 * number + i}" for i in range(3)],
            "judgment": "Dr. Otto sold it at 3 p.m. sharp. So it cannot be had.",
        }
        queries.append(query if conflict else query | {"near_miss": f"kind {number}"})
    profile = {"spec": {"demographic": {"full_name": f"Ana {case_id}"}}}
    return {"case_id": case_id, "timeline": dict(TIMELINE), "corpus": corpus, "queries": queries, "profile": profile}


def write_valid(root: Path, *, prefix: str = "t") -> Path:
    """Write two personas that keep every rule."""
    return write_json(root, valid_persona(f"{prefix}_1", 0), valid_persona(f"{prefix}_2", 1))
