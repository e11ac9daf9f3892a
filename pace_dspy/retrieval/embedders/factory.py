"""From a short text such as ``minilm`` to an embedder."""

from __future__ import annotations

import os
from collections.abc import Callable

from pace_dspy.errors import ConfigError
from pace_dspy.retrieval.base import Embedder
from pace_dspy.retrieval.embedders.minilm import MiniLMEmbedder
from pace_dspy.retrieval.embedders.openai_compatible import OPENAI_URL, OpenAICompatibleEmbedder
from pace_dspy.retrieval.embedders.sentence_transformer import SentenceTransformerEmbedder


def make_embedder(spec: str = "minilm") -> Embedder:
    """Make the embedder that a text names.

    Args:
        spec: ``minilm`` (embedded, weights pulled on first use), ``st:NAME`` (sentence-transformers) or
            ``openai:MODEL@BASE_URL`` (any OpenAI-compatible server; without ``@BASE_URL`` OpenAI itself).

    Raises:
        ConfigError: Unknown spec; the message lists what is allowed.
        MissingExtraError: The extra is not installed.
        WeightsError: The pinned weights cannot be had.
        MissingKeyError: The service needs a key.
    """
    kind, _, rest = spec.strip().partition(":")
    if kind not in _MAKERS or bool(rest.strip()) != _MAKERS[kind][1]:
        forms = ", ".join(form for form, _, _ in _MAKERS.values())
        raise ConfigError(f"unknown embedder {spec!r}; use one of: {forms}")
    return _MAKERS[kind][2](rest.strip())


def _minilm(_: str) -> Embedder:
    from pace_dspy.backends import weights

    paths = weights.resolve("embedder_onnx"), weights.resolve("embedder_tokenizer")
    return MiniLMEmbedder(*paths, threads=_threads(os.environ.get("OMP_NUM_THREADS", "")))


def _threads(text: str) -> int | None:
    """Return the threads that a process may use, ``None`` for all cores; a Ray worker is given one a CPU it holds."""
    first = text.split(",")[0].strip()
    return int(first) if first.isascii() and first.isdigit() and int(first) else None


def _openai(rest: str) -> Embedder:
    model, at, base_url = rest.rpartition("@")
    if not at:
        return OpenAICompatibleEmbedder(rest, OPENAI_URL)
    if not model:
        raise ConfigError(f"embedder openai:{rest} names no model; write openai:MODEL@BASE_URL")
    return OpenAICompatibleEmbedder(model, base_url)


_MAKERS: dict[str, tuple[str, bool, Callable[[str], Embedder]]] = {
    "minilm": ("minilm", False, _minilm),
    "st": ("st:NAME", True, SentenceTransformerEmbedder),
    "openai": ("openai:MODEL@BASE_URL", True, _openai),
}
"""Kind to (how it is written, whether something follows the colon, maker)."""
