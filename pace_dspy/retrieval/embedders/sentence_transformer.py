"""Any sentence-transformers model, by name, with its query prompt."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from pace_dspy.errors import ConfigError, MissingExtraError
from pace_dspy.retrieval.base import FloatMatrix
from pace_dspy.retrieval.vectors import as_matrix, l2_normalise

_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class SentenceTransformerEmbedder:
    """A sentence-transformers model. Queries get the model's own prompt named "query", facts its document prompt.

    One thread embeds at a time: the fast tokenizers behind these models cannot be entered twice.

    Args:
        name: Model name on the hub, or a folder.
        revision: Commit of the model repository, ``None`` for its newest.
        device: Such as "cpu" or "cuda", ``None`` for the library's choice.
        batch_size: Texts a batch.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        ConfigError: No such model, or it cannot be fetched.
    """

    def __init__(
        self, name: str, *, revision: str | None = None, device: str | None = None, batch_size: int = 32
    ) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as exc:
            raise MissingExtraError("sentence-transformers", "hub") from exc
        try:
            self._model: Any = SentenceTransformer(name, revision=revision, device=device)
        except (OSError, ValueError) as exc:
            raise ConfigError(
                f"sentence-transformers model {name!r} cannot be loaded ({type(exc).__name__}); "
                "check the name and the network, or give the folder of a downloaded model"
            ) from exc
        prompts = dict(getattr(self._model, "prompts", None) or {})
        self._query_prompt = "query" if prompts.get("query") else None
        self._document_prompt = next((prompt for prompt in _DOCUMENT_PROMPTS if prompts.get(prompt)), None)
        self._batch_size = batch_size
        self._dim = int(self._model.get_sentence_embedding_dimension())
        self._id = f"st:{name}" + (f"@{revision}" if revision else "")
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """Model name, with the revision when one was given."""
        return self._id

    @property
    def dim(self) -> int:
        """Length of a vector, as the model says."""
        return self._dim

    def embed_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed facts; see `pace_dspy.retrieval.Embedder`."""
        return self._encode(texts, self._document_prompt)

    def embed_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed queries with the model's query prompt; see `pace_dspy.retrieval.Embedder`."""
        return self._encode(texts, self._query_prompt)

    def _encode(self, texts: Sequence[str], prompt: str | None) -> FloatMatrix:
        if not texts:
            return np.zeros((0, self._dim), dtype=np.float32)
        with self._lock:
            vectors = self._model.encode(
                list(texts),
                prompt_name=prompt,
                batch_size=self._batch_size,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return as_matrix(l2_normalise(vectors), f"embeddings of {self._id}", dim=self._dim)
