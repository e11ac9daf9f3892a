"""From a raw reply to validated output fields. No repair by guessing: a reply is right or it is refused.

Ours. A reply is accepted only when the model stopped by itself, its thinking is set aside, it holds one JSON
object, and that object validates against the signature's output fields.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import pydantic
from dspy.lm15 import DataPart, Response, TextPart, ThinkingPart
from pydantic_core import PydanticUndefined

MAX_REPLY_CHARS = 200_000
_TAGS = r"(?:think|thinking|thought|reasoning|reflection)"
_THINK_BLOCK = re.compile(
    rf"<{_TAGS}>.*?</{_TAGS}>|\[THINK\].*?\[/THINK\]|◁think▷.*?◁/think▷", re.DOTALL | re.IGNORECASE
)
_THINK_CLOSE = re.compile(rf"</{_TAGS}>|\[/THINK\]|◁/think▷", re.IGNORECASE)
_THINK_OPEN = re.compile(rf"<{_TAGS}>|\[THINK\]|◁think▷", re.IGNORECASE)
_ENDED_WELL = re.compile(r"stop|eos|end", re.IGNORECASE)
"""Servers spell a natural end in many ways (``stop``, ``eos_token``, ``end_turn``, Gemini's ``STOP``)."""


class Unusable(ValueError):
    """A reply that cannot be used; the text is shown to the model in the repair turn."""


def reply_text(response: Response) -> str:
    """Return the answer text of a response: text parts only, thinking removed.

    Raises:
        Unusable: Cut by the token limit, blocked, empty, or far too long.
    """
    text = raw_text(response)
    if response.finish_reason == "length":
        thinking = has_thinking(response)
        raise Unusable("the reply was cut off by the token limit" + (" while the model was thinking" * thinking))
    if response.finish_reason == "content_filter":
        raise Unusable("the backend's content filter blocked the reply")
    ending = raw_finish_reason(response)
    if ending and not _ENDED_WELL.search(ending):
        raise Unusable(f"the reply ended with {ending[:40]!r}")
    if len(text) > MAX_REPLY_CHARS:
        raise Unusable(f"the reply is {len(text)} characters long, {MAX_REPLY_CHARS} are allowed")
    text = strip_thinking(text)
    if not text.strip():
        raise Unusable("the reply holds only thinking" if has_thinking(response) else "the reply is empty")
    return text


def has_thinking(response: Response) -> bool:
    """Return whether the model thought in the open: in a field of its own, or between tags."""
    return any(isinstance(part, ThinkingPart) for part in response.message.parts) or bool(
        _THINK_OPEN.search(raw_text(response)[:MAX_REPLY_CHARS])
    )


def raw_finish_reason(response: Response) -> str:
    """Return why the model stopped, in the server's own word; empty when it does not say.

    lm15 reads a word that it does not know (vLLM's ``abort``, Gemini's ``MALFORMED_RESPONSE``) as a natural end.
    """
    choice = _choice(response)
    return str(choice.get("finish_reason") or choice.get("finishReason") or "")


def raw_text(response: Response) -> str:
    """Return what the model wrote, thinking parts left out.

    DSPy's native engine turns an answer whose schema holds an enum into a data part (of a key named twice, the last
    value is left). So the server's own text is preferred; without it the data part becomes JSON again.
    """
    if any(isinstance(part, DataPart) for part in response.message.parts):
        message = _choice(response).get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            return content
    parts = []
    for part in response.message.parts:
        if isinstance(part, TextPart):
            parts.append(part.text)
        elif isinstance(part, DataPart):
            parts.append(json.dumps(part.value, ensure_ascii=False))
    return "".join(parts)


def _choice(response: Response) -> dict[str, Any]:
    """Return the server's own record of the reply, as it came (OpenAI's choice, Gemini's candidate)."""
    body = response.provider_data if isinstance(response.provider_data, dict) else {}
    first = next(iter(body.get("choices") or body.get("candidates") or []), None)
    return first if isinstance(first, dict) else {}


def strip_thinking(text: str) -> str:
    """Remove thinking: closed blocks, a block opened in the prompt, and an unclosed block."""
    text = _THINK_BLOCK.sub("", text)
    *_, text = _THINK_CLOSE.split(text)
    return _THINK_OPEN.split(text)[0]


def json_objects(text: str) -> list[dict[str, Any]]:
    """Return the complete top-level JSON objects in ``text``, in order (prose and code fences around are ignored).

    Raises:
        Unusable: There is none, or one names a key twice with different values.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_unambiguous)
    found: list[dict[str, Any]] = []
    at = text.find("{")
    while at != -1:
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    if not found:
        raise Unusable("the reply holds no complete JSON object")
    return found


def _encodable(value: object) -> bool:
    """Return whether a value can be written as UTF-8 (JSON may escape half a character)."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value and value[key] != item:
            raise Unusable(f"the reply names {key!r} twice")
        value[key] = item
    return value


@lru_cache(maxsize=256)
def output_model(signature: Any) -> type[pydantic.BaseModel]:
    """Return a pydantic model of a signature's output fields; extra keys in a reply are ignored."""
    fields: dict[str, Any] = {}
    for name, info in signature.output_fields.items():
        default = ... if info.default is PydanticUndefined else info.default
        fields[name] = (info.annotation, default)
    model: type[pydantic.BaseModel] = pydantic.create_model(f"{signature.__name__}Output", **fields)
    return model


def validate(signature: Any, text: str) -> dict[str, Any]:
    """Parse and validate a reply.

    Args:
        signature: A ``dspy.Signature`` class.
        text: The reply without thinking.

    Returns:
        Output field name -> value of the field's type.

    Raises:
        Unusable: No JSON object, a missing field, a wrong type, a value outside the allowed set, or two answers that
            differ (a draft and its correction: which one holds is not for us to guess); says which.
    """
    answers: list[pydantic.BaseModel] = []
    problem = ""
    for value in json_objects(text):
        if not _encodable(value):
            raise Unusable("the reply holds characters that are not valid Unicode")
        try:
            answer = output_model(signature).model_validate(value)
        except pydantic.ValidationError as exc:
            first = exc.errors(include_url=False)[0]
            problem = f"field {'.'.join(str(part) for part in first['loc'])!r}: {first['msg']}"
            continue
        if answer not in answers:
            answers.append(answer)
    if not answers:
        raise Unusable(problem)
    if len(answers) > 1:
        raise Unusable(f"the reply holds {len(answers)} different answers")
    return {name: getattr(answers[0], name) for name in signature.output_fields}
