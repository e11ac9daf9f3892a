"""Every retrieval stage of the parity fixtures, exactly (tests/parity, from the released reference)."""

import json
from pathlib import Path

import pytest

from pace_dspy.retrieval import DenseIndex, KnnGraph, SparseIndex, fuse_views, weighted_rrf
from pace_dspy.types import Hit, View, ViewHits

PARITY = Path(__file__).parents[1] / "parity"


@pytest.fixture(params=["facts-060", "facts-200", "facts-500"])
def case(request):
    data = json.loads((PARITY / f"{request.param}.json").read_text(encoding="utf-8"))
    data["ids"] = [document["doc_id"] for document in data["documents"]]
    return data


def same(found, expected, tolerance):
    assert [doc_id for doc_id, _ in found] == [doc_id for doc_id, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=tolerance, rel=0)


def scripted_filter(candidates, top_n, reply):
    """The filter of parity/README, the model replaced by the fixture's list; returns (ids, was it asked)."""
    if len(candidates) <= top_n:
        return list(candidates), False
    kept = list(dict.fromkeys(doc_id for doc_id in reply if doc_id in set(candidates)))[:top_n]
    return kept or list(candidates[:top_n]), True


def graph_of(case):
    return KnnGraph.build(case["ids"], case["embeddings"]["docs"], case["config"]["knn_k"])


def test_dense(case):
    index = DenseIndex.build(case["ids"], case["embeddings"]["docs"])
    found = index.search(case["embeddings"]["views"], case["config"]["top_k_per_view"])
    for hits, expected in zip(found, case["expected"]["dense"], strict=True):
        same(hits, expected, 1e-5)


def test_dense_scores_do_not_depend_on_the_batch(case):
    index = DenseIndex.build(case["ids"], case["embeddings"]["docs"])
    views = case["embeddings"]["views"]
    assert index.search(views * 8, 10) == [index.search([view], 10)[0] for view in views] * 8


def test_sparse_is_exact_for_every_view(case):
    index = SparseIndex.build(case["ids"], [document["text"] for document in case["documents"]])
    k = case["config"]["top_k_per_view"]
    found = index.search_many([view["text"] for view in case["views"]], k)
    for view, hits, expected in zip(case["views"], found, case["expected"]["sparse"], strict=True):
        same(hits, expected, 1e-8)
        assert hits == index.search(view["text"], k)


def test_fixtures_do_hold_terms_in_more_than_half_of_the_facts(case):
    # Otherwise the test above would not show that frequent terms are exact too.
    index = SparseIndex.build(case["ids"], [document["text"] for document in case["documents"]])
    frequent = (index.matrix.indptr[1:] - index.matrix.indptr[:-1] > len(index) / 2).sum()
    assert frequent >= 1


def test_fusion_from_the_fixture_lists(case):
    config, expected = case["config"], case["expected"]
    rankings = []
    for view, dense, sparse in zip(case["views"], expected["dense"], expected["sparse"], strict=True):
        weight = config["view_weights"][view["type"]]
        rankings += [(weight, [doc_id for doc_id, _ in dense]), (weight, [doc_id for doc_id, _ in sparse])]
    same(weighted_rrf(rankings, k=config["rrf_k"], top_k=config["final_top_k"]), expected["fused"], 1e-11)


def test_fusion_with_provenance(case):
    config, expected = case["config"], case["expected"]
    views = [View(view["type"], view["text"]) for view in case["views"]]
    hits = [
        ViewHits(tuple(Hit(*pair) for pair in dense), tuple(Hit(*pair) for pair in sparse))
        for dense, sparse in zip(expected["dense"], expected["sparse"], strict=True)
    ]
    fused = fuse_views(views, hits, weights=config["view_weights"], k=config["rrf_k"], top_k=config["final_top_k"])
    same([(hit.doc_id, hit.score) for hit in fused], expected["fused"], 1e-11)
    by_id = {hit.doc_id: hit for hit in fused}
    for doc_id, provenance in expected["final_provenance"].items():
        if provenance["matched_sources"] == ["graph"]:
            assert doc_id not in by_id
        else:
            hit = by_id[doc_id]
            assert hit.score == pytest.approx(provenance["fusion_score"], abs=1e-11)
            assert sorted({views[number].kind for number in hit.views}) == sorted(provenance["matched_views"])
            assert sorted(hit.sources) == sorted(provenance["matched_sources"])


def test_knn_graph(case):
    graph = graph_of(case)
    assert set(case["expected"]["knn_graph"]) == set(case["ids"])
    for doc_id, expected in case["expected"]["knn_graph"].items():
        same(graph.neighbors(doc_id), expected, 1e-5)


def test_collected_order_and_hop_trace(case):
    config, expected = case["config"], case["expected"]
    reached = graph_of(case).expand(expected["seeds"], config["max_hops"], config["neighbors_per_doc"])
    assert reached.doc_ids == expected["collected"]
    trace = [{"hop": step.hop, "n_collected": step.n_collected, "n_new": step.n_new} for step in reached.hop_trace]
    assert trace == expected["hop_trace"]
    n_seeds = len(expected["seeds"])
    assert reached.hops == [0] * n_seeds + [step["hop"] + 1 for step in trace for _ in range(step["n_new"])]


def test_whole_chain_from_vectors_and_texts_to_final(case):
    config, expected = case["config"], case["expected"]
    dense = DenseIndex.build(case["ids"], case["embeddings"]["docs"])
    sparse = SparseIndex.build(case["ids"], [document["text"] for document in case["documents"]])
    dense_hits = dense.search(case["embeddings"]["views"], config["top_k_per_view"])
    sparse_hits = sparse.search_many([view["text"] for view in case["views"]], config["top_k_per_view"])
    views = [View(view["type"], view["text"]) for view in case["views"]]
    hits = [
        ViewHits(tuple(Hit(*pair) for pair in d), tuple(Hit(*pair) for pair in s))
        for d, s in zip(dense_hits, sparse_hits, strict=True)
    ]
    fused = fuse_views(views, hits, weights=config["view_weights"], k=config["rrf_k"], top_k=config["final_top_k"])
    script, top_n = case["scripted_filter"], config["filter_top_n"]
    seeds, pre_asked = scripted_filter([hit.doc_id for hit in fused], top_n, script["pre"])
    assert seeds == expected["seeds"]
    reached = graph_of(case).expand(seeds, config["max_hops"], config["neighbors_per_doc"])
    assert reached.doc_ids == expected["collected"]
    final, post_asked = scripted_filter(reached.doc_ids, top_n, script["post"])
    assert final == expected["final"]
    asked = [name for name, was in (("pre", pre_asked), ("post", post_asked)) if was]
    assert asked == expected["filter_calls"]
