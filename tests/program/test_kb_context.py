"""Structure of a knowledge base that changes: equal to a build from nothing, made from what is known already."""

import datetime as dt
import random

import numpy as np
import pytest
from hash_embedder import HashEmbedder

from pace_dspy import kb_context
from pace_dspy.kb_context import VERSIONS, build_context, context_of
from pace_dspy.retrieval import KbIndex, LiveKb, save_index
from pace_dspy.types import Fact

DAY = dt.date(2026, 3, 18)
TEXTS = [
    "Ines has dinner with Maya every Friday at the quay.",
    "Maya must keep a vegan kitchen since 3 January 2026.",
    "Hearth and Bone is closed until 28 March 2026.",
    "Rui, the brother of Maya, tunes the harpsichord on Mondays.",
    "The quay is flooded from 2 to 9 May.",
    "harpsichord lessons are not allowed after ten.",
    "Bone broth is sold at Hearth and Bone.",
    "Maya's sister Zelda moved to Pier 14 yesterday.",
]


@pytest.fixture(autouse=True)
def _none_open(monkeypatch):
    monkeypatch.setattr(kb_context, "_open", type(kb_context._open)())


@pytest.fixture
def live(tmp_path):
    facts = [Fact(f"f{n}", f"{TEXTS[n % 8]} Note {n}.", DAY if n % 3 else None) for n in range(40)]
    save_index(KbIndex.build("home", facts, HashEmbedder()), tmp_path)
    return LiveKb(tmp_path, "home", HashEmbedder())


def parts(context, kb):
    """All that a context holds, as plain values."""
    graph = context.graph("hybrid", kb, 0.2)
    return {
        "known": context.people.known,
        "roles": context.people.mentions("my brother and Maya's sister"),
        "keys": context.keys,
        "doc_freqs": context.vocabulary.doc_freqs,
        "name_keys": context.vocabulary.name_keys,
        "days": context.times.day_keys,
        "touching": context.times.touching(kb_context.find_times("28 March 2026", DAY)[0].intervals).tolist(),
        "terms": context.links.keys,
        "links": context.links.matrix.toarray().tolist(),
        "strengths": context.strengths.tolist(),
        "walk": [(fact.position, fact.score) for fact in graph.walk({0: 1.0}, 20)],
    }


def test_random_changes_end_in_a_rebuild(live):
    rng = random.Random(7)
    for step in range(25):
        ids = list(live.snapshot.doc_ids)
        some = rng.sample(ids, 3)
        text = f"{rng.choice(TEXTS)} {rng.choice(['Bruna sings.', 'bruna sings.', 'Ask Rui.', 'On 7 June.'])}"
        act = rng.choice(["add", "add", "remove", "update"])
        if act == "add":
            live.add([Fact(f"n{step}", text, DAY)])
        elif act == "remove":
            live.remove(some)
        else:
            live.update([Fact(some[0], text)])
        kb = live.snapshot
        found = context_of(kb, DAY, "Ines")
        facts = [Fact(*parts_) for parts_ in zip(kb.doc_ids, kb.texts, kb.dates, strict=True)]
        fresh = KbIndex.build("fresh", facts, HashEmbedder())
        assert parts(found, kb) == parts(build_context(fresh, DAY, "Ines"), kb), (step, act)


def test_facts_that_stay_are_not_read_again(live, monkeypatch):
    read = []
    whole = kb_context.find_times

    def counted(text, *rest, **more):
        read.append(text)
        return whole(text, *rest, **more)

    monkeypatch.setattr(kb_context, "find_times", counted)
    first = context_of(live.snapshot, DAY, "Ines")
    assert len(read) == 40
    live.add([Fact("new", "The quay is open again on 1 April 2026.")])
    read.clear()
    context_of(live.snapshot, DAY, "Ines")
    assert read == ["The quay is open again on 1 April 2026."]
    read.clear()
    assert context_of(live.snapshot, DAY.replace(day=2), "Ines") is not first
    assert read == []
    context_of(live.snapshot, dt.date(2026, 4, 18), "Ines")  # another month reads dates without a year anew
    assert len(read) == 41


def test_only_the_last_versions_of_a_changing_kb_are_kept(live):
    other = KbIndex.build("other", [Fact("a", TEXTS[0])], HashEmbedder())
    kept = context_of(other, DAY, None)
    for step in range(6):
        live.add([Fact(f"n{step}", TEXTS[step])])
        context_of(live.snapshot, DAY, "Ines")
    assert len(kb_context._open) == VERSIONS + 1
    assert context_of(other, DAY, None) is kept


def test_the_day_of_the_first_request_changes_nothing():
    """15 September 2025 is nearest to 1 March, that of 2026 to 31 March: the whole month has one reading."""
    facts = [Fact("a", "The quay is closed on 1 October."), Fact("b", "The quay is closed on 15 September.")]
    kb = KbIndex.build("home", facts, HashEmbedder())
    early, late = (build_context(kb, DAY.replace(day=day), None) for day in (1, 31))
    assert early.times.day_keys == late.times.day_keys
    np.testing.assert_array_equal(early.links.matrix.toarray(), late.links.matrix.toarray())
