"""One contract for every retriever, built fresh and loaded from disk."""

import numpy as np
import pytest
from hash_embedder import HashEmbedder

from pace_dspy.retrieval import DenseIndex, KbIndex, SparseIndex, load_index, save_index
from pace_dspy.types import Fact, View

TEXTS = [
    "red apple pie",
    "green apple",
    "blue sky over Évora",
    "red red apple",
    "green apple",
    "plain rice",
    "blue sea",
]
IDS = ["d3", "d1", "d6", "d2", "d5", "d0", "d4"]


class Dense:
    def __init__(self, ids, texts):
        self.embedder = HashEmbedder()
        self.index = DenseIndex.build(ids, self.embedder.embed_documents(texts))

    def search(self, query, k):
        return self.index.search(self.embedder.embed_queries([query]), k)[0]


class Sparse:
    def __init__(self, ids, texts):
        self.index = SparseIndex.build(ids, texts)

    def search(self, query, k):
        return self.index.search(query, k)


class Kb:
    side = "dense"
    folder = None

    def __init__(self, ids, texts):
        facts = [Fact(*pair) for pair in zip(ids, texts, strict=True)]
        self.index = KbIndex.build("kb", facts, HashEmbedder())
        if self.folder:
            save_index(self.index, self.folder)
            self.index = load_index(self.folder, "kb", HashEmbedder())

    def search(self, query, k):
        return [
            (hit.doc_id, hit.score) for hit in getattr(self.index.search([View("original", query)], k)[0], self.side)
        ]


@pytest.fixture(params=["dense", "sparse", "kb-dense", "kb-sparse", "loaded-dense", "loaded-sparse"])
def make(request, tmp_path):
    kind, _, side = request.param.partition("-")
    if not side:
        return {"dense": Dense, "sparse": Sparse}[kind]
    return type("Bound", (Kb,), {"side": side, "folder": tmp_path if kind == "loaded" else None})


@pytest.fixture
def is_sparse(request):
    return "sparse" in request.node.callspec.params["make"]


def test_the_text_itself_is_first(make):
    retriever = make(IDS, TEXTS)
    assert [retriever.search(text, 1)[0][0] for text in ("red apple pie", "plain rice", "blue sea")] == [
        "d3",
        "d0",
        "d4",
    ]


def test_best_first_and_unique(make):
    hits = make(IDS, TEXTS).search("red apple", 7)
    scores = [score for _, score in hits]
    assert scores == sorted(scores, reverse=True)
    assert len({doc_id for doc_id, _ in hits}) == len(hits)
    assert all(isinstance(doc_id, str) and isinstance(score, float) for doc_id, score in hits)


@pytest.mark.parametrize("k", [0, 1, 7, 8, 1000])
def test_k_is_capped(make, is_sparse, k):
    hits = make(IDS, TEXTS).search("red apple", k)
    # "red" or "apple" occurs in four of the seven facts; dense ranks all of them.
    assert len(hits) == min(k, 4 if is_sparse else 7)
    assert hits == make(IDS, TEXTS).search("red apple", 1000)[:k]


def test_negative_k_is_refused(make):
    with pytest.raises(ValueError, match="k is -1; it must be an integer >= 0"):
        make(IDS, TEXTS).search("red", -1)


def test_equal_scores_come_in_corpus_order(make):
    hits = make(IDS, TEXTS).search("green apple", 2)
    assert [doc_id for doc_id, _ in hits] == ["d1", "d5"]
    assert hits[0][1] == hits[1][1]


def test_all_facts_equal(make, is_sparse):
    ids = [f"x{number}" for number in range(60)]
    hits = make(ids, ["same words here"] * 60).search("same words here", 25)
    # Each term is in every fact: idf is negative, so is its mean; BM25 scores nothing above 0.
    assert [doc_id for doc_id, _ in hits] == ([] if is_sparse else ids[:25])


@pytest.mark.parametrize("query", ["", "   ", "\n"])
def test_empty_query(make, is_sparse, query):
    if make is Dense:
        pytest.skip("DenseIndex sees vectors, not texts; KbIndex answers for it")
    assert make(IDS, TEXTS).search(query, 5) == []


def test_unknown_words_find_nothing_by_terms(make, is_sparse):
    hits = make(IDS, TEXTS).search("xylophonists zzyzx", 5)
    assert len(hits) == (0 if is_sparse else 5)


def test_accents_split_words(make, is_sparse):
    # "Évora" is the term "vora", in the fact as in the query.
    hits = make(IDS, TEXTS).search("Évora", 7)
    assert [doc_id for doc_id, _ in hits][:1] == ["d6"]
    assert len(hits) == (1 if is_sparse else 7)


def test_empty_corpus(make):
    if make is Dense:
        assert DenseIndex.build([], []).search(np.ones((2, 5)), 3) == [[], []]
    else:
        assert make([], []).search("red", 5) == []


def test_one_fact(make, is_sparse):
    # N = 1 makes Okapi's idf ln(0.5) - ln(1.5) < 0, replaced by 0.25 x itself: BM25 has nothing above 0.
    hits = make(["only"], ["red apple"]).search("red apple", 5)
    assert [doc_id for doc_id, _ in hits] == ([] if is_sparse else ["only"])


def test_same_input_same_output(make):
    assert make(IDS, TEXTS).search("red apple", 7) == make(IDS, TEXTS).search("red apple", 7)


def test_repeated_id_is_refused(make):
    with pytest.raises(ValueError, match="doc_id 'a' occurs twice"):
        make(["a", "b", "a"], ["one", "two", "three"])


def test_empty_id_is_refused(make):
    with pytest.raises(ValueError, match="doc_id at position 1 is empty"):
        make(["a", "", "b"], ["one", "two", "three"])
