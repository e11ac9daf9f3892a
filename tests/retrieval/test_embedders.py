import hashlib
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from pace_dspy.errors import ConfigError, MissingExtraError, WeightsError
from pace_dspy.retrieval import Embedder, MiniLMEmbedder, SentenceTransformerEmbedder, make_embedder

TEXTS = ["Ines keeps the spare key under the blue pot.", "", "key", "word " * 400, "Café à Évora 日本", "key"]


@pytest.mark.parametrize("spec", ["", "mini", "minilm:x", "st", "st:", "openai", "openai:", "gpt", "st: "])
def test_unknown_specs_list_what_is_allowed(spec):
    with pytest.raises(ConfigError, match=f"unknown embedder '{spec}'; use one of: minilm, st:NAME, openai:MODEL@BASE"):
        make_embedder(spec)


def test_openai_spec_without_model():
    with pytest.raises(ConfigError, match="names no model; write openai:MODEL@BASE_URL"):
        make_embedder("openai:@http://127.0.0.1:1/v1")


def test_minilm_needs_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime is not installed. Run: pip install 'pace-dspy\[local\]'"):
        MiniLMEmbedder(tmp_path / "model.onnx", tmp_path / "tokenizer.json")


def test_minilm_missing_and_bad_files(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(FileNotFoundError, match=r"model.onnx does not exist; run `pace-dspy weights pull`"):
        MiniLMEmbedder(tmp_path / "model.onnx", tmp_path / "tokenizer.json")
    (tmp_path / "model.onnx").write_bytes(b"no model")
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(WeightsError, match=r"cannot be loaded .*; run `pace-dspy weights verify`"):
        MiniLMEmbedder(tmp_path / "model.onnx", tmp_path / "tokenizer.json")


@pytest.fixture(scope="module")
def minilm_files():
    """The pinned files, when they are on this machine already (never fetched by a test)."""
    pytest.importorskip("onnxruntime")
    from pace_dspy.backends import weights

    paths = [weights.local_path(name) for name in ("embedder_onnx", "embedder_tokenizer")]
    if not all(path.is_file() for path in paths):
        pytest.skip("MiniLM is not in the weights cache; run `pace-dspy weights pull`")
    return paths


@pytest.fixture(scope="module")
def minilm(minilm_files):
    return MiniLMEmbedder(*minilm_files, threads=1)


def test_minilm_contract(minilm):
    assert isinstance(minilm, Embedder)
    vectors = minilm.embed_documents(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((6, 384), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    assert minilm.embed_documents([]).shape == (0, 384)
    np.testing.assert_allclose(vectors[2], vectors[5], atol=1e-6)
    np.testing.assert_array_equal(vectors, minilm.embed_queries(TEXTS))


def test_minilm_vector_depends_on_the_text_alone(minilm):
    many = [f"fact number {number} " * (number % 9 + 1) for number in range(30)]
    alone = np.concatenate([minilm.embed_documents([text]) for text in many])
    np.testing.assert_allclose(minilm.embed_documents(many), alone, atol=1e-6)


def test_minilm_cuts_at_256_tokens(minilm):
    # [CLS] + 254 words + [SEP] = 256 tokens; the 255th word is never read.
    full = minilm.embed_documents(["word " * 254 + "boat", "word " * 254 + "tree", "word " * 254])
    np.testing.assert_allclose(full[0], full[1], atol=1e-6)
    np.testing.assert_allclose(full[0], full[2], atol=1e-6)


def test_minilm_knows_what_is_close(minilm):
    query, near, far = minilm.embed_queries(["seafood allergy", "She cannot eat shellfish.", "The train leaves at 9."])
    assert query @ near > query @ far + 0.2


def test_minilm_id_names_the_weights(minilm, minilm_files):
    for path in minilm_files:
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] in minilm.id


class FakeSentenceTransformer:
    def __init__(self, name, revision=None, device=None):
        if name == "missing":
            raise OSError("missing is not a local folder; token=SECRET")
        self.prompts = {"query": "query: ", "passage": "passage: "} if name == "with-prompts" else {}
        self.calls = []

    def get_sentence_embedding_dimension(self):
        return 3

    def encode(self, texts, prompt_name, batch_size, convert_to_numpy, show_progress_bar):
        self.calls.append((texts, prompt_name))
        assert convert_to_numpy
        assert not show_progress_bar
        return np.array([[len(text), 2.0, 0.0] for text in texts])


@pytest.fixture
def fake_sentence_transformers(monkeypatch):
    module = types.SimpleNamespace(SentenceTransformer=FakeSentenceTransformer)
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.mark.usefixtures("fake_sentence_transformers")
def test_sentence_transformer_uses_its_prompts():
    embedder = make_embedder("st:with-prompts")
    assert (embedder.id, embedder.dim) == ("st:with-prompts", 3)
    np.testing.assert_allclose(embedder.embed_queries(["a", "aa"])[1], np.array([1, 1, 0]) / np.sqrt(2), atol=1e-6)
    embedder.embed_documents(["b"])
    assert embedder._model.calls == [(["a", "aa"], "query"), (["b"], "passage")]
    assert embedder.embed_documents([]).shape == (0, 3)


@pytest.mark.usefixtures("fake_sentence_transformers")
def test_sentence_transformer_without_prompts():
    embedder = SentenceTransformerEmbedder("plain", revision="abc")
    embedder.embed_queries(["a"])
    assert embedder.id == "st:plain@abc"
    assert embedder._model.calls == [(["a"], None)]


@pytest.mark.usefixtures("fake_sentence_transformers")
def test_sentence_transformer_that_cannot_be_loaded():
    with pytest.raises(ConfigError, match=r"model 'missing' cannot be loaded \(OSError\); check the name") as error:
        make_embedder("st:missing")
    assert "SECRET" not in str(error.value)


def test_sentence_transformer_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pace-dspy\[hub\]'"):
        make_embedder("st:anything")


@pytest.mark.parametrize(("text", "threads"), [("", None), ("1", 1), (" 4,2", 4), ("0", None), ("many", None)])
def test_threads_of_the_process_are_kept(text, threads, monkeypatch):
    made = {}
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    monkeypatch.setattr("pace_dspy.backends.weights.resolve", lambda name: name)
    monkeypatch.setattr(
        "pace_dspy.retrieval.embedders.factory.MiniLMEmbedder", lambda *paths, threads: made.update(threads=threads)
    )
    make_embedder("minilm")
    assert made == {"threads": threads}


def test_minilm_gives_the_same_on_other_threads(minilm, minilm_files):
    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]
    other = MiniLMEmbedder(*minilm_files, threads=2)
    np.testing.assert_allclose(minilm.embed_documents(texts), other.embed_documents(texts), atol=1e-6)
