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
from dspy.lm15 import DataPart, Response, TextPart
from pydantic_core import PydanticUndefined

MAX_REPLY_CHARS = 200_000
_THINK_BLOCK = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_THINK_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)


class Unusable(ValueError):
    """A reply that cannot be used; the text is shown to the model in the repair turn."""


def reply_text(response: Response) -> str:
    """Return the answer text of a response: text parts only, thinking removed.

    Raises:
        Unusable: Cut by the token limit, blocked, empty, or far too long.
    """
    text = raw_text(response)
    if response.finish_reason == "length":
        raise Unusable("the reply was cut off by the token limit")
    if response.finish_reason == "content_filter":
        raise Unusable("the backend's content filter blocked the reply")
    if len(text) > MAX_REPLY_CHARS:
        raise Unusable(f"the reply is {len(text)} characters long, {MAX_REPLY_CHARS} are allowed")
    text = strip_thinking(text)
    if not text.strip():
        raise Unusable("the reply is empty")
    return text


def raw_text(response: Response) -> str:
    """Return what the model wrote, thinking parts left out.

    DSPy's native engine turns an answer whose schema holds an enum into a data part; it is JSON again here, so that
    every reply goes through the same checks.
    """
    parts = []
    for part in response.message.parts:
        if isinstance(part, TextPart):
            parts.append(part.text)
        elif isinstance(part, DataPart):
            parts.append(json.dumps(part.value, ensure_ascii=False))
    return "".join(parts)


def strip_thinking(text: str) -> str:
    """Remove thinking: closed blocks, a block opened in the prompt, and an unclosed block."""
    text = _THINK_BLOCK.sub("", text)
    *_, text = _THINK_CLOSE.split(text)
    return _THINK_OPEN.split(text)[0]


def json_object(text: str) -> dict[str, Any]:
    """Return the last complete top-level JSON object in ``text`` (prose and code fences around it are ignored).

    Raises:
        Unusable: There is none.
    """
    decoder = json.JSONDecoder()
    found: dict[str, Any] | None = None
    at = text.find("{")
    while at != -1:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found = value
        at = text.find("{", end)
    if found is None:
        raise Unusable("the reply holds no complete JSON object")
    return found


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
        Unusable: No JSON object, a missing field, a wrong type or a value outside the allowed set; says which.
    """
    try:
        model = output_model(signature).model_validate(json_object(text))
    except pydantic.ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Unusable(f"field {field!r}: {first['msg']}") from exc
    return {name: getattr(model, name) for name in signature.output_fields}
