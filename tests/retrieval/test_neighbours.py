"""The graph by short codes: recall, the same on each build, exact below the limit; BM25 next to bm25s."""

import bm25s
import numpy as np
import pytest

from pace_dspy.retrieval import SparseIndex, tokenize
from pace_dspy.retrieval.neighbours import MIN_RECALL, measured_recall, nearest_others
from pace_dspy.retrieval.sparse import okapi_idf
from pace_dspy.retrieval.vectors import l2_normalise


def topics(n, dim, seed=0, n_topics=150, spread=0.6):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_topics, dim)) / np.sqrt(dim)
    return l2_normalise(centres[rng.integers(n_topics, size=n)] + spread * rng.standard_normal((n, dim)) / np.sqrt(dim))


def true_recall(vectors, found):
    similarities = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    np.fill_diagonal(similarities, -np.inf)
    worst = -np.partition(-similarities, 9, axis=1)[:, 9]
    return (np.take_along_axis(similarities, found.positions.astype(int), axis=1) >= worst[:, None] - 1e-6).mean()


def test_recall_is_what_was_measured(caplog):
    vectors = topics(3000, 64)
    found = nearest_others(vectors, 10, exact_limit=100)
    assert caplog.text == ""
    assert found.recall < 1.0 or true_recall(vectors, found) == 1.0
    assert true_recall(vectors, found) >= MIN_RECALL
    assert true_recall(vectors, found) == pytest.approx(found.recall, abs=0.01)


def test_rows_are_sorted_unique_and_without_self():
    vectors = topics(2000, 64)
    found = nearest_others(vectors, 10, exact_limit=100)
    assert (found.positions.dtype, found.similarities.dtype) == (np.int32, np.float32)
    assert not (found.positions == np.arange(2000)[:, None]).any()
    assert all(len(set(row)) == 10 for row in found.positions.tolist())
    assert (np.diff(found.similarities, axis=1) <= 0).all()
    pairs = (vectors[:, None, :].astype(np.float64) * vectors[found.positions]).sum(-1)
    np.testing.assert_allclose(found.similarities, pairs, atol=1e-6)


def test_same_rows_same_graph():
    first, second = (nearest_others(topics(2500, 64), 10, exact_limit=100) for _ in range(2))
    assert first.positions.tobytes() == second.positions.tobytes()
    assert first.similarities.tobytes() == second.similarities.tobytes()


def test_many_equal_facts():
    vectors = np.repeat(topics(40, 32), 60, axis=0)
    found = nearest_others(vectors, 10, exact_limit=100)
    assert not (found.positions == np.arange(2400)[:, None]).any()
    np.testing.assert_allclose(found.similarities, 1.0, atol=1e-6)


@pytest.mark.parametrize("dim", [12, 20])
def test_where_codes_do_not_fit_the_search_is_exact(dim, caplog):
    # 12 numbers are too few for codes; 3 codes for 20 numbers tell too little about 3,000 scattered rows.
    rng = np.random.default_rng(3)
    vectors = l2_normalise(rng.standard_normal((3000, dim)))
    found = nearest_others(vectors, 10, exact_limit=100)
    assert ("all pairs are compared instead" in caplog.text) is (dim == 20)
    assert found.recall == 1.0
    assert true_recall(vectors, found) == 1.0


def test_measured_recall_counts_ties_as_found():
    vectors = np.eye(4, dtype=np.float32)[[0, 0, 0, 1, 1]]
    assert measured_recall(vectors, np.array([[2], [0]]), np.array([0, 1])) == 1.0
    assert measured_recall(vectors, np.array([[3], [0]]), np.array([0, 1])) == 0.5


def test_term_part_next_to_bm25s():
    # bm25s with idf 1 is unreachable; its "lucene" idf is divided out, ours too: what is left must be equal.
    rng = np.random.default_rng(1)
    words = [f"w{number}" for number in range(30)]
    texts = [" ".join(rng.choice(words, rng.integers(1, 12))) for _ in range(80)]
    ours = SparseIndex.build([f"d{number}" for number in range(80)], texts)
    model = bm25s.BM25(k1=1.5, b=0.75, method="atire", idf_method="lucene", dtype="float64", backend="numpy")
    columns = {term: column for column, term in enumerate(ours.vocabulary)}
    token_ids = [[columns[term] for term in tokenize(text)] for text in texts]
    model.index((token_ids, columns), create_empty_token=False, show_progress=False)
    doc_freqs = ours.postings.doc_freqs
    np.testing.assert_array_equal(model.scores["indptr"], ours.matrix.indptr)
    np.testing.assert_array_equal(model.scores["indices"], ours.matrix.indices)
    lucene = np.log(1 + (80 - doc_freqs + 0.5) / (doc_freqs + 0.5))
    theirs = model.scores["data"] / np.repeat(lucene, doc_freqs)
    np.testing.assert_allclose(ours.matrix.data / np.repeat(okapi_idf(doc_freqs, 80), doc_freqs), theirs, rtol=1e-12)
