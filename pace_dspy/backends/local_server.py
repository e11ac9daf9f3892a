"""`LocalServer`: llama.cpp inside this process (package ``xllamacpp``), answering OpenAI-style HTTP on a loopback port.

What we found about the runtime (xllamacpp 2026.10) and rely on here:

- One slot is enough to keep the prefixes of all stages: llama.cpp saves a slot's state to host memory
  (``cache_ram_mib``) when the next prompt does not continue it, and loads the best match back. With five stages taking
  turns, every prompt after the first round gets its whole fixed prefix from there; with that cache off, none does.
- More slots help only requests that run at the same time: on 2 cores, 4 requests in flight wrote 23 tokens/s with
  1 slot, 32 with 2 and 38 with 4. One slot stays the default there, because replies then do not depend on what else
  is running.
- ``n_ctx`` is divided among the slots, so we ask for ``window * slots``.
- Its threads spin at OpenMP barriers. On 2 cores the default model then writes 35 tokens/s alone, but 0.4-5 beside one
  other busy process. With a short spin and then sleep (``GOMP_SPINCOUNT=300``) it is 32 alone and 15-19 beside one;
  reading a prompt (87 tokens/s) does not change. So that is what we ask for, unless the user has set it.
- Destroying the server while it works on a request never returns (it waits, holding the interpreter lock), and leaving
  it to the interpreter's shutdown crashes. So every request goes through `LocalServer.request`, and `LocalServer.stop`
  first breaks the connections off.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib
import importlib.util
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx

from pace_dspy.backends import weights
from pace_dspy.backends.machine import free_memory_bytes, physical_cores
from pace_dspy.errors import BackendError, ConfigError, MissingExtraError

log = logging.getLogger(__name__)

DEFAULT_WINDOW = 8192
MIN_WINDOW = 512
MAX_CACHE_RAM_MIB = 1024
STOP_TIMEOUT_S = 5.0
KV_BYTES_PER_TOKEN = 28 * 1024
"""Key-value cache of the default model: 28 layers x 2 heads x 128 x 2 (K and V) x 2 bytes."""
SPIN_COUNT = "300"
_SILENT, _VERBOSE = -1, 3


@dataclass(frozen=True)
class LocalSettings:
    """Settings of one server.

    Attributes:
        window: Tokens of prompt plus reply, per slot.
        slots: Requests worked on at the same time.
        threads: Threads, 0 for one per physical core.
        cache_ram_mib: Host memory for saved prompt states in MiB, -1 for an eighth of the free memory, 1024 at most.
    """

    window: int = DEFAULT_WINDOW
    slots: int = 1
    threads: int = 0
    cache_ram_mib: int = -1

    def __post_init__(self) -> None:
        for name, value, least in (
            ("window", self.window, MIN_WINDOW),
            ("slots", self.slots, 1),
            ("threads", self.threads, 0),
            ("cache_ram_mib", self.cache_ram_mib, -1),
        ):
            if value < least:
                raise ConfigError(f"backend local: {name}={value} is not allowed; use {least} or more")


class Abortable(Protocol):
    """A client of the server whose open connections can be broken off from another thread."""

    def abort(self) -> None:
        """Break off every connection that waits for a reply."""


class LocalServer:
    """One llama.cpp server of this process. Use `get_server` to share it.

    Thread-safe. Nothing is loaded or downloaded before `start`, which the first use calls.

    Args:
        model: Name of pinned weights (``lm_default``, ``lm_small``) or the path of a ``.gguf`` file.
        settings: Window, slots, threads, cache.

    Attributes:
        alias: Name of the model on the endpoint.
        api_key: Key the endpoint asks for; made anew for each server and kept nowhere else.

    Raises:
        MissingExtraError: ``xllamacpp`` is not installed.
        ConfigError: Unknown model, or a window larger than the model's.
    """

    def __init__(self, model: str, settings: LocalSettings = LocalSettings()) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtraError("xllamacpp", "local")
        _check_model(model, settings)
        self.model = model
        self.alias = Path(model).stem if model.endswith(".gguf") else model
        self.settings = settings
        self.api_key = secrets.token_urlsafe(24)
        self._server: Any = None
        self._address = ""
        self._in_flight = 0
        self._state = threading.Condition(threading.RLock())
        self._clients: weakref.WeakSet[Abortable] = weakref.WeakSet()
        self._ending = False
        self._http: httpx.Client | None = None
        self.count_tokens = functools.lru_cache(maxsize=8192)(self._count_tokens)

    def __repr__(self) -> str:
        return f"LocalServer({self.model!r}, {self.settings}, {'running' if self.running else 'stopped'})"

    @property
    def running(self) -> bool:
        """Whether the model is loaded."""
        return self._server is not None

    @property
    def base_url(self) -> str:
        """Address of the OpenAI-style endpoint, ending in ``/v1``; starts the server."""
        self.start()
        return f"{self._address}/v1"

    def start(self, *, progress: weights.Progress | None = None) -> None:
        """Load the model and listen, unless it does already; fetches the weights when they are not in the cache.

        Args:
            progress: Called with (bytes done, bytes in total) while weights are downloaded.

        Raises:
            WeightsError: The weights cannot be had.
            BackendError: llama.cpp cannot load the model with these settings, or memory is too small.
        """
        with self._state:
            if self._server is not None:
                return
            if self._ending:
                raise BackendError("the process is ending", backend="local", model=self.model)
            path = weights.resolve(self.model, progress=progress) if self.model in weights.names() else Path(self.model)
            self._check_memory(path)
            xllamacpp = _load_runtime(self.model)
            try:
                server = xllamacpp.Server(self._params(xllamacpp, path))
            except RuntimeError as exc:
                raise BackendError(
                    f"llama.cpp could not load {path} (window {self.settings.window}, slots {self.settings.slots})",
                    backend="local",
                    model=self.model,
                    remedy="Use a smaller window, or set PACE_LOCAL_LOG=1 and run again to see llama.cpp's own words",
                ) from exc
            self._address = str(server.listening_address).rstrip("/")
            self._http = httpx.Client(
                base_url=self._address,
                headers={"Authorization": f"Bearer {self.api_key}"},
                timeout=60.0,
                trust_env=False,
            )
            self._server = server
            atexit.register(self._end)

    @contextlib.contextmanager
    def request(self) -> Iterator[str]:
        """Yield the endpoint's address for one request; `stop` waits for requests made this way.

        Raises:
            BackendError: As `start`.
        """
        with self._state:
            self.start()
            self._in_flight += 1
        try:
            yield f"{self._address}/v1"
        finally:
            with self._state:
                self._in_flight -= 1
                self._state.notify_all()

    def register(self, client: Abortable) -> None:
        """Remember a client (weakly); `stop` asks it to abort until no request is left."""
        self._clients.add(client)

    def _count_tokens(self, text: str) -> int:
        """Return the exact number of tokens of ``text``; starts the server. The last 8192 texts are remembered."""
        with self.request():
            if self._http is None:
                raise BackendError("the server was stopped", backend="local", model=self.model)
            reply = self._http.post("/tokenize", json={"content": text})
        return len(reply.raise_for_status().json()["tokens"])

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Break off running requests, unload the model and close the port. Does nothing when stopped.

        A later use starts it again.
        """
        with self._state:
            if self._server is None:
                return
            atexit.unregister(self._end)
            deadline = time.monotonic() + timeout_s
            while self._in_flight and time.monotonic() < deadline:
                for client in tuple(self._clients):
                    client.abort()
                self._state.wait(0.05)
            server, self._server = self._server, None
            if self._http is not None:
                self._http.close()
                self._http = None
            if self._in_flight:
                # Destroying it now would never return; the memory is given up until the process ends.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
                log.warning("local model: %d request(s) did not end; its memory is not freed", self._in_flight)
            del server

    def _end(self) -> None:
        self._ending = True
        self.stop()

    def _params(self, xllamacpp: Any, path: Path) -> Any:
        params, settings = xllamacpp.CommonParams(), self.settings
        threads = settings.threads or physical_cores()
        params.model.path = str(path)
        params.model_alias = {self.alias}
        params.n_ctx, params.n_parallel = settings.window * settings.slots, settings.slots
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.hostnames, params.port = ["127.0.0.1"], 0
        params.n_threads_http = settings.slots + 8
        # Other users of this machine could otherwise ask the model and read what its slots hold.
        params.api_keys = [self.api_key]
        params.endpoint_slots = params.ui = params.warmup = params.fit_params = params.ctx_shift = False
        params.cache_prompt = params.cache_idle_slots = True
        params.cache_ram_mib = self._cache_ram_mib()
        params.verbosity = _VERBOSE if os.environ.get("PACE_LOCAL_LOG") else _SILENT
        return params

    def _cache_ram_mib(self) -> int:
        if self.settings.cache_ram_mib >= 0:
            return self.settings.cache_ram_mib
        free = free_memory_bytes()
        return MAX_CACHE_RAM_MIB if free is None else min(MAX_CACHE_RAM_MIB, free // 8 // 2**20)

    def _check_memory(self, path: Path) -> None:
        free = free_memory_bytes()
        need = path.stat().st_size + self.settings.window * self.settings.slots * KV_BYTES_PER_TOKEN
        if free is not None and need > free:
            raise BackendError(
                f"needs about {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free",
                backend="local",
                model=self.model,
                remedy="Use model=lm_small, a smaller window or fewer slots",
            )


_servers: dict[tuple[str, LocalSettings], LocalServer] = {}
_servers_lock = threading.Lock()


def get_server(model: str, settings: LocalSettings = LocalSettings()) -> LocalServer:
    """Return the server of this process for a model and settings; it starts at its first use.

    Raises:
        MissingExtraError: ``xllamacpp`` is not installed.
        ConfigError: Unknown model, or a window larger than the model's.
    """
    with _servers_lock:
        key = (model, settings)
        if key not in _servers:
            _servers[key] = LocalServer(model, settings)
        return _servers[key]


def _load_runtime(model: str) -> Any:
    """Import xllamacpp so that its threads soon sleep while they wait for each other (see the module's notes)."""
    quiet = not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    if quiet:
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT  # read once, when the OpenMP library is loaded
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as exc:
        raise BackendError(
            f"xllamacpp is installed but cannot be loaded ({exc})",
            backend="local",
            model=model,
            remedy="Install the system library it names (on Debian and Ubuntu: apt install libgomp1)",
        ) from exc
    finally:
        if quiet:
            os.environ.pop("GOMP_SPINCOUNT", None)


def _check_model(model: str, settings: LocalSettings) -> None:
    usable = [name for name in weights.names() if weights.entry(name).context is not None]
    if model in usable:
        most = weights.entry(model).context or 0
        if settings.window > most:
            raise ConfigError(f"backend local: window={settings.window} is larger than the {most} tokens of {model}")
    elif not (model.endswith(".gguf") and Path(model).is_file()):
        raise ConfigError(f"backend local: no model {model!r}; use {', '.join(usable)}, or the path of a .gguf file")
