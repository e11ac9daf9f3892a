"""PageRank: small graphs solved by hand, a dense linear solve as reference, and the reasons given."""

import numpy as np
import pytest

from pace_dspy.entities import FactGraph, Reached, TermLinks, evidence_scores, spread
from pace_dspy.retrieval import KnnGraph


def knn(n, dim=8, k=3, seed=1):
    vectors = np.random.default_rng(seed).uniform(size=(n, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) if n else 1
    return KnnGraph.build([f"d{at}" for at in range(n)], vectors.reshape(n, dim), k)


CHAIN = TermLinks([frozenset("a"), frozenset("ab"), frozenset("b"), frozenset("z")])


def test_chain_by_hand():
    # 0 -a- 1 -b- 2, 3 alone; restart at 0, damping 1/2. s1 = (s0 + s2)/2, s0 = 1/2 + s1/4, s2 = s1/4
    # so s1 = 1/3, s0 = 7/12, s2 = 1/12
    graph = FactGraph.build("terms", knn(4), CHAIN)
    score = graph.pagerank({0: 5.0}, iterations=40)
    np.testing.assert_allclose(score, [7 / 12, 1 / 3, 1 / 12, 0], atol=1e-6)
    assert score.dtype == np.float32


def test_walk_says_why():
    graph = FactGraph.build("terms", knn(4), CHAIN)
    first, second, third = graph.walk({0: 1.0}, 10, iterations=40)
    assert first == Reached(0, pytest.approx(7 / 12), 0.5, "seed")
    assert second == Reached(1, pytest.approx(1 / 3), 0.0, "term", 0, "a")
    assert third == Reached(2, pytest.approx(1 / 12), 0.0, "term", 1, "b")


def test_neighbour_is_named_in_the_knn_graph():
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32)
    graph = FactGraph.build("knn", KnnGraph.build(["a", "b", "c"], vectors, 1))
    # a and b name each other (0.8), c names b (0.6): undirected a-b 0.8, b-c 0.6, so b gives a 4/7 and c 3/7
    # restart at c: s_b = (s_a + s_c)/2, s_a = 2/7 s_b, s_c = 1/2 + 3/14 s_b, so s_b = 1/3, s_a = 2/21, s_c = 4/7
    score = graph.pagerank({2: 1.0}, iterations=40)
    np.testing.assert_allclose(score, [2 / 21, 1 / 3, 4 / 7], atol=1e-6)
    assert graph.walk({2: 1.0}, 3, iterations=40)[2] == Reached(0, pytest.approx(2 / 21), 0.0, "knn", 1)


@pytest.mark.parametrize("kind", ["knn", "terms", "hybrid"])
def test_equal_to_a_dense_solve(kind):
    rng = np.random.default_rng(5)
    links = TermLinks([frozenset(rng.choice(list("abcdefghijkl"), size=3).tolist()) for _ in range(30)])
    graph = FactGraph.build(kind, knn(30), links, knn_share=0.3)
    step = graph.transition.toarray()
    np.testing.assert_allclose(step.sum(axis=0), 1, rtol=1e-5)
    restart = np.zeros(30)
    restart[[3, 7]] = [0.25, 0.75]
    expected = np.linalg.solve(np.eye(30) - 0.6 * step, 0.4 * restart)
    score = graph.pagerank({3: 1.0, 7: 3.0}, damping=0.6, iterations=60)
    np.testing.assert_allclose(score, expected, atol=1e-5)
    assert score.sum() == pytest.approx(1)


def test_hybrid_splits_the_step_unless_one_kind_is_missing():
    graph = FactGraph.build("hybrid", knn(4), CHAIN, knn_share=0.25)
    np.testing.assert_allclose(graph.knn.sum(axis=0)[0, :3], 0.25, rtol=1e-5)
    np.testing.assert_allclose(graph.terms.sum(axis=0)[0, :3], 0.75, rtol=1e-5)
    assert graph.knn.toarray()[:, 3].sum() == pytest.approx(1)  # fact 3 shares no term


def test_what_an_isolated_fact_would_lose_returns_to_the_seeds():
    graph = FactGraph.build("terms", knn(4), CHAIN)
    np.testing.assert_allclose(graph.pagerank({3: 1.0}), [0, 0, 0, 1], atol=1e-6)


def test_prior_changes_the_order_not_the_scores():
    graph = FactGraph.build("terms", knn(4), CHAIN)
    prior = np.array([1, 1, 10, 1], dtype=np.float32)
    plain, tilted = graph.walk({0: 1.0}, 3), graph.walk({0: 1.0}, 3, prior=prior)
    assert [fact.position for fact in plain] == [0, 1, 2]
    assert [fact.position for fact in tilted] == [2, 0, 1]
    assert {f.position: f.score for f in plain} == {f.position: f.score for f in tilted}


def test_second_walk_by_hand():
    # First walk from 0: scores 7/12, 1/3, 1/12, beyond the restart of 1/2 at 0: 1/12, 1/3, 1/12. These sum to 1/2, so
    # the second walk restarts with 1/6, 2/3, 1/6: s0 = s2 = 1/12 + s1/4, s1 = 1/3 + (s0 + s2)/2, so s1 = 5/9 and
    # s0 = s2 = 2/9. Half of each: 29/72, 4/9, 11/72; restarts 1/4 + 1/24 = 7/24, 1/6, 1/24.
    graph = FactGraph.build("terms", knn(4), CHAIN)
    first, second, third = graph.walk({0: 1.0}, 10, iterations=40, second=0.5)
    assert first == Reached(1, pytest.approx(4 / 9, abs=1e-6), pytest.approx(1 / 6, abs=1e-6), "term", 0, "a")
    assert second == Reached(0, pytest.approx(29 / 72, abs=1e-6), pytest.approx(7 / 24, abs=1e-6), "seed")
    assert third == Reached(2, pytest.approx(11 / 72, abs=1e-6), pytest.approx(1 / 24, abs=1e-6), "term", 1, "b")


