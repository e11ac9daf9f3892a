"""Term links: hand-worked weights, hubs, and a pair loop as independent reference."""

import math

import numpy as np
import pytest

from pace_dspy.entities import Shared, TermLinks, Vocabulary

ROWS = [frozenset("ab"), frozenset("a"), frozenset("bc"), frozenset("c"), frozenset("z")]


def by_pairs(rows, hub):
    """The definition, written out."""
    n, matrix = len(rows), np.zeros((len(rows), len(rows)))
    for term in set().union(*rows):
        facts = [at for at, row in enumerate(rows) if term in row]
        if 2 <= len(facts) <= hub:
            for i in facts:
                for j in facts:
                    matrix[i, j] += (i != j) * math.log((n + 1) / (len(facts) + 1)) ** 2 / len(facts)
    return matrix


def test_weights_by_hand():
    links = TermLinks(ROWS)
    weight = math.log(6 / 3) ** 2 / 2  # n = 5, each of a, b, c in two facts: 0.2402
    expected = np.zeros((5, 5))
    for i, j in ((0, 1), (0, 2), (2, 3)):
        expected[i, j] = expected[j, i] = weight
    np.testing.assert_allclose(links.matrix.toarray(), expected, rtol=1e-6)
    assert links.keys == ("a", "b", "c")
    assert links.matrix.dtype == np.float32


def test_shared_terms_strongest_first():
    # "rare" is in 2 of 6 facts, "common" in 3: ln(7/3)^2/2 = 0.3590, ln(7/4)^2/3 = 0.1044
    rows = [frozenset({"rare", "common"}), frozenset({"rare", "common"}), frozenset({"common"}), *[frozenset()] * 3]
    shared = TermLinks(rows).shared(0, 1)
    assert [s.key for s in shared] == ["rare", "common"]
    assert shared[0].weight == pytest.approx(math.log(7 / 3) ** 2 / 2)
    assert shared[1] == Shared("common", pytest.approx(math.log(7 / 4) ** 2 / 3))
    assert TermLinks(rows).shared(0, 0) == TermLinks(rows).shared(0, 5) == ()


def test_a_name_links_more_than_a_word_as_rare():
    # ln(6/3)^2/2 = 0.2402 for a word in two of five facts, six times that for a name
    links = TermLinks(ROWS, names=frozenset("a"))
    assert links.matrix[0, 1] == pytest.approx(6 * math.log(2) ** 2 / 2)
    assert links.matrix[0, 2] == pytest.approx(math.log(2) ** 2 / 2)
    assert TermLinks(ROWS, names=frozenset("a"), name_weight=1.0).matrix[0, 1] == links.matrix[0, 2]
    texts = ["The bell rang for Milan.", "A bell, said Milan.", "Rain.", "Snow."]
    first, second = TermLinks.build(Vocabulary.build(texts)).shared(0, 1)
    assert (first.key, second.key) == ("milan", "bell")
    assert first.weight == pytest.approx(6 * second.weight)
    with pytest.raises(ValueError, match="name_weight must be a positive number, received 0"):
        TermLinks(ROWS, name_weight=0)


def test_hubs_link_nothing():
    rows = [frozenset({"owner", str(at // 2)}) for at in range(12)]
    assert "owner" in TermLinks(rows, hub_min=12).keys
    assert "owner" not in TermLinks(rows, hub_min=11).keys
    assert TermLinks(rows, hub_min=11).matrix.nnz == 12  # the six pairs "0" to "5", both ways
    many = [frozenset({"half"}) if at % 2 else frozenset() for at in range(100)]
    assert TermLinks(many, hub_share=1.0).keys == ()  # 50 facts are above the absolute cap of 30


def test_equal_to_a_loop_over_pairs():
    rng = np.random.default_rng(3)
    rows = [frozenset(rng.choice(list("abcdefghijklmnop"), size=4).tolist()) for _ in range(40)]
    np.testing.assert_allclose(TermLinks(rows).matrix.toarray(), by_pairs(rows, 10), rtol=1e-5, atol=1e-7)


def test_same_day_links_facts_without_a_common_word():
    texts = ["Kayo sings.", "A boat sinks.", "Rain falls."]
    days = [frozenset({"2026-03-18"}), frozenset({"2026-03-18", "2026-03-19"}), frozenset()]
    links = TermLinks.build(Vocabulary.build(texts), date_keys=days)
    assert links.shared(0, 1)[0].key == "@2026-03-18"
    assert links.matrix.nnz == 2
    assert TermLinks.build(Vocabulary.build(texts)).matrix.nnz == 0
    with pytest.raises(ValueError, match="3 facts but 1 date_keys"):
        TermLinks.build(Vocabulary.build(texts), date_keys=days[:1])


@pytest.mark.parametrize("n", [0, 1, 3])
def test_identical_or_missing_facts(n):
    links = TermLinks([frozenset({"same"})] * n)
    assert links.matrix.shape == (n, n)
    assert links.matrix.diagonal().sum() == 0
    assert np.isfinite(links.matrix.toarray()).all()
