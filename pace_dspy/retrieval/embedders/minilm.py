"""The embedded embedder: all-MiniLM-L6-v2 (int8 ONNX) in this process, no key, no server."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pace_dspy.errors import MissingExtraError, WeightsError
from pace_dspy.retrieval.base import FloatMatrix
from pace_dspy.retrieval.vectors import l2_normalise

DIM = 384
MAX_TOKENS = 256
BATCH_SIZE = 8
CALL_TOKENS = 16
"""What a call costs beside its tokens, in tokens: measured on one thread (2.2 ms and 0.14 ms a token)."""


class MiniLMEmbedder:
    """MiniLM through ONNX Runtime: mean over the attention mask, then L2. Ours as the default; any other fits.

    Texts are cut at 256 tokens, sorted by length and embedded in small batches of similar length (fastest on CPU).

    Args:
        model: Path of ``model.onnx``.
        tokenizer: Path of ``tokenizer.json``.
        threads: Threads of ONNX Runtime, ``None`` for all cores.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        FileNotFoundError: A path does not exist.
        WeightsError: A file cannot be read as what it should be.
    """

    dim = DIM

    def __init__(self, model: Path | str, tokenizer: Path | str, *, threads: int | None = None) -> None:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as exc:
            raise MissingExtraError(exc.name or "onnxruntime", "local") from exc
        for path in (Path(model), Path(tokenizer)):
            if not path.is_file():
                raise FileNotFoundError(f"embedder file {path} does not exist; run `pace-dspy weights pull`")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(tokenizer))
            self._session: Any = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        except Exception as exc:  # both libraries raise plain or private types
            raise WeightsError(
                f"embedder files {model} and {tokenizer} cannot be loaded ({exc}); run `pace-dspy weights verify`"
            ) from exc
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._id = f"minilm-l6-v2:model={_sha(model)},tokenizer={_sha(tokenizer)},max_tokens={MAX_TOKENS}"

    @property
    def id(self) -> str:
        """Names model and tokenizer by the start of their SHA-256."""
        return self._id

    def embed_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed facts; see `pace_dspy.retrieval.Embedder`.

        Returns:
            ``(len(texts), 384)`` float32, rows of unit length.
        """
        vectors = np.zeros((len(texts), DIM), dtype=np.float32)
        encoded = self._tokenizer.encode_batch(list(texts))
        lengths = [len(encoding.ids) for encoding in encoded]
        order = sorted(range(len(texts)), key=lengths.__getitem__)
        for batch in batches([lengths[row] for row in order]):
            rows = order[batch]
            vectors[rows] = self._run([encoded[row].ids for row in rows])
        return vectors

    def embed_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed queries; the model has no query prompt, so this is `embed_documents`."""
        return self.embed_documents(texts)

    def _run(self, token_ids: list[list[int]]) -> FloatMatrix:
        lengths = np.array([len(ids) for ids in token_ids])
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        ids = np.zeros_like(mask)
        ids[mask.astype(bool)] = np.concatenate(token_ids)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, {name: array for name, array in feed.items() if name in self._inputs})[0]
        return l2_normalise((hidden * mask[..., None]).sum(axis=1) / lengths[:, None])


def batches(lengths: Sequence[int]) -> list[slice]:
    """Cut texts sorted by length into the batches that take the least time, padding and calls weighed.

    Args:
        lengths: Tokens of each text, ascending.

    Returns:
        Slices that cover all texts, of `BATCH_SIZE` at most.
    """
    costs, cuts = [0.0], [0]
    for end, longest in enumerate(lengths, start=1):
        choices = (
            (costs[start] + CALL_TOKENS + (end - start) * longest, start)
            for start in range(max(0, end - BATCH_SIZE), end)
        )
        cost, start = min(choices)
        costs.append(cost)
        cuts.append(start)
    found: list[slice] = []
    end = len(lengths)
    while end:
        found.append(slice(cuts[end], end))
        end = cuts[end]
    return found[::-1]


def _sha(path: Path | str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
