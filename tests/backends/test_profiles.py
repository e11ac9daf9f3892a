from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import dspy
import pytest
from dspy.lm15 import Config, Message, Request
from pydantic import ValidationError

from pace_dspy.backends import machine
from pace_dspy.backends.profiles import (
    PROFILES,
    Connection,
    get_profile,
    identity,
    override_fields,
    resolve_connection,
)
from pace_dspy.errors import ConfigError, MissingKeyError

CANARY = "sk-canary-4711"
ENVIRON = {
    "OPENAI_API_KEY": CANARY,
    "GEMINI_API_KEY": CANARY,
    "PACE_API_KEY": CANARY,
    "PACE_BASE_URL": "http://box:9000/v1/",
    "PACE_MODEL": "openai/gpt-oss-20b",
}


def test_table_has_the_backends_with_the_papers_models() -> None:
    assert list(PROFILES) == ["local", "openai-compatible", "openai", "gemini", "vllm", "ollama", "batch"]
    assert PROFILES["openai"].model == "gpt-5.4-mini"
    assert PROFILES["gemini"].model == "gemini-3.1-flash-lite"
    assert PROFILES["vllm"].model == "Qwen/Qwen3-4B-Instruct-2507"
    assert PROFILES["local"].model == "lm_default"


def test_profiles_are_frozen_and_closed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        get_profile("openai").window = 5  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        type(get_profile("openai")).model_validate({**get_profile("openai").model_dump(), "colour": "red"})


