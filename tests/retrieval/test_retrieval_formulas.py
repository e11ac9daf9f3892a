"""Written-out formulas and brute force next to bm25s, FAISS and the graph."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pace_dspy.retrieval import DenseIndex, KnnGraph, SparseIndex, fuse_views, tokenize, weighted_rrf
from pace_dspy.retrieval.vectors import l2_normalise
from pace_dspy.types import FusedHit, Hit, View, ViewHits

WORDS = ["noor", "noor's", "the", "salsa", "open-water", "2026-05-09", "19:30", "café", "42"]
texts_of_words = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Noor's sister", ["noor", "sister"]),
        ("Noor’s sister", ["noor", "s", "sister"]),  # typographic apostrophe: not a possessive for the reference
        ("it's 'smart'", ["it", "smart"]),
        ("2026-05-09 at 19:30, room 12b", ["2026-05-09", "at", "19:30", "room", "12", "b"]),
        ("open-water -- non-stop-", ["open-water", "non-stop"]),
        ("Café Évora", ["caf", "vora"]),
        ("3.5 km", ["3", "5", "km"]),
        ("", []),
    ],
)
def test_tokenize(text, terms):
    assert tokenize(text) == terms


def okapi(query, texts, k1=1.5, b=0.75):
    documents = [tokenize(text) for text in texts]
    n_docs, avglen = len(documents), sum(map(len, documents)) / len(documents)
    doc_freqs = Counter(term for document in documents for term in set(document))
    raw = {term: math.log(n_docs - n + 0.5) - math.log(n + 0.5) for term, n in doc_freqs.items()}
    mean = sum(raw.values()) / len(raw) if raw else 0.0
    scores = []
    for document in documents:
        score = 0.0
        for term in tokenize(query):
            tf = document.count(term)
            idf = raw.get(term, 0.0)
            idf = 0.25 * mean if idf < 0 else idf
            score += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(document) / avglen)) if tf else 0.0
        scores.append(score)
    return scores


@settings(max_examples=150, deadline=None)
@given(st.lists(texts_of_words, min_size=1, max_size=14), texts_of_words)
def test_bm25_is_the_written_out_formula(texts, query):
    index = SparseIndex.build([f"d{number}" for number in range(len(texts))], texts)
    assert index.scores([query])[0] == pytest.approx(okapi(query, texts), abs=1e-10)


def test_bm25_by_hand():
    # N = 4, avglen = (2+1+1+4)/4 = 2. "key": n = 1, idf = ln(3.5/1.5). tf 1 in d0 (length 2 = average):
    # 2.5/(1+1.5) = 1, so the score is the idf, 0.8472978603872036.
    # "ana": n = 3 of 4, raw idf = ln(1.5/3.5) = -0.847; terms: ana -0.847, key, pot, cat, dog each +0.847;
    # mean = (4-1)/5 x 0.847..., and a quarter of it is 0.12709467905808054.
    index = SparseIndex.build(["d0", "d1", "d2", "d3"], ["ana key", "ana", "pot", "ana ana cat dog"])
    assert index.search("key", 4) == [("d0", pytest.approx(math.log(3.5 / 1.5), abs=1e-12))]
    weight = 0.25 * 0.6 * math.log(3.5 / 1.5)
    # d1: length 1: 2.5/(1+1.5*(0.25+0.375)) = 2.5/1.9375; d3: tf 2, length 4: 5/(2+1.5*1.75) = 5/4.625; d0: 1.
    expected = [("d1", weight * 2.5 / 1.9375), ("d3", weight * 5 / 4.625), ("d0", weight)]
    assert index.search("ana", 4) == [(doc_id, pytest.approx(score, abs=1e-12)) for doc_id, score in expected]


def test_repeated_query_terms_count_again():
    index = SparseIndex.build(["a", "b", "c", "d"], ["key pot", "cat", "dog", "sea"])
    assert index.search("key key key", 1)[0][1] == pytest.approx(3 * index.search("key", 1)[0][1])


def test_terms_order_of_the_index_is_the_same_on_each_build():
    texts = ["zeta alpha", "beta", "gamma alpha"]
    assert SparseIndex.build(["a", "b", "c"], texts).vocabulary == ("alpha", "beta", "gamma", "zeta")


def test_facts_without_terms_are_kept_and_never_found():
    index = SparseIndex.build(["a", "b", "c", "d"], ["日本", "key", "pot", "cat"])
    assert index.search("日本 key", 9) == [("b", pytest.approx(okapi("key", ["日本", "key", "pot", "cat"])[1]))]
    assert SparseIndex.build(["a"], ["日本"]).search("日本", 1) == []


def random_vectors(n, dim, seed, copies=0):
    rng = np.random.default_rng(seed)
    vectors = l2_normalise(rng.standard_normal((n, dim)))
    for _ in range(copies):
        vectors[rng.integers(n)] = vectors[rng.integers(n)]
    return vectors


def brute_force(queries, vectors, k):
    """Float64 similarities rounded to float32; ties in corpus order."""
    similarities = (queries.astype(np.float64)[:, None, :] * vectors.astype(np.float64)[None]).sum(-1)
    similarities = similarities.astype(np.float32)
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(similarities, order, axis=1)


@pytest.mark.parametrize(("n", "copies"), [(5, 0), (300, 0), (300, 200), (40, 39)])
@pytest.mark.parametrize("n_queries", [1, 4, 50])  # FAISS changes its kernel at 20
def test_dense_is_brute_force(n, copies, n_queries):
    vectors, queries = random_vectors(n, 24, 1, copies), random_vectors(n_queries, 24, 2)
    ids = [f"d{number}" for number in range(n)]
    order, similarities = brute_force(queries, vectors, 10)
    for found, row, scores in zip(DenseIndex.build(ids, vectors).search(queries, 10), order, similarities, strict=True):
        assert [doc_id for doc_id, _ in found] == [ids[position] for position in row]
        assert [score for _, score in found] == pytest.approx(scores.tolist(), abs=1e-6)


@pytest.mark.parametrize(("n", "copies"), [(1, 0), (2, 0), (2, 1), (8, 0), (8, 7), (250, 0), (250, 200), (250, 1500)])
def test_graph_is_brute_force_without_self(n, copies):
    vectors = random_vectors(n, 24, 3, copies)
    graph = KnnGraph.build([f"d{number}" for number in range(n)], vectors, 10)
    similarities = (vectors.astype(np.float64)[:, None, :] * vectors.astype(np.float64)[None]).sum(-1)
    similarities = similarities.astype(np.float32)
    np.fill_diagonal(similarities, -np.inf)
    order = np.argsort(-similarities, axis=1, kind="stable")[:, : min(10, n - 1)]
    assert graph.neighbours.dtype == np.int32
    assert graph.similarities.dtype == np.float32
    assert graph.neighbours.tolist() == order.tolist()
    assert not (graph.neighbours == np.arange(n)[:, None]).any()
    expected = np.take_along_axis(similarities, order, axis=1)
    np.testing.assert_allclose(graph.similarities, expected, atol=1e-6)


def test_graph_of_equal_vectors_links_each_to_the_first_others():
    graph = KnnGraph.build(["a", "b", "c", "d"], np.tile([[0.6, 0.8]], (4, 1)), 2)
    assert graph.neighbours.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1]]


def test_graph_is_the_same_on_each_build_and_from_other_threads():
    vectors = random_vectors(400, 48, 5, 100)
    ids = [str(number) for number in range(400)]
    first, second = KnnGraph.build(ids, vectors, 10), KnnGraph.build(ids, vectors, 10)
    assert first.neighbours.tobytes() == second.neighbours.tobytes()
    assert first.similarities.tobytes() == second.similarities.tobytes()


def plain_walk(graph, seeds, max_hops, per_hop):
    """The walk as parity/README words it: every hop goes through the whole list again."""
    collected, hops = list(dict.fromkeys(seeds)), {}
    hops = dict.fromkeys(collected, 0)
    for hop in range(1, max_hops + 1):
        new = [n for d in list(collected) for n, _ in graph.neighbors(d)[:per_hop]]
        new = [n for n in dict.fromkeys(new) if n not in hops]
        if not new:
            break
        collected += new
        hops |= dict.fromkeys(new, hop)
    return collected, [hops[doc_id] for doc_id in collected]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(0, 6), st.integers(0, 12), st.integers(0, 10), st.integers(0, 999))
def test_expand_is_the_plain_walk(n, max_hops, per_hop, n_seeds, seed):
    ids = [f"d{number}" for number in range(n)]
    graph = KnnGraph.build(ids, random_vectors(n, 6, seed, n // 4), 10)
    seeds = [ids[position] for position in np.random.default_rng(seed).integers(0, n, n_seeds)]
    reached = graph.expand(seeds, max_hops, per_hop)
    assert (reached.doc_ids, reached.hops) == plain_walk(graph, seeds, max_hops, per_hop)


def test_expand_corner_cases():
    graph = KnnGraph.build(["a", "b", "c"], np.eye(3), 2)
    assert graph.expand([], 5, 3).doc_ids == []
    assert graph.expand([], 5, 3).hop_trace == []
    assert graph.expand(["b", "b"], 0, 3).doc_ids == ["b"]
    assert graph.expand(["b"], 5, 0).doc_ids == ["b"]  # the reference means "all" by 0; we mean none
    with pytest.raises(KeyError, match="no fact 'ghost' among the 3 facts"):
        graph.expand(["ghost"], 1, 1)
    with pytest.raises(ValueError, match="max_hops is -1"):
        graph.expand(["a"], -1, 1)
    with pytest.raises(KeyError, match="ghost"):
        graph.neighbors("ghost")


def test_vectors_are_checked():
    with pytest.raises(ValueError, match="2 doc_ids but 3 embeddings"):
        DenseIndex.build(["a", "b"], np.eye(3))
    with pytest.raises(ValueError, match="embeddings hold NaN or infinite numbers"):
        KnnGraph.build(["a"], [[np.nan, 0.0]], 1)
    with pytest.raises(ValueError, match="query vectors have dimension 2, this index has 3"):
        DenseIndex.build(["a", "b", "c"], np.eye(3)).search(np.ones((1, 2)), 1)
    with pytest.raises(ValueError, match=r"query vectors have shape \(3,\)"):
        DenseIndex.build(["a", "b", "c"], np.eye(3)).search(np.ones(3), 1)


def test_rrf_by_hand():
    fused = weighted_rrf([(1.0, ["a", "b"]), (1.2, ["b", "c"]), (1.2, ["d"])])
    # b: 1/62 + 1.2/61; d: 1.2/61; c: 1.2/62; a: 1/61
    expected = [("b", 1 / 62 + 1.2 / 61), ("d", 1.2 / 61), ("c", 1.2 / 62), ("a", 1 / 61)]
    assert fused == [(doc_id, pytest.approx(score, abs=1e-15)) for doc_id, score in expected]
    assert weighted_rrf([(1.0, ["a", "b"])], k=0, top_k=1) == [("a", 1.0)]


def test_rrf_ties_keep_first_appearance():
    assert [d for d, _ in weighted_rrf([(1.0, ["z", "a"]), (1.0, ["a", "z"]), (1.0, ["m"])])] == ["z", "a", "m"]


def test_rrf_corner_cases():
    assert weighted_rrf([]) == []
    assert weighted_rrf([(1.0, [])], top_k=5) == []
    with pytest.raises(ValueError, match="top_k is -1"):
        weighted_rrf([], top_k=-1)
    with pytest.raises(ValueError, match="k is -60"):
        weighted_rrf([], k=-60)


def test_fuse_views_provenance():
    views = [View("original", "o"), View("counter", "c")]
    hits = [ViewHits((Hit("a", 0.9),), (Hit("b", 2.0),)), ViewHits((Hit("b", 0.8),), (Hit("b", 1.0), Hit("a", 0.5)))]
    assert fuse_views(views, hits, weights={"counter": 1.2}, k=60) == [
        FusedHit("b", pytest.approx(1 / 61 + 1.2 / 61 + 1.2 / 61), (0, 1), ("sparse", "dense")),
        FusedHit("a", pytest.approx(1 / 61 + 1.2 / 62), (0, 1), ("dense", "sparse")),
    ]
    with pytest.raises(ValueError, match="2 views but 1 hit lists"):
        fuse_views(views, hits[:1], weights={})
