import copy
import datetime as dt
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hash_embedder import TEXTS, HashEmbedder

from pace_dspy.errors import ConfigError
from pace_dspy.retrieval import (
    Embedder,
    KbIndex,
    get_kb,
    register_kb,
    registered_kbs,
    unregister_kb,
)
from pace_dspy.types import Fact, View, ViewHits

VIEWS = [
    View("original", "Put the boathouse key back"),
    View("counter", "oysters shellfish"),
    View("counter", "Rui lands"),
]


def test_all_views_in_one_batch_equal_each_alone(facts, embedder):
    index = KbIndex.build("kb", facts, embedder)
    together = index.search(VIEWS, 4)
    assert embedder.query_batches == [[view.text for view in VIEWS]]
    assert together == [index.search([view], 4)[0] for view in VIEWS]


def test_search_joins_both_retrievers(facts, embedder):
    index = KbIndex.build("kb", facts, embedder)
    [hits] = index.search([View("original", "boathouse key")], 3)
    assert [hit.doc_id for hit in hits.sparse] == [facts[0].doc_id, facts[3].doc_id]
    assert len(hits.dense) == 3
    assert hits.dense[0].doc_id == facts[0].doc_id


def test_blank_views_find_nothing_and_are_not_embedded(facts, embedder):
    index = KbIndex.build("kb", facts, embedder)
    found = index.search([View("original", " "), View("counter", "Rui lands")], 2)
    assert found[0] == ViewHits((), ())
    assert found[1] == index.search([View("counter", "Rui lands")], 2)[0]
    assert embedder.query_batches[0] == ["Rui lands"]
    assert index.search([], 2) == []
    assert index.search([View("original", "")], 2) == [ViewHits((), ())]


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_tiny_kbs(n, embedder):
    facts = [Fact(f"f{number}", text) for number, text in enumerate(TEXTS[:n])]
    index = KbIndex.build("tiny", facts, embedder)
    assert len(index) == n
    [hits] = index.search([View("original", TEXTS[0])], 10)
    assert len(hits.dense) == n
    assert index.graph.neighbours.shape == (n, max(0, n - 1))
    assert sorted(index.graph.expand([f.doc_id for f in facts[:1]], 5, 3).doc_ids) == [f.doc_id for f in facts]


def test_text_and_date(facts, embedder):
    index = KbIndex.build("kb", facts, embedder)
    assert [index.text(fact.doc_id) for fact in facts] == TEXTS
    assert [index.date(fact.doc_id) for fact in facts] == [fact.date for fact in facts]
    with pytest.raises(KeyError, match="no fact 'ghost' among the 7 facts"):
        index.text("ghost")


def test_progress_reaches_the_total(embedder):
    facts = [Fact(f"f{number}", f"fact number {number}") for number in range(1100)]
    calls = []
    KbIndex.build("kb", facts, embedder, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(512, 1100), (1024, 1100), (1100, 1100)]


def test_embedding_in_sorted_chunks_keeps_corpus_order(embedder):
    rng = random.Random(0)
    facts = [Fact(f"f{n}", " ".join(rng.choices(["ab", "cde", "fghij"], k=rng.randint(1, 9)))) for n in range(700)]
    index = KbIndex.build("kb", facts, embedder)
    expected = embedder.embed_documents([fact.text for fact in facts])
    np.testing.assert_array_equal(index.dense.vectors, expected)
    assert not index.dense.vectors.flags.writeable


@pytest.mark.parametrize("kb_id", ["", ".", "..", "a/b", "a\\b", "../x", "a b", "ä", "a\n", "x" * 129, "a\0"])
def test_kb_ids_that_may_not_be_paths(kb_id, embedder):
    with pytest.raises(ConfigError, match="is not allowed: use 1-128 letters, digits"):
        KbIndex.build(kb_id, [], embedder)


def test_an_embedder_that_breaks_its_contract_is_named(facts):
    class Short(HashEmbedder):
        def embed_documents(self, texts):
            return super().embed_documents(texts)[:-1]

    with pytest.raises(ValueError, match=r"embedder 'hash:32' gave shape \(6, 32\) where \(7, 32\) is needed"):
        KbIndex.build("kb", facts, Short())


def test_graph_k(facts, embedder):
    index = KbIndex.build("kb", facts, embedder, graph_k=2)
    assert index.graph.neighbours.shape == (7, 2)
    with pytest.raises(ValueError, match="graph_k is -1"):
        KbIndex.build("kb", facts, embedder, graph_k=-1)


@pytest.mark.parametrize(
    "act", [copy.copy, copy.deepcopy, pickle.dumps, lambda index: copy.deepcopy({"held": [index]})]
)
def test_an_index_is_never_copied_or_pickled(act, facts, embedder):
    index = KbIndex.build("kb", facts, embedder)
    with pytest.raises(TypeError, match="the index of KB 'kb' is never copied or pickled; keep its kb_id"):
        act(index)


def test_hash_embedder_keeps_the_protocol(embedder):
    assert isinstance(embedder, Embedder)


def test_registry(facts, embedder):
    index = KbIndex.build("ana", facts, embedder)
    assert register_kb(index) is index
    assert register_kb(index) is index
    assert get_kb("ana") is index
    assert registered_kbs() == ("ana",)
    other = KbIndex.build("ana", facts, embedder)
    with pytest.raises(ConfigError, match="kb_id 'ana' is registered for another index; use another kb_id, or replace"):
        register_kb(other)
    register_kb(other, replace=True)
    assert get_kb("ana") is other
    unregister_kb("ana")
    unregister_kb("ana")
    with pytest.raises(ConfigError, match=r"no index is registered for kb_id 'ana' \(0 others are\); build one with"):
        get_kb("ana")


def test_the_registry_does_not_tell_who_else_is_there(facts, embedder):
    register_kb(KbIndex.build("secret-person", facts, embedder))
    with pytest.raises(ConfigError) as error:
        get_kb("ana")
    assert "secret-person" not in str(error.value)


def test_two_kbs_from_eight_threads_never_mix(embedder):
    words = {"ana": "apple", "bo": "boat"}
    for kb_id, word in words.items():
        facts = [Fact(f"{kb_id}-{n}", f"{word} {n} shared words", dt.date(2026, 1, 1)) for n in range(200)]
        register_kb(KbIndex.build(kb_id, facts, embedder))
    views = [View("original", "apple boat 7 shared"), View("counter", "boat 9")]
    expected = {kb_id: get_kb(kb_id).search(views, 10) for kb_id in words}

    def ask(number):
        kb_id = "ana" if number % 2 else "bo"
        index = get_kb(kb_id)
        hits = index.search(views, 10)
        seeds = [hit.doc_id for side in hits for hit in (*side.dense, *side.sparse)]
        return kb_id, hits, index.graph.expand(seeds, 3, 3).doc_ids

    with ThreadPoolExecutor(8) as pool:
        for kb_id, hits, reached in pool.map(ask, range(400)):
            assert hits == expected[kb_id]
            assert {doc_id.partition("-")[0] for doc_id in reached} == {kb_id}
