"""The LM boundary: one DSPy adapter that renders compact prompts, checks every reply, and asks again once.

Prompt form (ours): everything fixed - instructions, field descriptions, demos - comes first, so that the prefix
caches of vLLM and llama.cpp work; the inputs of the call come last.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import dspy
from dspy.adapters.utils import format_field_value, serialize_for_json
from dspy.lm15 import Config, Message, Request, Response
from dspy.utils.exceptions import LMError

from pace_dspy.backends.cache import reply_key
from pace_dspy.backends.lm import BackendLM, map_error
from pace_dspy.backends.reply import Unusable, raw_text, reply_text, validate
from pace_dspy.backends.schema import output_schema
from pace_dspy.backends.usage import CallRecord, current_stage, record_call
from pace_dspy.backends.wording import describe_fields
from pace_dspy.errors import ReplyError

DEFAULT_REPLY_TOKENS = 512
_SHOWN_IN_REPAIR = 2_000


class PaceAdapter(dspy.Adapter):
    """Render, call, validate, and repair once past the cache; then `ReplyError`.

    Works with any ``dspy.LM``; a `BackendLM` adds its schema form, prices, reply cache and error texts.
    """

    def format_system_message(self, signature: Any) -> str:
        """Return the fixed first part of every prompt of a signature."""
        return f"{signature.instructions.strip()}\n\n{describe_fields(signature)}"

    def format_user_message_content(
        self, signature: Any, inputs: dict[str, Any], prefix: str = "", suffix: str = "", main_request: bool = False
    ) -> str:
        """Return the inputs, one headed section each, in the signature's order."""
        sections = [
            f"[{name}]\n{format_field_value(field_info=info, value=inputs[name])}"
            for name, info in signature.input_fields.items()
            if name in inputs
        ]
        return "\n\n".join(part for part in (prefix, *sections, suffix) if part)

    def format_assistant_message_content(
        self, signature: Any, outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        """Return a demo's outputs as the JSON object that we expect of the model."""
        values = {name: outputs.get(name, missing_field_message) for name in signature.output_fields}
        return json.dumps(serialize_for_json(values), ensure_ascii=False)

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        """Validate a completion.

        Raises:
            Unusable: The reply cannot be used.
        """
        return validate(signature, completion)

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask ``lm`` and return one validated output dictionary per generation.

        Raises:
            ReplyError: The reply stayed unusable after the repair turn.
            BackendError: The backend failed; nothing is returned and nothing is invented.
        """
        messages = self.format(signature, demos, inputs)
        options = {**getattr(lm, "kwargs", {}), **lm_kwargs}
        return [self._ask(lm, signature, messages, options) for _ in range(options.get("n") or 1)]

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Run `__call__` in a worker thread."""
        return await asyncio.to_thread(self.__call__, lm, lm_kwargs, signature, demos, inputs)

    def _ask(self, lm: Any, signature: Any, messages: list[dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
        room = options.get("max_tokens") or options.get("max_completion_tokens") or DEFAULT_REPLY_TOKENS
        request = build_request(lm, signature, messages, options, room)
        key = reply_key(identity_of(lm), _request_dict(request), options.get("rollout_id"))
        cache = lm.reply_cache if isinstance(lm, BackendLM) else None
        stored = cache.get(key) if cache is not None else None
        if stored is not None:
            record_call(CallRecord(current_stage(), backend_name(lm), from_cache=True))
            return self.parse(signature, stored["text"])
        try:
            text, values = self._attempt(lm, signature, request, repair=False)
        except _Refused as first:
            again = build_request(
                lm, signature, _repair_messages(messages, first), options, room * 2 if first.cut else room
            )
            try:
                text, values = self._attempt(lm, signature, again, repair=True)
            except _Refused as second:
                raise ReplyError(
                    f"reply unusable twice: {second.reason}", raw=second.raw, backend=backend_name(lm), model=lm.model
                ) from second
        if cache is not None:
            cache.put(key, {"text": text})
        return values

    def _attempt(self, lm: Any, signature: Any, request: Request, *, repair: bool) -> tuple[str, dict[str, Any]]:
        started = time.perf_counter()
        try:
            response: Response = lm(request, cache=False)
        except LMError as exc:
            raise map_error(exc, lm) from exc
        record_call(call_record(lm, response, (time.perf_counter() - started) * 1000, repair=repair))
        try:
            text = reply_text(response)
            return text, self.parse(signature, text)
        except Unusable as exc:
            raise _Refused(str(exc), raw=raw_text(response), cut=response.finish_reason == "length") from exc


class _Refused(Exception):
    def __init__(self, reason: str, *, raw: str, cut: bool) -> None:
        super().__init__(reason)
        self.reason, self.raw, self.cut = reason, raw, cut


def build_request(
    lm: Any, signature: Any, messages: list[dict[str, Any]], options: dict[str, Any], reply_tokens: int
) -> Request:
    """Return the canonical request: system text, messages, and the profile's structured-output form."""
    profile = lm.profile if isinstance(lm, BackendLM) else None
    form = profile.schema_form if profile else "none"
    schema = None
    if form == "json_schema":
        schema = output_schema(signature, additional_properties=profile is None or profile.additional_properties)
        form = "json_schema" if schema else "json_object"
    formats: dict[str, dict[str, Any] | None] = {
        "json_schema": {"type": "json_schema", "name": "reply", "schema": schema, "strict": True},
        "json_object": {"type": "json_object"},
        "none": None,
    }
    config = Config(
        max_tokens=reply_tokens,
        temperature=options.get("temperature"),
        top_p=options.get("top_p"),
        seed=options.get("seed"),
        response_format=formats[form],
    )
    turns = tuple(
        Message.assistant(m["content"]) if m["role"] == "assistant" else Message.user(m["content"])
        for m in messages
        if m["role"] != "system"
    )
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    return Request(model=lm.model, messages=turns, system=system or None, config=config)


def identity_of(lm: Any) -> str:
    """Return who is asked: model and server address, without any key."""
    return lm.identity if isinstance(lm, BackendLM) else str(lm.model)


def backend_name(lm: Any) -> str:
    """Return the profile's name, or the model string of a plain ``dspy.LM``."""
    return lm.profile.name if isinstance(lm, BackendLM) else str(lm.model)


def call_record(lm: Any, response: Response, latency_ms: float, *, repair: bool) -> CallRecord:
    """Return the record of one call from the usage that the backend reported."""
    usage = response.usage
    read, cached, wrote = usage.input_tokens or 0, usage.cache_read_tokens or 0, usage.output_tokens or 0
    cost = lm.profile.cost_usd(read, cached, wrote) if isinstance(lm, BackendLM) else None
    return CallRecord(current_stage(), backend_name(lm), read, cached, wrote, latency_ms, repair=repair, cost_usd=cost)


def _repair_messages(messages: list[dict[str, Any]], refused: _Refused) -> list[dict[str, Any]]:
    if refused.cut or not refused.raw.strip():
        return messages
    problem = f"That reply cannot be used: {refused.reason}. Send the corrected JSON object alone."
    return [
        *messages,
        {"role": "assistant", "content": refused.raw[:_SHOWN_IN_REPAIR]},
        {"role": "user", "content": problem},
    ]


def _request_dict(request: Request) -> dict[str, Any]:
    from dspy._vendor.lm15.serde import request_to_dict

    plain: dict[str, Any] = request_to_dict(request)
    return plain
