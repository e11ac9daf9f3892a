"""Facts and random changes for tests of live KBs, and the comparison of two indexes to the last bit."""

import datetime as dt

import numpy as np

from pace_dspy.retrieval import KbIndex
from pace_dspy.types import Fact, View

_WORDS = "Ana Rui boathouse key oysters Friday airport swims Porto repairs 19:30 2026-03-26 lamp garden rent"
WORDS = _WORDS.split()
VIEWS = [View("original", "boathouse key Friday"), View("counter", "Ana oysters oysters"), View("counter", "19:30")]


def make_facts(n, rng, first=0):
    """Facts of few words, so that equal texts, equal scores and terms in most facts are common."""
    return [
        Fact(f"f{first + i:05d}", " ".join(rng.choices(WORDS, k=rng.randint(1, 7))), dt.date(2026, 1, 1 + i % 28))
        for i in range(n)
    ]


def same_results(found, expected):
    """Ids and scores of every stage, to the last bit."""
    assert list(found.doc_ids) == list(expected.doc_ids)
    assert (found.texts, found.dates, found.content_hash) == (expected.texts, expected.dates, expected.content_hash)
    assert found.search(VIEWS, 10) == expected.search(VIEWS, 10)
    queries = [view.text for view in VIEWS]
    np.testing.assert_array_equal(found.sparse.scores(queries), expected.sparse.scores(queries))
    np.testing.assert_array_equal(found.graph.neighbours, expected.graph.neighbours)
    np.testing.assert_array_equal(found.graph.similarities, expected.graph.similarities)
    np.testing.assert_array_equal(found.dense.vectors, expected.dense.vectors)
    seeds = list(found.doc_ids)[:5]
    assert found.graph.expand(seeds, 5, 3) == expected.graph.expand(seeds, 5, 3)


def rebuilt(index, embedder):
    """The index of the same facts, built from nothing."""
    return KbIndex.build(index.kb_id, index.facts.facts(), embedder, index.graph.k)


def random_change(live, rng, number):
    ids = list(live.snapshot.doc_ids)
    kind = rng.choice(["add", "add", "remove", "update", "update", "expire"]) if len(ids) > 20 else "add"
    if kind == "add":
        live.add(make_facts(rng.randint(1, 3), rng, first=1000 + 10 * number))
    elif kind == "remove":
        live.remove(rng.sample(ids, rng.randint(1, 3)))
    elif kind == "update":
        chosen = rng.sample(ids, rng.randint(1, 3))
        live.update([Fact(d, f.text, f.date) for d, f in zip(chosen, make_facts(3, rng), strict=False)])
    elif rng.random() < 0.2:
        live.expire(dt.date(2026, 1, rng.randint(1, 4)))
