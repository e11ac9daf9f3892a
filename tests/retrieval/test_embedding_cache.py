"""A text is embedded once for all KBs of one embedder; a broken cache costs time, never a result."""

import sqlite3
import threading

import numpy as np
import pytest
from hash_embedder import TEXTS, HashEmbedder

from pace_dspy.knowledge import cached, default_index_dir, open_cases, open_kb
from pace_dspy.retrieval import CachedEmbedder, EmbeddingCache, KbIndex
from pace_dspy.retrieval.embedding_cache import text_key
from pace_dspy.types import Case, Fact


@pytest.fixture
def cache(embedder, tmp_path):
    return CachedEmbedder(embedder, tmp_path / "embeddings")


def test_vectors_are_those_of_the_embedder_and_computed_once(cache, embedder):
    expected = HashEmbedder().embed_documents(TEXTS)
    np.testing.assert_array_equal(cache.embed_documents(TEXTS), expected)
    np.testing.assert_array_equal(cache.embed_documents(TEXTS[::-1]), expected[::-1])
    np.testing.assert_array_equal(cache.embed_documents([TEXTS[2], "new", TEXTS[2]])[[0, 2]], expected[[2, 2]])
    assert embedder.document_batches == [TEXTS, ["new"]]
    assert (cache.id, cache.dim) == (embedder.id, embedder.dim)
    assert cache.embed_documents([]).shape == (0, 32)


def test_a_repeated_text_is_embedded_once(cache, embedder):
    vectors = cache.embed_documents(["a b c", "x", "a b c"])
    assert embedder.document_batches == [["a b c", "x"]]
    np.testing.assert_array_equal(vectors[0], vectors[2])


def test_queries_pass_by(cache, embedder):
    cache.embed_queries(["a b"])
    cache.embed_queries(["a b"])
    assert embedder.query_batches == [["a b"], ["a b"]]


def test_embedders_and_dimensions_do_not_mix(tmp_path):
    ids = [("hash", 32), ("hash", 16), ("other", 32)]
    for name, dim in ids:
        CachedEmbedder(HashEmbedder(dim, name), tmp_path).embed_documents(TEXTS)
    assert len(list(tmp_path.glob("*.sqlite"))) == 3
    liar = HashEmbedder(16)
    liar.id = "hash:32"
    assert CachedEmbedder(liar, tmp_path).embed_documents(TEXTS).shape == (7, 16)


def test_the_file_holds_no_text(cache, tmp_path):
    cache.embed_documents(TEXTS)
    for path in (tmp_path / "embeddings").iterdir():
        assert b"boathouse" not in path.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"not a database at all" * 100])
def test_a_damaged_cache_is_left_alone_with_a_warning(damage, cache, embedder, tmp_path, caplog):
    path = EmbeddingCache(tmp_path / "embeddings", embedder.id, embedder.dim).path
    path.parent.mkdir()
    path.write_bytes(damage)
    np.testing.assert_array_equal(cache.embed_documents(TEXTS), HashEmbedder().embed_documents(TEXTS))
    assert f"the embedding cache {path} cannot be read" in caplog.text


def test_a_folder_that_cannot_be_made(embedder, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = CachedEmbedder(embedder, tmp_path / "file" / "deeper")
    assert cache.embed_documents(TEXTS).shape == (7, 32)
    assert "cannot be written" in caplog.text


def test_vectors_that_are_not_finite_are_never_kept(tmp_path):
    broken = HashEmbedder()
    broken.embed_documents = lambda texts: np.full((len(texts), 32), np.nan, dtype=np.float32)
    with pytest.raises(ValueError, match="NaN"):
        KbIndex.build("kb", [Fact("a", "x")], CachedEmbedder(broken, tmp_path))
    assert EmbeddingCache(tmp_path, broken.id, 32).get([text_key("x")]) == {}


def test_an_embedder_that_breaks_its_contract_is_named(tmp_path):
    short = HashEmbedder()
    short.embed_documents = lambda texts: np.zeros((len(texts) - 1, 32), dtype=np.float32)
    with pytest.raises(ValueError, match=r"'hash:32' gave shape \(6, 32\) where \(7, 32\) is needed"):
        CachedEmbedder(short, tmp_path).embed_documents(TEXTS)


def test_threads_share_a_cache(tmp_path):
    texts = [f"fact number {number}" for number in range(300)]
    expected, failures = HashEmbedder().embed_documents(texts), []

    def embed(start):
        rows = [(start * 37 + step) % 300 for step in range(200)]
        found = CachedEmbedder(HashEmbedder(), tmp_path).embed_documents([texts[row] for row in rows])
        if not np.array_equal(found, expected[rows]):
            failures.append(start)

    threads = [threading.Thread(target=embed, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    [path] = tmp_path.glob("*.sqlite")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (300,)


def test_a_rebuild_and_another_kb_embed_nothing(facts, embedder, tmp_path):
    open_kb("kb", facts, embedder, folder=tmp_path / "first")
    assert [len(batch) for batch in embedder.document_batches] == [7]
    rebuilt = open_kb("kb", facts, embedder, folder=tmp_path / "second")
    open_kb("other", facts[2:5], embedder, folder=tmp_path / "second")
    assert [len(batch) for batch in embedder.document_batches] == [7]
    np.testing.assert_array_equal(rebuilt.dense.vectors, HashEmbedder().embed_documents(TEXTS))
    assert (default_index_dir() / "embeddings").is_dir()


def test_cached_is_not_put_twice(embedder):
    assert cached(cached(embedder)).embedder is embedder


def test_cases_are_opened_in_order_and_apart(embedder):
    cases = [Case(f"c{n}", None, None, None, None, (Fact(f"c{n}-f", f"fact of {n}"),)) for n in range(9)]
    done = []
    opened = open_cases(cases, embedder, on_case=lambda case: done.append(case.case_id))
    assert list(opened) == done == [case.case_id for case in cases]
    assert opened == {case.case_id: case.case_id for case in cases}
