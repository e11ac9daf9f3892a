"""Any server with an OpenAI-compatible ``/embeddings`` endpoint."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from pace_dspy.backends.addresses import check_address
from pace_dspy.errors import BackendError, ConfigError, MissingKeyError
from pace_dspy.retrieval.base import FloatMatrix
from pace_dspy.retrieval.embedders.http_errors import RETRYABLE, error_of, retry_wait
from pace_dspy.retrieval.vectors import l2_normalise

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "PACE_EMBEDDING_API_KEY"
BACKEND = "openai-embeddings"


class OpenAICompatibleEmbedder:
    """Vectors from ``POST {base_url}/embeddings``.

    The key comes from the environment: ``PACE_EMBEDDING_API_KEY``; without it ``OPENAI_API_KEY`` for OpenAI's own
    address, and ``PACE_API_KEY`` when the address is ``PACE_BASE_URL``. A key is never sent to any other address,
    and never stored in the id or shown in a message. Rate limits and server failures are tried again, Retry-After
    obeyed; a 400 or a refused key is not.

    Args:
        model: Model name as the server knows it.
        base_url: Address up to ``/v1``.
        dim: Length of a vector; ``None`` asks the server once, when first needed.
        batch_size: Texts a call.
        max_retries: Further tries after a failure that may pass.
        max_wait_s: Longest single wait; a server that asks for more fails the call.
        timeout_s: Time for one call.
        sleep: For tests.

    Raises:
        ConfigError: An address that cannot be used, or one with a user, password or query in it.
        MissingKeyError: OpenAI's own address without a key.
    """

    def __init__(
        self,
        model: str,
        base_url: str = OPENAI_URL,
        *,
        dim: int | None = None,
        batch_size: int = 128,
        max_retries: int = 4,
        max_wait_s: float = 60.0,
        timeout_s: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_address(base_url, "embedding server: base_url", KEY_VARIABLE)
        self.model, self.base_url = model, base_url.rstrip("/")
        self._key = _key_for(self.base_url, model)
        self._dim, self._batch_size = dim, batch_size
        self._max_retries, self._max_wait_s, self._sleep = max_retries, max_wait_s, sleep
        self._lock = threading.Lock()
        self._client = httpx.Client(timeout=httpx.Timeout(timeout_s, connect=10.0))

    @property
    def id(self) -> str:
        """Model and address, never the key."""
        return f"openai:{self.model}@{self.base_url}"

    @property
    def dim(self) -> int:
        """Length of a vector; asks the server once when it was not given."""
        if self._dim is None:
            self._call(["dimension"])
        return int(self._dim or 0)

    def embed_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed facts; see `pace_dspy.retrieval.Embedder`.

        Raises:
            AuthError: The server refused the key.
            RateLimitError: Still rate limited after all tries, or told to wait too long.
            ServerError: The server failed on every try.
            BackendError: Any other failure, or a reply that is not one vector a text of the known length.
        """
        batches = [texts[start : start + self._batch_size] for start in range(0, len(texts), self._batch_size)]
        vectors = [self._call(batch) for batch in batches]
        return np.concatenate(vectors) if vectors else np.zeros((0, self.dim), dtype=np.float32)

    def embed_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """Embed queries; the interface knows no query prompt, so this is `embed_documents`."""
        return self.embed_documents(texts)

    def _call(self, texts: Sequence[str]) -> FloatMatrix:
        for attempt in range(self._max_retries + 1):
            response, problem = self._post(texts)
            if response is not None and response.status_code == 200:
                return self._vectors(response, len(texts))
            last = attempt == self._max_retries
            wait = retry_wait(response, attempt)
            if last or wait > self._max_wait_s or (response is not None and response.status_code not in RETRYABLE):
                break
            self._sleep(wait)
        raise error_of(response, problem, wait, backend=BACKEND, model=self.model, key=self._key, variable=KEY_VARIABLE)

    def _post(self, texts: Sequence[str]) -> tuple[httpx.Response | None, str]:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        try:
            return self._client.post(f"{self.base_url}/embeddings", json=body, headers=headers), ""
        except httpx.TransportError as exc:
            return None, f"no answer from {self.base_url} ({type(exc).__name__})"

    def _vectors(self, response: httpx.Response, n_texts: int) -> FloatMatrix:
        try:
            items: list[dict[str, Any]] = response.json()["data"]
            by_index = {int(item["index"]): item["embedding"] for item in items}
            if sorted(by_index) != list(range(n_texts)) or len(items) != n_texts:
                raise self._bad(f"the reply holds {len(items)} vectors for {n_texts} texts, or repeats an index")
            matrix = np.array([by_index[number] for number in range(n_texts)], dtype=np.float32)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise self._bad("the reply is not a list of vectors of one length") from exc
        if matrix.ndim != 2 or not matrix.shape[1] or not np.isfinite(matrix).all():
            raise self._bad("the reply is not a list of finite vectors of one length")
        with self._lock:
            if self._dim is None:
                self._dim = matrix.shape[1]
        if matrix.shape[1] != self._dim:
            raise self._bad(f"the reply has vectors of length {matrix.shape[1]}, not {self._dim}")
        return l2_normalise(matrix)

    def _bad(self, problem: str) -> BackendError:
        remedy = "Check that the address is an embeddings endpoint and the model an embedding model"
        return BackendError(problem, backend=BACKEND, model=self.model, remedy=remedy)


def _key_for(base_url: str, model: str) -> str | None:
    names = [KEY_VARIABLE]
    is_openai = urlsplit(base_url).hostname == urlsplit(OPENAI_URL).hostname
    if is_openai:
        names.append("OPENAI_API_KEY")
    if os.environ.get("PACE_BASE_URL", "").rstrip("/") == base_url:
        names.append("PACE_API_KEY")
    name = next((name for name in names if os.environ.get(name, "").strip()), None)
    if name is None:
        if is_openai:
            raise MissingKeyError(
                f"no key: neither {' nor '.join(names)} is set", backend=BACKEND, model=model, remedy="Set one of them"
            )
        return None
    key = os.environ[name].strip()
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(f"the key in {name} holds a space, line break or other character no key has; set it again")
    return key
