"""What a server says about itself: ``/models``, read once before the first request is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from pace_dspy.backends.failures import readable
from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.remote import RemoteEngine, is_loopback
from pace_dspy.errors import AuthError, BackendTimeoutError, BadSettingError, ServerError

TIMEOUT_S = 5.0
OPENAI_DIALECT = ("openai", "hosted_vllm", "ollama_chat")
_WINDOW_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""How servers spell the window: vLLM and SGLang, OpenRouter, Groq, LM Studio."""
_LISTED = 8


@dataclass(frozen=True)
class Served:
    """The models of a server.

    Attributes:
        windows: Model name -> its window in tokens, ``None`` where the server does not say.
    """

    windows: Mapping[str, int | None] = field(default_factory=dict)

    def find(self, model: str) -> str | None:
        """Return the served name of a model (Ollama adds ``:latest``), or ``None``."""
        return next((name for name in (model, f"{model}:latest") if name in self.windows), None)


def read_served(lm: BackendLM) -> Served | None:
    """Ask a server for its models.

    Returns:
        The models; ``None`` when there is nothing to ask (the provider's own address, another dialect) or the server
        has no such list but does have a chat endpoint.

    Raises:
        BackendTimeoutError: The server cannot be reached.
        AuthError: It refuses the key.
        BadSettingError: It is no OpenAI-compatible server, or not at this address.
        ServerError: It fails.
    """
    engine = lm.engine
    if not isinstance(engine, RemoteEngine) or engine.base_url is None or lm.profile.provider not in OPENAI_DIALECT:
        return None
    where: dict[str, Any] = {"backend": lm.profile.name, "model": lm.model.partition("/")[2]}
    address = f"{engine.base_url}/models"
    timeout = min(TIMEOUT_S, lm.profile.timeout_s)
    with httpx.Client(
        headers=engine.auth_headers(), timeout=timeout, trust_env=not is_loopback(engine.base_url)
    ) as client:
        try:
            reply = client.get(address)
            chat = client.post(f"{engine.base_url}/chat/completions", json={}) if reply.status_code == 404 else reply
        except httpx.TimeoutException as exc:
            raise BackendTimeoutError(
                f"no answer from {address} within {timeout:g} s", remedy="Check that the server is up", **where
            ) from exc
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise BackendTimeoutError(
                f"{address} cannot be reached ({readable(engine.scrub(str(exc)))})",
                remedy="Check the address and that the server is running",
                **where,
            ) from exc
    if chat is not reply and chat.status_code not in {404, 405}:
        return None  # no list, but an endpoint that complains about our empty question
    return _read(reply, address, engine, where)


def _read(reply: httpx.Response, address: str, engine: RemoteEngine, where: dict[str, Any]) -> Served | None:
    status, said = reply.status_code, readable(engine.scrub(reply.text[:2000]))
    if status in {401, 403}:
        raise AuthError(f"{address} answers HTTP {status}: {said}", remedy="Check the key", **where)
    if status >= 500:
        raise ServerError(f"{address} answers HTTP {status}: {said}", remedy="Wait until the server is up", **where)
    if status in {404, 405} or 300 <= status < 400:
        moved = f" (it points to {reply.headers['location']})" if "location" in reply.headers else ""
        raise BadSettingError(
            f"{address} answers HTTP {status}{moved}",
            parameter="base_url",
            remedy="The address ends in /v1, such as http://localhost:8000/v1",
            **where,
        )
    if status != 200:
        return None
    try:
        windows = {str(item["id"]): _window(item) for item in reply.json()["data"]}
    except (ValueError, LookupError, TypeError) as exc:
        raise BadSettingError(
            f"{address} does not list models ({said[:120]})",
            parameter="base_url",
            remedy="Is this an OpenAI-compatible server? Its address ends in /v1",
            **where,
        ) from exc
    return Served(windows)


def listed(names: Mapping[str, object]) -> str:
    """Return the first few names of a server's models."""
    shown = ", ".join(list(names)[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown


def _window(item: Mapping[str, Any]) -> int | None:
    found = next((item[key] for key in _WINDOW_KEYS if isinstance(item.get(key), int)), None)
    return found if found and found > 0 else None
