"""The table of backend profiles: how each backend is reached, what it takes, what it costs.

A profile is data. The same program runs on every row; ``--set`` or a config file overrides single fields.

How DSPy 3.4.1 reaches them (checked against its source and a recording server): ``dspy.LM("PROVIDER/MODEL",
api_base=..., api_key=..., timeout=..., engine="lm15")`` speaks natively, without LiteLLM, to

- ``openai/``: Chat Completions, ``max_completion_tokens``. ``dspy.LM`` refuses a temperature, or a constructor
  ``max_tokens`` under 16000, for GPT-5-class names: pass the reply limit with the request instead.
- ``hosted_vllm/``: any OpenAI-compatible server, ``max_tokens``; the address ends in ``/v1``.
- ``ollama_chat/``: Ollama's OpenAI-compatible endpoint, ``max_tokens``; the address ends in ``/v1``.
- ``gemini/``: ``generateContent``; the address ends in ``/v1beta``. A schema goes out as ``responseSchema``, or as
  ``responseJsonSchema`` when it holds ``additionalProperties``, which the former refuses.

Options that are ``None`` must be left out (`Connection.client_options`). With ``engine="auto"`` an ``OPENAI_BASE_URL``
in the environment would silently select LiteLLM, hence ``lm15``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Provider = Literal["local", "openai", "hosted_vllm", "ollama_chat", "gemini"]
SchemaForm = Literal["json_schema", "json_object", "none"]
ReasoningEffort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
MaxTokensParam = Literal["max_tokens", "max_completion_tokens", "maxOutputTokens"]

_MAX_TOKENS: dict[Provider, MaxTokensParam] = {
    "local": "max_tokens",
    "openai": "max_completion_tokens",
    "hosted_vllm": "max_tokens",
    "ollama_chat": "max_tokens",
    "gemini": "maxOutputTokens",
}
_COMMON = ("max_tokens", "temperature", "top_p")


class BackendProfile(BaseModel):
    """One row of the table.

    Attributes:
        name: Name of the profile.
        summary: One line for lists.
        provider: DSPy's prefix of the model string; decides the wire dialect.
        model: Model name as the server knows it, empty when only the environment can say.
        model_env: Environment variable that names the model.
        base_url: Address of the server, ``None`` for the provider's own.
        base_url_env: Environment variable with the address.
        key_env: Environment variable with the key.
        key_required: Whether a call without a key is refused beforehand.
        window: Tokens of prompt plus reply that one request may use, ``None`` when only the server knows.
        slots: Requests worth sending at the same time.
        schema_form: How structured output is asked for.
        additional_properties: Whether the schema dialect takes ``additionalProperties``.
        schema_note: What else is special about the schema dialect.
        params: Request parameters that the backend accepts.
        temperature: Sampling temperature; ``None`` sends none (models that reject a chosen one).
        reasoning_effort: How much hidden thinking is asked for; ``None`` leaves it to the model.
        thinking_tokens: Room for hidden thinking, on top of every reply's own limit.
        timeout_s: Longest wait for a reply, in seconds.
        num_retries: Retries after a failure that can pass (never after a 400).
        price_prompt: US dollars per million prompt tokens, ``None`` when unknown.
        price_cached: The same for prompt tokens served from the backend's prefix cache.
        price_completion: The same for written tokens.
        supports_logprobs: Whether token log probabilities come back.
        supports_seed: Whether a seed may be sent.
        like: For ``batch``: the profile whose parameters, schema dialect, window and model the prompts follow.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    summary: str
    provider: Provider
    model: str
    model_env: str | None = None
    base_url: str | None = Field(None, pattern=r"^https?://[^\s]+$")
    base_url_env: str | None = None
    key_env: str | None = None
    key_required: bool = False
    window: int | None = Field(None, ge=512)
    slots: int = Field(1, ge=1)
    schema_form: SchemaForm = "json_schema"
    additional_properties: bool = True
    schema_note: str = ""
    params: tuple[str, ...] = _COMMON
    temperature: float | None = Field(0.0, ge=0, le=2)
    reasoning_effort: ReasoningEffort | None = None
    thinking_tokens: int = Field(0, ge=0)
    timeout_s: float = Field(120.0, gt=0)
    num_retries: int = Field(4, ge=0)
    price_prompt: float | None = Field(None, ge=0)
    price_cached: float | None = Field(None, ge=0)
    price_completion: float | None = Field(None, ge=0)
    supports_logprobs: bool = False
    supports_seed: bool = True
    like: str | None = None

    @property
    def max_tokens_param(self) -> MaxTokensParam:
        """Name under which the reply limit goes over the wire."""
        return _MAX_TOKENS[self.provider]

    def cost_usd(self, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float | None:
        """Return the price of one call, ``None`` when the table has no price for the model.

        Args:
            prompt_tokens: Tokens read, cached ones included.
            cached_tokens: Part of ``prompt_tokens`` that the backend took from its prefix cache.
            completion_tokens: Tokens written.
        """
        if self.price_prompt is None or self.price_completion is None:
            return None
        cached_price = self.price_prompt if self.price_cached is None else self.price_cached
        fresh = prompt_tokens - cached_tokens
        return (
            fresh * self.price_prompt + cached_tokens * cached_price + completion_tokens * self.price_completion
        ) / 1e6


_TABLE: tuple[BackendProfile, ...] = (
    BackendProfile(
        name="local",
        summary="llama.cpp in this process with pinned weights; no key, no server; model=lm_default or lm_small",
        provider="local",
        model="lm_default",
        window=8192,
        schema_note="Schemas become grammars; string lengths and array sizes are enforced.",
        params=(*_COMMON, "logprobs"),
        timeout_s=900.0,
        num_retries=0,
        price_prompt=0.0,
        price_cached=0.0,
        price_completion=0.0,
        supports_logprobs=True,
    ),
    BackendProfile(
        name="openai-compatible",
        summary="any server with an OpenAI chat endpoint; PACE_BASE_URL (ends in /v1), PACE_MODEL, PACE_API_KEY",
        provider="hosted_vllm",
        model="",
        model_env="PACE_MODEL",
        base_url_env="PACE_BASE_URL",
        key_env="PACE_API_KEY",
        slots=4,
        schema_note="schema_form=json_object or none for servers without JSON schemas; "
        "provider=openai for servers that want max_completion_tokens.",
        params=(*_COMMON, "logprobs"),
        supports_logprobs=True,
    ),
    BackendProfile(
        name="openai",
        summary="OpenAI; OPENAI_API_KEY; default model of the paper",
        provider="openai",
        model="gpt-5.4-mini",
        key_env="OPENAI_API_KEY",
        key_required=True,
        window=272_000,
        slots=8,
        schema_note="Strict schemas: every property required, additionalProperties false.",
        params=("max_tokens", "reasoning_effort"),
        temperature=None,
        # Hidden thinking counts against max_completion_tokens; without room for it a reply would come back empty.
        thinking_tokens=2048,
        price_prompt=0.75,
        price_cached=0.075,
        price_completion=4.5,
    ),
    BackendProfile(
        name="gemini",
        summary="Google Gemini API; GEMINI_API_KEY; default model of the paper",
        provider="gemini",
        model="gemini-3.1-flash-lite",
        key_env="GEMINI_API_KEY",
        key_required=True,
        window=1_048_576,
        slots=8,
        additional_properties=False,
        schema_note="additionalProperties is left out; no references.",
        thinking_tokens=2048,  # as for openai: thinking counts against maxOutputTokens
        price_prompt=0.25,
        price_cached=0.025,
        price_completion=1.5,
    ),
    BackendProfile(
        name="vllm",
        summary="a vLLM server, by default on this machine; VLLM_BASE_URL, VLLM_API_KEY; default model of the paper",
        provider="hosted_vllm",
        model="Qwen/Qwen3-4B-Instruct-2507",
        base_url="http://localhost:8000/v1",
        base_url_env="VLLM_BASE_URL",
        key_env="VLLM_API_KEY",
        slots=32,
        params=(*_COMMON, "logprobs"),
        supports_logprobs=True,
    ),
    BackendProfile(
        name="ollama",
        summary="an Ollama server, by default on this machine; OLLAMA_BASE_URL",
        provider="ollama_chat",
        model="qwen3:4b-instruct-2507",
        base_url="http://localhost:11434/v1",
        base_url_env="OLLAMA_BASE_URL",
        # Ollama cuts longer prompts without a word. 4096 is its default; raise it together with OLLAMA_CONTEXT_LENGTH.
        window=4096,
        timeout_s=600.0,
        price_prompt=0.0,
        price_cached=0.0,
        price_completion=0.0,
    ),
    BackendProfile(
        name="batch",
        summary="prompts and replies in files, a stage at a time (OpenAI Batch, vLLM run-batch, anything else); "
        "like=openai, gemini, vllm, ollama, local or openai-compatible says whose model and rules they follow",
        provider="openai",
        model="gpt-5.4-mini",
        window=272_000,
        schema_note="Those of the profile in like.",
        params=("max_tokens", "reasoning_effort"),
        temperature=None,
        thinking_tokens=2048,
        num_retries=2,  # rounds after the first that a prompt without a reply goes into
        price_prompt=0.375,  # batch services ask half the price
        price_cached=0.0375,
        price_completion=2.25,
        like="openai",
    ),
)
PROFILES: dict[str, BackendProfile] = {profile.name: profile for profile in _TABLE}
"""All profiles, by name, in table order."""
