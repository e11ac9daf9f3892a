import numpy as np
import pytest

from pace_dspy.retrieval import DenseIndex, KnnGraph, weighted_rrf


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -float("inf"), -0.5])
def test_weights_that_are_no_weights(weight):
    with pytest.raises(ValueError, match=f"the weight of a ranking is {weight}; give a finite number >= 0"):
        weighted_rrf([(1.0, ["a"]), (weight, [])])


def test_a_weight_of_zero_leaves_a_ranking_out():
    assert weighted_rrf([(1.0, ["a"]), (0.0, ["b"])], k=1) == [("a", 0.5), ("b", 0.0)]


@pytest.mark.parametrize("build", [DenseIndex.build, lambda ids, rows: KnnGraph.build(ids, rows, 1)])
def test_numbers_that_are_not_real(build):
    with pytest.raises(ValueError, match="embeddings are complex128 numbers; give real ones, best float32"):
        build(["a", "b"], np.array([[1j, 0], [0, 1]]))


@pytest.mark.parametrize("size", [1e38, -1e38, 1.1e15])
def test_numbers_with_which_scores_overflow(size):
    index = DenseIndex.build(["a", "b"], np.eye(2, dtype=np.float32))
    message = r"hold numbers beyond \+-1e\+15, with which scores overflow; give rows of unit length"
    with pytest.raises(ValueError, match=f"query vectors {message}"):
        index.search([[size, 0.0]], 1)
    with pytest.raises(ValueError, match=f"embeddings {message}"):
        DenseIndex.build(["a"], [[0.0, size]])
    with pytest.raises(ValueError, match="query vectors hold NaN or infinite numbers"):
        index.search([[1e300, 0.0]], 1)


def test_the_largest_numbers_allowed_have_finite_scores():
    index = DenseIndex.build(["a"], np.full((1, 384), 9e14))
    assert np.isfinite(index.search(np.full((1, 384), 9e14), 1)[0][0][1])