def test_unknown_backend_and_setting_list_what_is_known() -> None:
    with pytest.raises(ConfigError, match=r"unknown backend 'claude'; known: local, openai-compatible, openai, gemini"):
        get_profile("claude")
    with pytest.raises(ConfigError, match=r"backend openai: unknown setting 'temprature'; known: .*temperature"):
        get_profile("openai", {"temprature": "0"})
    assert "name" not in override_fields()
    with pytest.raises(ConfigError, match="unknown setting 'name'"):
        get_profile("openai", {"name": "mine"})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"window": "large"}, r"backend vllm: window: Input should be a valid integer.*received 'large'"),
        ({"window": "100"}, r"window: Input should be greater than or equal to 512"),
        ({"temperature": "3"}, r"temperature: Input should be less than or equal to 2"),
        ({"schema_form": "xml"}, r"schema_form: Input should be 'json_schema', 'json_object' or 'none'"),
        ({"base_url": "localhost:8000"}, r"base_url='localhost:8000' is not an http:// or https:// address"),
        ({"slots": "0"}, r"slots: Input should be greater than or equal to 1"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_profile("vllm", overrides)


def test_texts_from_the_command_line_are_converted() -> None:
    profile = get_profile(
        "vllm", {"temperature": "0.7", "window": "16384", "supports_logprobs": "false", "base_url": "none"}
    )
    assert (profile.temperature, profile.window, profile.supports_logprobs, profile.base_url) == (
        0.7,
        16384,
        False,
        None,
    )


def test_none_is_a_schema_form_and_elsewhere_nothing() -> None:
    assert get_profile("vllm", {"schema_form": "none"}).schema_form == "none"
    assert get_profile("vllm", {"temperature": "none"}).temperature is None


def test_another_model_loses_the_prices_and_window_of_the_default_one() -> None:
    other = get_profile("openai", {"model": "gpt-5.9"})
    assert (other.price_prompt, other.price_completion, other.window) == (None, None, None)
    assert other.cost_usd(1000, 0, 10) is None
    priced = get_profile("openai", {"model": "gpt-5.9", "price_prompt": "1", "price_completion": "2", "window": "9000"})
    assert priced.cost_usd(1_000_000, 0, 500_000) == pytest.approx(2.0)
    assert priced.window == 9000
    assert get_profile("local", {"model": "lm_small"}).cost_usd(1000, 0, 10) == 0.0
    assert get_profile("local", {"model": "lm_small"}).window == 8192


def test_cost_counts_cached_tokens_at_their_own_price() -> None:
    # gpt-5.4-mini: 0.75 a million fresh, 0.075 cached, 4.5 written.
    # 1000 read, 400 of them cached, 100 written: 600*0.75 + 400*0.075 + 100*4.5 = 450 + 30 + 450 = 930 micro-dollars.
    assert get_profile("openai").cost_usd(1000, 400, 100) == pytest.approx(930e-6)


def test_slots_of_local_follow_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, slots in ((1, 1), (2, 1), (4, 2), (8, 4), (64, 4)):
        monkeypatch.setattr(machine, "physical_cores", lambda cores=cores: cores)
        assert get_profile("local").slots == slots
    assert get_profile("local", {"slots": "3"}).slots == 3
    monkeypatch.undo()
    assert machine.physical_cores() >= 1


def test_connections() -> None:
    assert resolve_connection(get_profile("openai"), ENVIRON) == Connection("openai/gpt-5.4-mini", None, CANARY)
    assert resolve_connection(get_profile("gemini"), ENVIRON) == Connection(
        "gemini/gemini-3.1-flash-lite", None, CANARY
    )
    assert resolve_connection(get_profile("vllm"), {}) == Connection(
        "hosted_vllm/Qwen/Qwen3-4B-Instruct-2507", "http://localhost:8000/v1", None
    )
    assert resolve_connection(get_profile("ollama"), {"OLLAMA_BASE_URL": "http://box/v1"}) == Connection(
        "ollama_chat/qwen3:4b-instruct-2507", "http://box/v1", None
    )
    # A served model id may itself start with another provider's name.
    assert resolve_connection(get_profile("openai-compatible"), ENVIRON) == Connection(
        "hosted_vllm/openai/gpt-oss-20b", "http://box:9000/v1", CANARY
    )
    # The prefix may be written or left out.
    assert resolve_connection(get_profile("openai", {"model": "openai/gpt-6"}), ENVIRON).model == "openai/gpt-6"


def test_an_override_wins_over_the_environment() -> None:
    profile = get_profile("openai-compatible", {"model": "mine", "base_url": "http://other/v1"})
    assert resolve_connection(profile, ENVIRON) == Connection("hosted_vllm/mine", "http://other/v1", CANARY)


@pytest.mark.parametrize(
    ("backend", "missing", "message"),
    [
        (
            "openai",
            "OPENAI_API_KEY",
            r"backend openai: no key: OPENAI_API_KEY is not set\. Run: export OPENAI_API_KEY=",
        ),
        ("gemini", "GEMINI_API_KEY", r"backend gemini: no key: GEMINI_API_KEY is not set"),
        ("openai-compatible", "PACE_MODEL", r"no model name: PACE_MODEL is not set\. .*or pass model=NAME"),
        ("openai-compatible", "PACE_BASE_URL", r"no server address: PACE_BASE_URL is not set\. .*base_url=http://HOST"),
    ],
)
def test_what_is_missing_is_named_with_the_remedy(backend: str, missing: str, message: str) -> None:
    environ = {key: value for key, value in ENVIRON.items() if key != missing}
    with pytest.raises(MissingKeyError, match=message):
        resolve_connection(get_profile(backend), environ)
    with pytest.raises(MissingKeyError, match=message):  # set, but empty
        resolve_connection(get_profile(backend), {**environ, missing: "  "})


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"PACE_BASE_URL='localhost:8000' is not an http:// or https:// address"):
        resolve_connection(get_profile("openai-compatible"), {**ENVIRON, "PACE_BASE_URL": "localhost:8000"})


def test_options_that_are_not_set_are_left_out() -> None:
    assert Connection("m", None, None).client_options() == {}
    assert Connection("m", "http://box/v1", "k").client_options() == {"api_base": "http://box/v1", "api_key": "k"}


def test_the_key_is_never_shown() -> None:
    connection = resolve_connection(get_profile("openai"), ENVIRON)
    assert CANARY not in repr(connection)
    assert CANARY not in str(connection)
    assert CANARY not in identity(get_profile("openai"), connection)


