"""Helpers of the tests that run the whole program: a small KB of a named owner, and one request on a script."""

import datetime as dt

import dspy
from hash_embedder import HashEmbedder
from scripted import scripted_lm

from pace_dspy.program import PaceMakerProgram
from pace_dspy.retrieval import KbIndex, register_kb
from pace_dspy.types import Fact

DAY = dt.date(2026, 3, 18)


def make_kb(kb_id, n=60, owner="Ines"):
    facts = [Fact(f"{kb_id}-{i}", f"{owner} notes plan {i % 7} with guest {i} on Friday.") for i in range(n)]
    return register_kb(KbIndex.build(kb_id, facts, HashEmbedder()), replace=True)


def ask(script, *, config=None, kb_id="home", request="Book dinner on Friday", reply_cache=None, **profile):
    """Run one request on a scripted model; returns the prediction and the model."""
    lm = scripted_lm(script, reply_cache=reply_cache, **profile)
    with dspy.context(lm=lm):
        prediction = PaceMakerProgram(config)(request=request, reference_date=DAY, kb_id=kb_id, persona="Ines")
    return prediction, lm
