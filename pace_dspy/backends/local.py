"""The ``local`` backend as a ``dspy.LM``: requests go to the llama.cpp server of this process.

The connection is owned by an engine (``dspy.LM(engine=...)``), so that the server can start late, at the first call,
and its address and one-time key are in no attribute, copy or file.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from dspy._vendor.lm15.transports import StdlibTransport
from dspy._vendor.lm15.types import StreamEvent
from dspy.clients.engines.lm15_engine import LM15Engine
from dspy.lm15 import ContextLengthError, InvalidRequestError, Request, Response, RouterConfig

from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.local_server import LocalServer, LocalSettings, get_server
from pace_dspy.backends.profiles import BackendProfile, identity

__all__ = ["LocalEngine", "LocalLM", "LocalServer", "LocalSettings", "get_server", "make_local_lm"]

_PROVIDER = "vllm"
"""lm15's dialect for llama.cpp: ``system`` role, ``max_tokens``, no header or field that llama.cpp would refuse."""


class _Transport(StdlibTransport):
    """Blocking HTTP whose running requests can be broken off from another thread."""

    def abort(self) -> None:
        """Shut down the sockets that wait for a reply (closing them would not wake the waiting thread)."""
        for connection in tuple(self._pool._in_use):
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


class LocalEngine:
    """Engine of ``dspy.LM``: one attempt against the server, which it starts when needed.

    Args:
        server: The server of this process.
        timeout_s: Longest wait for a reply, in seconds; a request also waits for its turn in a slot.
    """

    def __init__(self, server: LocalServer, timeout_s: float) -> None:
        self.server = server
        self._transport = _Transport(read_timeout=timeout_s, trust_env=False)
        self._lock = threading.Lock()
        self._engines: dict[str, LM15Engine] = {}
        server.register(self._transport)

    def complete(self, request: Request) -> Response:
        """Ask once.

        Raises:
            ContextLengthError: The prompt is longer than the window of a slot.
            LM15Error: Any other failure, as DSPy's engines raise it.
        """
        with self.server.request() as address, _window_errors():
            return self._engine(address).complete(request)

    def stream(self, request: Request) -> Iterator[StreamEvent]:
        """Ask once and yield the events of the reply as they come."""
        with self.server.request() as address, _window_errors():
            yield from self._engine(address).stream(request)

    def close(self) -> None:
        """Do nothing: the server is shared and stops by itself."""

    def _engine(self, address: str) -> LM15Engine:
        with self._lock:
            if address not in self._engines:
                self._engines = {
                    address: LM15Engine(
                        RouterConfig(
                            api_keys={_PROVIDER: self.server.api_key},
                            base_urls={_PROVIDER: address},
                            transport=self._transport,
                        )
                    )
                }
            return self._engines[address]


class _AsyncLocalEngine:
    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    async def complete(self, request: Request) -> Response:
        return await asyncio.to_thread(self._engine.complete, request)


class LocalLM(BackendLM):
    """The embedded model. The server starts, and its weights are fetched, at the first call."""

    server: LocalServer

    def warm_up(self) -> None:
        """Fetch the weights if needed and start the server."""
        self.server.start()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Start the server if needed, so that its errors are ours, then ask as ``dspy.LM`` does."""
        self.server.start()
        return super().__call__(*args, **kwargs)


def make_local_lm(
    profile: BackendProfile, *, reply_cache: ReplyCache | None = None, seed: int | None = None
) -> LocalLM:
    """Build the language model of the ``local`` profile. Loads and downloads nothing yet.

    Args:
        profile: The ``local`` profile; ``model``, ``window`` and ``slots`` say what is served and how.
        reply_cache: Cache of validated replies; none by default.
        seed: Of the sampling.

    Returns:
        A ready ``dspy.LM`` that counts tokens exactly.

    Raises:
        MissingExtraError: ``xllamacpp`` is not installed; holds the pip line.
        ConfigError: Unknown model, or a window the model does not have.
    """
    settings = LocalSettings(window=profile.window or LocalSettings.window, slots=profile.slots)
    server = get_server(profile.model, settings)
    engine = LocalEngine(server, profile.timeout_s)
    lm = LocalLM(
        profile,
        f"hosted_vllm/{server.alias}",
        identity=identity(profile),
        token_counter=server.count_tokens,
        reply_cache=reply_cache,
        seed=seed,
        engine=engine,
        async_engine=_AsyncLocalEngine(engine),
    )
    lm.server = server
    return lm


@contextlib.contextmanager
def _window_errors() -> Iterator[None]:
    try:
        yield
    except InvalidRequestError as exc:
        if "exceeds the available context size" not in str(exc) or isinstance(exc, ContextLengthError):
            raise
        raise ContextLengthError(exc.message, provider=_PROVIDER, status=400) from exc