def test_identity_tells_servers_and_models_apart() -> None:
    profile = get_profile("openai-compatible")
    first = resolve_connection(profile, ENVIRON)
    second = resolve_connection(profile, {**ENVIRON, "PACE_BASE_URL": "http://box:9001/v1"})
    assert identity(profile, first) == "hosted_vllm/openai/gpt-oss-20b@http://box:9000/v1"
    assert identity(profile, first) != identity(profile, second)
    assert (
        identity(profile, Connection("hosted_vllm/m", "http://user:pw@box/v1", None)) == "hosted_vllm/m@http://box/v1"
    )
    assert identity(get_profile("local")).startswith("local:lm_default:cc324af0")
    assert identity(get_profile("local", {"model": "lm_small"})).startswith("local:lm_small:1d961463")


@pytest.fixture
def wire() -> Iterator[tuple[str, list[tuple[str, dict[str, str], dict[str, Any]]]]]:
    """A server that notes what it is sent and answers in both dialects."""
    seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, {key.lower(): value for key, value in self.headers.items()}, body))
            reply: dict[str, Any]
            if "generateContent" in self.path:
                reply = {
                    "candidates": [{"content": {"role": "model", "parts": [{"text": "{}"}]}, "finishReason": "STOP"}],
                    "usageMetadata": {
                        "promptTokenCount": 10,
                        "cachedContentTokenCount": 4,
                        "candidatesTokenCount": 3,
                        "totalTokenCount": 13,
                    },
                }
            else:
                usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
                usage["prompt_tokens_details"] = {"cached_tokens": 4}  # type: ignore[assignment]
                message = {"role": "assistant", "content": "{}"}
                reply = {
                    "id": "1",
                    "object": "chat.completion",
                    "model": body["model"],
                    "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                    "usage": usage,
                }
            data = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("backend", "root", "path", "auth"),
    [
        ("openai", "/v1", "/v1/chat/completions", ("authorization", f"Bearer {CANARY}")),
        ("openai-compatible", "/v1", "/v1/chat/completions", ("authorization", f"Bearer {CANARY}")),
        ("vllm", "/v1", "/v1/chat/completions", ("authorization", f"Bearer {CANARY}")),
        ("ollama", "/v1", "/v1/chat/completions", None),
        ("gemini", "/v1beta", "/v1beta/models/gemini-3.1-flash-lite:generateContent", ("x-goog-api-key", CANARY)),
    ],
)
def test_each_profile_reaches_its_dialect_natively(
    backend: str, root: str, path: str, auth: tuple[str, str] | None, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, seen = wire
    # An ambient address for another tool must not change the route.
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
    profile = get_profile(backend, {"base_url": address + root})
    connection = resolve_connection(profile, {**ENVIRON, "VLLM_API_KEY": CANARY})
    lm = dspy.LM(
        connection.model,
        temperature=profile.temperature,
        **connection.client_options(),
        timeout=profile.timeout_s,
        engine="lm15",
        cache=False,
        num_retries=0,
    )
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    response = lm(
        Request(
            model=lm.model,
            system="fixed",
            messages=(Message.user("asked"),),
            config=Config(
                max_tokens=600,
                temperature=profile.temperature,
                response_format={"type": "json_schema", "name": "reply", "schema": schema, "strict": True},
            ),
        )
    )
    assert (response.usage.input_tokens, response.usage.cache_read_tokens, response.usage.output_tokens) == (10, 4, 3)
    [(sent_to, headers, body)] = seen
    assert sent_to == path
    if auth is not None:
        assert headers[auth[0]] == auth[1]
    limits = body.get("generationConfig", body)
    assert limits[profile.max_tokens_param] == 600
    assert limits.get("temperature") == profile.temperature
    if backend == "gemini":
        assert limits["responseSchema"] == schema
    else:
        assert body["model"] == connection.model.partition("/")[2]
        assert body["messages"][0] == {"role": "system", "content": "fixed"}
        assert body["response_format"]["json_schema"]["schema"] == schema
