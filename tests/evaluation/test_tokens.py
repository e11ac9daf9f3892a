"""``experiments/tokens.py``: the vocabulary from a GGUF file, honest relabelling, and counts that add up."""

import json
import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hash_embedder import HashEmbedder

from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_pace
from pace_dspy.knowledge import open_cases
from pace_dspy.retrieval import clear_kbs
from pace_dspy.types import Candidate

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    monkeypatch.setattr("pace_dspy.backends.weights.local_path", lambda name: Path("/nowhere/none.gguf"))
    yield
    clear_kbs()
    for name in ("tokens", "tokens_play", "tokens_vocab"):
        sys.modules.pop(name, None)


def gguf(path, *, pre="qwen2"):
    """A GGUF head with a vocabulary of twelve tokens, and one number before it."""
    tokens = ["a", "b", "c", "1", "2", "Ġ", "ab", "abc", "Ġa", "Ġab", "Ċ", "<|im_start|>"]
    types = [1] * 11 + [3]
    merges = ["a b", "ab c", "Ġ a", "Ġ ab"]

    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def array(kind, values):
        packed = b"".join(text(v) if kind == 8 else struct.pack("<i", v) for v in values)
        return struct.pack("<IIQ", 9, kind, len(values)) + packed

    pairs = [
        text("general.file_type") + struct.pack("<II", 4, 15),
        text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("gpt2"),
        text("tokenizer.ggml.pre") + struct.pack("<I", 8) + text(pre),
        text("tokenizer.ggml.tokens") + array(8, tokens),
        text("tokenizer.ggml.token_type") + array(5, types),
        text("tokenizer.ggml.merges") + array(8, merges),
    ]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs) + b"weights")
    return path


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("", 0),
        ("abc", 1),
        ("abc ab", 2),  # abc, blank+ab
        ("12", 2),  # every digit is a token
        ("ab\nc", 3),
        ("<|im_start|>ab", 2),  # a control token is one
        ("cab", 2),  # c, ab
    ],
)
def test_tokens_are_counted_by_the_files_own_vocabulary(tmp_path, text, n):
    from tokens_vocab import counter

    assert counter(gguf(tmp_path / "m.gguf"))(text) == n


def test_another_kind_of_file_is_refused(tmp_path):
    from tokens_vocab import counter

    with pytest.raises(ValueError, match="kind gpt2/llama-bpe; only gpt2/qwen2"):
        counter(gguf(tmp_path / "m.gguf", pre="llama-bpe"))
    (tmp_path / "x").write_bytes(b"PK")
    with pytest.raises(ValueError, match="is not a GGUF file"):
        counter(tmp_path / "x")


def test_only_labels_change():
    from tokens_play import relabelled

    user = (
        "[request]\nSee note [2] of [1]\n\n[evidence]\n[1] It is [2] km away.\n[2] Bo swims.\n(derived from [1], [2]) 5"
    )
    assert relabelled(user, ["(doc_id=x)", "(doc_id=y)"]) == (
        "[request]\nSee note [2] of [1]\n\n[evidence]\n(doc_id=x) It is [2] km away.\n(doc_id=y) Bo swims.\n"
        "(derived from (doc_id=x), (doc_id=y)) 5"
    )


def test_labels_say_what_the_reference_records():
    from tokens import ids, provenance

    from pace_dspy.types import FusedHit, Trace

    reached = Trace("kb", None, fused=(FusedHit("f1", 0.03125, (0, 2), ("dense", "sparse")),))
    assert ids(Candidate("f1", "t"), reached) == "(doc_id=f1)"
    assert provenance(Candidate("f1", "t"), reached) == "(doc_id=f1, score=0.0312, views=0;2, sources=dense;sparse)"
    assert provenance(Candidate("f2", "t"), reached) == "(doc_id=f2, score=0.0000, views=, sources=graph)"


@pytest.fixture
def small():
    dataset = load_pace("mini")
    dataset = replace(dataset, cases=dataset.cases[3:4])
    return dataset, open_cases(dataset.cases, HashEmbedder())


@pytest.mark.parametrize("config", ["paper", "plus"])
def test_the_styles_differ_by_their_labels_alone(small, config):
    """Counted in blank-separated words, a number and an id are one word each, a full label is four."""
    from tokens import STYLES, measure

    def words(text):
        return len(text.split())

    dataset, kb_ids = small
    sides = {style: measure(dataset, kb_ids, PaceMakerConfig.load(config), style, words) for style in STYLES}
    ours, by_id, full = (side["stages"]["all"] for side in sides.values())
    assert ours["n_facts"] == by_id["n_facts"] == full["n_facts"] > 20
    assert by_id["total"] == pytest.approx(ours["total"])
    assert full["labels"] - ours["labels"] == pytest.approx(3 * ours["n_facts"])
    for side in sides.values():
        parts = side["stages"]["all"]
        assert sum(parts[name] for name in ("fixed", "inputs", "labels", "facts")) == pytest.approx(parts["total"])
        assert side["evidence_recall"] == sides["ours"]["evidence_recall"]
    # the scripted filter keeps what it is offered (at most ten gold facts a request)
    assert sides["ours"]["evidence_recall"] == pytest.approx(sides["ours"]["offered_recall"])
    assert 0 < sides["ours"]["evidence_recall"] < 1


def test_a_cut_costs_recall_and_saves_tokens(small):
    from tokens import cut_of, measure

    dataset, kb_ids = small
    paper = PaceMakerConfig()
    whole, cut = (measure(dataset, kb_ids, config, "ours", len) for config in (paper, cut_of(paper, 12)))
    assert cut["stages"]["post_filter"]["n_facts"] == pytest.approx(12)
    assert cut["tokens"] < whole["tokens"]
    assert cut["offered_recall"] <= whole["offered_recall"]


def test_the_command_says_that_it_estimates(tmp_path, monkeypatch, capsys):
    import tokens

    monkeypatch.setattr(tokens, "make_embedder", lambda name: HashEmbedder())
    out = tmp_path / "t.json"
    monkeypatch.setattr(
        "sys.argv", ["tokens.py", "--part", "dev", "--configs", "lite", "--cuts", "", "--json", str(out)]
    )
    tokens.main()
    said, found = capsys.readouterr().out, json.loads(out.read_text())
    assert "20 requests; tokens estimated from characters" in said
    assert [(row["config"], row["style"]) for row in found["rows"]] == [
        ("lite", s) for s in ("ours", "ids", "provenance")
    ]
    assert set(found["rows"][0]["stages"]) == {"answerer", "all"}
