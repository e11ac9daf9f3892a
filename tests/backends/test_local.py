from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from dspy.lm15 import Config, Message, Request
from dspy.utils.exceptions import ContextWindowExceededError, LMTransportError

from pace_dspy.backends import local_server, weights
from pace_dspy.backends.local import LocalServer, LocalSettings, get_server, make_local_lm
from pace_dspy.backends.profiles import get_profile
from pace_dspy.errors import BackendError, ConfigError, MissingExtraError, WeightsError

WINDOW = 2048


class FakeRuntime:
    """Stands where `xllamacpp` is imported."""

    def __init__(self, fail: bool = False) -> None:
        self.params: Any = None
        self.fail = fail

    def CommonParams(self) -> SimpleNamespace:
        return SimpleNamespace(
            model=SimpleNamespace(path=""), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()
        )

    def Server(self, params: Any) -> SimpleNamespace:
        if self.fail:
            raise RuntimeError("Failed to init server, please check the input params.")
        self.params = params
        return SimpleNamespace(listening_address="http://127.0.0.1:1")


@pytest.fixture
def gguf(tmp_path: Path) -> str:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setattr(local_server.importlib, "import_module", lambda name: fake)
    monkeypatch.setattr(local_server.importlib.util, "find_spec", lambda name: object())
    return fake


def test_without_the_extra_the_pip_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"xllamacpp is not installed\. Run: pip install 'pace-dspy\[local\]'"):
        LocalServer("lm_small")


def test_impossible_settings_are_refused_before_anything_is_loaded(runtime: FakeRuntime) -> None:
    with pytest.raises(ConfigError, match="window=65536 is larger than the 32768 tokens of lm_small"):
        LocalServer("lm_small", LocalSettings(window=65536))
    with pytest.raises(ConfigError, match="slots=0 is not allowed; use 1 or more"):
        LocalSettings(slots=0)
    with pytest.raises(ConfigError, match="window=100 is not allowed; use 512 or more"):
        LocalSettings(window=100)
    with pytest.raises(
        ConfigError, match=r"no model 'embedder_onnx'; use lm_default, lm_small, or the path of a \.gguf"
    ):
        LocalServer("embedder_onnx")
    with pytest.raises(ConfigError, match=r"no model '/nowhere/x\.gguf'"):
        LocalServer("/nowhere/x.gguf")
    assert runtime.params is None


