"""The LM boundary: one DSPy adapter that renders compact prompts, checks every reply, and asks again once.

Prompt form (ours): everything fixed - instructions, field descriptions, demos - comes first, so that the prefix
caches of vLLM and llama.cpp work; the inputs of the call come last.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace
from typing import Any

import dspy
from dspy.adapters.utils import format_field_value, serialize_for_json
from dspy.lm15 import Request, Response
from dspy.utils.exceptions import ContextWindowExceededError, LMError, LMInvalidRequestError

from pace_dspy.backends.budget import more_room, require_room
from pace_dspy.backends.cache import ReplyCache, reply_key
from pace_dspy.backends.failures import map_error
from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.logprobs import CHOICES_KEY, measured
from pace_dspy.backends.noise import quiet_truncation
from pace_dspy.backends.reply import Unusable, raw_text, reply_text, validate
from pace_dspy.backends.requests import (
    backend_name,
    build_request,
    call_record,
    encodable,
    identity_of,
    request_dict,
    with_problem,
)
from pace_dspy.backends.usage import CallRecord, current_stage, record_call
from pace_dspy.backends.wording import describe_fields
from pace_dspy.errors import ReplyError, WindowError

DEFAULT_REPLY_TOKENS = 512
WORTHWHILE = 1.25
"""A cut reply is asked for again only when its limit can grow at least by this factor. Ours."""
_KEPT_RAW = 10_000


def harmless(text: str) -> str:
    """Return an input with chat control tokens broken up: llama.cpp reads ``<|im_end|>`` inside a text as real."""
    return text.replace("<|", "< |")


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
            f"[{name}]\n{harmless(format_field_value(field_info=info, value=inputs[name]))}"
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

        With the option ``logprobs`` on a backend that gives them, each also holds the probabilities of its choices
        (`pace_dspy.backends.logprobs`).

        Raises:
            ReplyError: The reply stayed unusable after the repair turn.
            BackendError: The backend failed; nothing is returned and nothing is invented.
        """
        options = {**getattr(lm, "kwargs", {}), **lm_kwargs}
        tokens = options.get("max_tokens") or options.get("max_completion_tokens") or DEFAULT_REPLY_TOKENS
        question = _Question(lm, signature, encodable(self.format(signature, demos, inputs)), options, tokens)
        rollout = options.get("rollout_id")
        return [self._ask(question, rollout if n == 0 else [rollout, n]) for n in range(options.get("n") or 1)]

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Run `__call__` in a worker thread."""
        return await asyncio.to_thread(self.__call__, lm, lm_kwargs, signature, demos, inputs)

    def _ask(self, question: _Question, rollout: object) -> dict[str, Any]:
        lm, request = question.lm, question.request()
        key = reply_key(identity_of(lm), request_dict(request), rollout)
        cache = lm.reply_cache if isinstance(lm, BackendLM) else None
        values = self._stored(cache, key, question.signature)
        if values is not None:
            record_call(CallRecord(current_stage(), backend_name(lm), from_cache=True))
            return values
        require_room(lm, question.messages, question.tokens)
        try:
            text, values = self._attempt(question, request, repair=False)
        except _Refused as first:
            text, values = self._repair(question, first)
        if cache is not None:
            cache.put(key, {"text": text, **{name: values[name] for name in (CHOICES_KEY,) if name in values}})
        return values

    def _stored(self, cache: ReplyCache | None, key: str, signature: Any) -> dict[str, Any] | None:
        stored = cache.get(key) if cache is not None else None
        if stored is None:
            return None
        try:
            extra = {CHOICES_KEY: stored[CHOICES_KEY]} if CHOICES_KEY in stored else {}
            return {**self.parse(signature, str(stored.get("text", ""))), **extra}
        except Unusable:  # written under older rules: ask anew
            return None

    def _repair(self, question: _Question, first: _Refused) -> tuple[str, dict[str, Any]]:
        """Ask once more, past the cache: with more room after a cut reply, else with the problem shown."""
        if first.cut:
            again = replace(question, tokens=more_room(question.lm, question.messages, question.tokens))
            if again.tokens < WORTHWHILE * question.tokens:
                raise question.error(f"{first.reason}, and the window has no more room", first)
        else:
            again = replace(question, messages=with_problem(question.messages, first.raw, first.reason))
        try:
            require_room(again.lm, again.messages, again.tokens)
        except WindowError as exc:
            raise question.error(f"{first.reason}, and the window has no room to ask again", first) from exc
        try:
            return self._attempt(again, again.request(), repair=True)
        except _Refused as second:
            raise question.error(f"reply unusable twice: {second.reason}", second) from second

    def _attempt(self, question: _Question, request: Request, *, repair: bool) -> tuple[str, dict[str, Any]]:
        lm, started = question.lm, time.perf_counter()
        try:
            with quiet_truncation():
                response: Response = lm(request, cache=False)
        except LMInvalidRequestError as exc:
            if exc.status is None and not isinstance(exc, ContextWindowExceededError):  # Gemini, inside a 200
                raise _Refused(f"the backend blocked the reply ({exc.message})"[:200], raw="", cut=False) from exc
            raise map_error(exc, lm) from exc
        except LMError as exc:
            raise map_error(exc, lm) from exc
        record_call(call_record(lm, response, (time.perf_counter() - started) * 1000, repair=repair))
        try:
            text = reply_text(response)
            return text, {**self.parse(question.signature, text), **measured(question.signature, response.logprobs)}
        except Unusable as exc:
            raise _Refused(str(exc), raw=raw_text(response), cut=response.finish_reason == "length") from exc


class _Refused(Exception):
    def __init__(self, reason: str, *, raw: str, cut: bool) -> None:
        super().__init__(reason)
        self.reason, self.raw, self.cut = reason, raw[:_KEPT_RAW], cut


@dataclass(frozen=True)
class _Question:
    """One call: who is asked, what, and how long the reply may be (in tokens)."""

    lm: Any
    signature: Any
    messages: list[dict[str, Any]]
    options: dict[str, Any]
    tokens: int

    def request(self) -> Request:
        return build_request(self.lm, self.signature, self.messages, self.options, self.tokens)

    def error(self, problem: str, refused: _Refused) -> ReplyError:
        return ReplyError(problem, raw=refused.raw, backend=backend_name(self.lm), model=self.lm.model)