def test_second_walk_starts_from_bound_facts_of_the_pool_only():
    # prior 8 on fact 2: worth 1/12, 1/3, 8/12; a pool of one fact leaves 2 as the only start
    graph = FactGraph.build("terms", knn(4), CHAIN)
    prior = np.array([1, 1, 8, 1], dtype=np.float32)
    (found,) = graph.walk({0: 1.0}, 1, prior=prior, iterations=40, second=0.5)
    assert found == Reached(2, pytest.approx((1 / 12 + 7 / 12) / 2, abs=1e-6), pytest.approx(0.25), "term", 1, "b")


def test_a_fact_that_shares_no_term_keeps_its_whole_score():
    graph = FactGraph.build("hybrid", knn(4), CHAIN)
    reached = {fact.position: fact for fact in graph.walk({0: 1.0, 3: 1.0}, 4)}
    assert reached[3].restart == 0
    assert reached[0].restart == pytest.approx(0.25)
    near = {fact.position: fact for fact in FactGraph.build("knn", knn(4), CHAIN).walk({3: 1.0}, 4)}
    assert near[3].restart == 0.5


def test_ties_in_corpus_order_and_the_same_each_time():
    links = TermLinks([frozenset("ab"), frozenset("a"), frozenset("b")])
    walks = [FactGraph.build("terms", knn(3), links).walk({0: 1.0}, 3) for _ in range(2)]
    assert walks[0] == walks[1]
    assert [fact.position for fact in walks[0]] == [0, 1, 2]


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("kind", ["knn", "terms", "hybrid"])
def test_tiny_and_identical(n, kind):
    same = np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (n, 1))
    graph = FactGraph.build(kind, KnnGraph.build([str(at) for at in range(n)], same, 10), TermLinks([frozenset()] * n))
    assert graph.walk({}, 5) == ()
    if n:
        reached = graph.walk({0: 1.0}, 5)
        assert reached[0].position == 0
        assert sum(fact.score for fact in reached) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.pagerank({9: 1.0}), "seed 9 with weight 1.0: use positions 0 to 3"),
        (lambda g: g.pagerank({0: 0.0}), "weights > 0"),
        (lambda g: g.pagerank({0: float("nan")}), "weights > 0"),
        (lambda g: g.pagerank({0: 1.0}, damping=1.0), r"damping 1.0 must be in \[0, 1\)"),
        (lambda g: g.walk({0: 1.0}, 1, second=1.0), r"second must be in \[0, 1\), received 1.0"),
        (lambda g: g.walk({0: 1.0}, -1), "pool must be at least 0"),
        (lambda g: g.walk({0: 1.0}, 1, prior=np.ones(2, dtype=np.float32)), r"prior needs shape \(4,\)"),
        (lambda g: FactGraph.build("hops", knn(4), CHAIN), "use one of knn, terms, hybrid"),
        (lambda g: FactGraph.build("hybrid", knn(4)), "received none"),
        (lambda g: FactGraph.build("hybrid", knn(3), CHAIN), "the same 3 facts, received 4"),
        (lambda g: spread([1.0], [], 1), "1 scores, 0 anchors"),
    ],
)
def test_refusals(call, message):
    graph = FactGraph.build("terms", knn(4), CHAIN)
    with pytest.raises(ValueError, match=message):
        call(graph)


def test_evidence_scores_by_hand():
    facts = [Reached(0, 0.6, 0.5, "seed"), Reached(4, 0.2, 0.0, "term", 0, "a")]
    # 0.6 - 0.5 = 0.1 without wording; 0.2 * e^(0.4 * 2) = 0.4451
    assert evidence_scores(facts, [0, 2]) == pytest.approx([0.1, 0.4451], abs=1e-4)
    # 0.6 - 0.5 * 0.5 = 0.35; 0.2 * e^(0.6 * 2) = 0.664
    assert evidence_scores(facts, [0, 2], restart_discount=0.5, weight=0.6) == pytest.approx([0.35, 0.6640], abs=1e-4)
    assert evidence_scores(facts, [0, 2], restart_discount=0, weight=0) == pytest.approx([0.6, 0.2])


def test_spread_by_hand():
    # 1.0 first; 0.95 about the same thing falls to 0.76, below 0.8; then 0.76 against 0.7
    scores, anchors = [1.0, 0.95, 0.8, 0.7], [frozenset("x"), frozenset("x"), frozenset("y"), frozenset()]
    assert spread(scores, anchors, 4, penalty=0.8) == (0, 2, 1, 3)
    assert spread(scores, anchors, 2, penalty=1.0) == (0, 1)
    # two facts about x taken: the third counts 0.8^2
    assert spread([1.0, 0.9, 0.9, 0.6], [frozenset("x")] * 3 + [frozenset()], 4) == (0, 1, 3, 2)
    assert spread([], [], 5) == ()