def test_settings_reach_the_runtime(runtime: FakeRuntime, gguf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACE_LOCAL_LOG", raising=False)
    server = LocalServer(gguf, LocalSettings(window=1024, slots=3, threads=5, cache_ram_mib=64))
    assert not server.running
    assert server.base_url == "http://127.0.0.1:1/v1"
    params = runtime.params
    # llama.cpp divides n_ctx among the slots: 3 * 1024.
    assert (params.n_ctx, params.n_parallel, params.cache_ram_mib) == (3072, 3, 64)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (5, 5)
    assert (params.hostnames, params.port, params.api_keys) == (["127.0.0.1"], 0, [server.api_key])
    assert params.cache_prompt
    assert params.verbosity == -1
    assert server.alias == "mine"
    assert server.api_key not in repr(server)
    server.stop()
    assert not server.running
    monkeypatch.setenv("PACE_LOCAL_LOG", "1")
    server.start()
    assert runtime.params.verbosity == 3
    server.stop()


def test_a_model_that_cannot_be_loaded_is_one_line(runtime: FakeRuntime, gguf: str) -> None:
    runtime.fail = True
    with pytest.raises(
        BackendError, match=r"backend local/.*could not load .*mine\.gguf \(window 8192, slots 1\)\. Use"
    ):
        LocalServer(gguf).start()


def test_threads_are_told_to_spin_shortly_unless_the_user_says_otherwise(
    runtime: FakeRuntime, gguf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str | None, str | None]] = []

    def load(name: str) -> FakeRuntime:
        seen.append((os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT")))
        return runtime

    monkeypatch.setattr(local_server.importlib, "import_module", load)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    server = LocalServer(gguf)
    server.start()
    server.stop()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    server.start()
    server.stop()
    assert seen == [(None, "300"), ("active", None)]


def test_a_missing_system_library_is_named(runtime: FakeRuntime, gguf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> FakeRuntime:
        raise ImportError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(local_server.importlib, "import_module", load)
    with pytest.raises(BackendError, match=r"cannot be loaded \(libgomp\.so\.1: .*apt install libgomp1"):
        LocalServer(gguf).start()


def test_too_little_memory_is_said_before_loading(
    runtime: FakeRuntime, gguf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "free_memory_bytes", lambda: 100_000_000)
    # 8192 tokens * 28 KiB = 234.9 MB.
    with pytest.raises(BackendError, match=r"needs about 0\.2 GB of memory, 0\.1 GB are free\. Use model=lm_small"):
        LocalServer(gguf).start()
    assert runtime.params is None


def test_missing_weights_are_reported_as_such(runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str, **kwargs: object) -> Path:
        raise WeightsError(f"{name} could not be had")

    monkeypatch.setattr(weights, "resolve", nothing)
    lm = make_local_lm(get_profile("local", {"model": "lm_small", "window": "777"}))
    with pytest.raises(WeightsError, match="lm_small could not be had"):
        lm("hello")


def test_one_server_per_model_and_settings(runtime: FakeRuntime) -> None:
    with ThreadPoolExecutor(8) as pool:
        servers = set(pool.map(lambda _: get_server("lm_small", LocalSettings(window=600)), range(32)))
    assert len(servers) == 1
    assert get_server("lm_small", LocalSettings(window=601)) not in servers


def test_the_lm_is_light_until_it_is_asked(runtime: FakeRuntime) -> None:
    lm = make_local_lm(get_profile("local", {"model": "lm_small", "window": "778"}))
    twin = copy.deepcopy(lm)
    assert twin.server is lm.server
    assert twin.engine is lm.engine
    assert not lm.server.running
    assert lm.server.api_key not in json.dumps(lm.dump_state())
    assert "api_key" not in lm.kwargs


# --- with the real model ---------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "why": {"type": "string", "maxLength": 80},
        "picks": {"type": "array", "items": {"type": "integer"}, "maxItems": 4},
    },
    "required": ["why", "picks"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    found = get_server("lm_small", LocalSettings(window=WINDOW, slots=1))
    yield found
    found.stop()


@pytest.fixture
def http(server: LocalServer) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=server.base_url, headers={"Authorization": f"Bearer {server.api_key}"}, timeout=120, trust_env=False
    ) as client:
        yield client


def chat(client: httpx.Client, user: str, system: str = "You plan.", **options: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    body = {"model": "any", "messages": messages, "temperature": 0, "max_tokens": 16, **options}
    reply = client.post("/chat/completions", json=body)
    return {"status": reply.status_code, **reply.json()}


@pytest.mark.llm
def test_schema_usage_and_finish_reason_over_http(http: httpx.Client) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
    reply = chat(http, "Pick two facts: [1] Maya is vegan. [2] It rains.", response_format=form, max_tokens=200)
    value = json.loads(reply["choices"][0]["message"]["content"])
    assert set(value) == {"why", "picks"}
    assert len(value["picks"]) <= 4
    assert len(value["why"]) <= 80
    assert reply["choices"][0]["finish_reason"] == "stop"
    again = chat(http, "Pick two facts: [1] Maya is vegan. [2] It rains.", response_format=form, max_tokens=3)
    assert again["choices"][0]["finish_reason"] == "length"
    assert again["usage"]["completion_tokens"] == 3
    # The same prompt again: all but its last token comes from the cache.
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1


@pytest.mark.llm
def test_log_probabilities_of_a_free_reply(http: httpx.Client) -> None:
    reply = chat(http, "Answer Yes or No. Is Paris in France?", max_tokens=1, logprobs=True, top_logprobs=5)
    [token] = reply["choices"][0]["logprobs"]["content"]
    assert token["token"] == reply["choices"][0]["message"]["content"] == "Yes"
    assert len(token["top_logprobs"]) == 5
    assert token["logprob"] <= 0


@pytest.mark.llm
def test_a_prompt_over_the_window_is_refused_with_the_window(http: httpx.Client) -> None:
    reply = chat(http, "word " * 3000)
    assert reply["status"] == 400
    assert reply["error"]["type"] == "exceed_context_size_error"
    assert reply["error"]["n_ctx"] == WINDOW
    lm = make_local_lm(get_profile("local", {"model": "lm_small", "window": str(WINDOW), "slots": "1"}))
    with pytest.raises(ContextWindowExceededError, match=r"exceeds the available context size \(2048 tokens\)"):
        lm(Request(model=lm.model, messages=(Message.user("word " * 3000),), config=Config(max_tokens=5)))


@pytest.mark.llm
def test_strangers_are_refused(server: LocalServer) -> None:
    for path in ("/models", "/chat/completions"):
        reply = httpx.post(server.base_url + path, json={}, trust_env=False)
        assert reply.status_code == 401
    assert httpx.get(server.base_url.removesuffix("/v1") + "/slots", trust_env=False).status_code == 401


@pytest.mark.llm
def test_token_counts_are_the_servers(server: LocalServer, http: httpx.Client) -> None:
    assert server.count_tokens("Maya is vegan.") == 5  # M|aya| is| vegan|.
    assert server.count_tokens("") == 0
    short, long = ("fact " * n for n in (10, 60))
    grown = chat(http, long)["usage"]["prompt_tokens"] - chat(http, short)["usage"]["prompt_tokens"]
    assert grown == server.count_tokens(long) - server.count_tokens(short)


@pytest.mark.llm
def test_threads_get_their_own_replies() -> None:
    lm = make_local_lm(get_profile("local", {"model": "lm_small", "window": str(WINDOW), "slots": "1"}))

    def ask(number: int) -> str:
        text = f"Repeat exactly this number and nothing else: {number}{number}{number}7"
        config = Config(max_tokens=8, temperature=0.0)
        reply = lm(Request(model=lm.model, messages=(Message.user(text),), config=config))
        return str(reply.message.text)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(1, 9))) == [f"{n}{n}{n}7" for n in range(1, 9)]


@pytest.mark.llm
def test_prefixes_of_five_alternating_stages_stay_cached(server: LocalServer, http: httpx.Client) -> None:
    systems = [f"Stage {n}. " + " ".join(f"rule{n}{i}" for i in range(60)) for n in range(5)]
    shares = []
    for turn in range(3):
        for system in systems:
            usage = chat(http, f"request {turn} " + "fact " * 20, system=system, max_tokens=2)["usage"]
            if turn:
                prefix = server.count_tokens(system)
                assert usage["prompt_tokens_details"]["cached_tokens"] >= prefix
            shares.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
    later = shares[5:]
    assert sum(cached for _, cached in later) / sum(read for read, _ in later) > 0.8


def endless(limit: int) -> Config:
    return Config(max_tokens=limit, temperature=0.0, extensions={"ignore_eos": True})


@pytest.mark.llm
def test_stop_breaks_off_a_running_request_and_a_later_call_starts_again() -> None:
    lm = make_local_lm(get_profile("local", {"model": "lm_small", "window": "1024", "slots": "1"}))
    errors: list[Exception] = []

    def ask(limit: int) -> None:
        try:
            text = Message.user("Write a long story with many chapters.")
            lm(Request(model=lm.model, messages=(text,), config=endless(limit)))
        except LMTransportError as exc:
            errors.append(exc)

    lm.server.start()
    thread = threading.Thread(target=ask, args=(900,))
    thread.start()
    time.sleep(2.0)
    assert thread.is_alive()
    started = time.monotonic()
    lm.server.stop()
    assert time.monotonic() - started < 4
    thread.join()
    assert len(errors) == 1
    assert not lm.server.running
    ask(2)
    assert lm.server.running
    lm.server.stop()


SCRIPT = """
import os, sys, threading, time
os.environ.pop("PACE_LOCAL_LOG", None)
from dspy.lm15 import Config, Message, Request
from pace_dspy.backends.local import make_local_lm
from pace_dspy.backends.profiles import get_profile
lm = make_local_lm(get_profile("local", {"model": "lm_small", "window": "1024", "slots": "1"}))
def ask(limit):
    message = Message.user("Write a long story with many chapters.")
    config = Config(max_tokens=limit, extensions={"ignore_eos": True})
    lm(Request(model=lm.model, messages=(message,), config=config))
def quietly():
    try:
        ask(900)
    except Exception:
        pass
import logging; logging.getLogger("dspy").setLevel(logging.ERROR)
ask(2)
if sys.argv[1] == "busy":
    threading.Thread(target=quietly, daemon=True).start()
    time.sleep(1)
if sys.argv[1] == "error":
    raise SystemExit(3)
"""


@pytest.mark.llm
@pytest.mark.parametrize(("mode", "status"), [("idle", 0), ("busy", 0), ("error", 3)])
def test_a_process_ends_cleanly_and_says_nothing(mode: str, status: int) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
