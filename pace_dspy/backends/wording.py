"""How a signature's fields are put into words, once, in the fixed first part of a prompt."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, get_args, get_origin

import pydantic


def describe_fields(signature: Any) -> str:
    """Return the description of inputs and of the JSON object to reply with."""
    inputs = [f"[{name}] {_text(info)}" for name, info in signature.input_fields.items()]
    outputs = [
        f'"{name}": {describe_type(info.annotation)}. {_text(info)}' for name, info in signature.output_fields.items()
    ]
    return "\n".join(
        ["You get:", *inputs, "", "Reply with one JSON object and nothing else, keys in this order:", *outputs]
    )


def describe_type(annotation: Any) -> str:
    """Return a short JSON description of a type ("array of integers", '"a" or "b"', ...)."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'"{arg}"' for arg in args)
    if origin in (list, tuple, set):
        return f"array of {describe_type(args[0])}" if args else "array"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(arg) for arg in args)
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        keys = "; ".join(
            f'"{name}": {describe_type(field.annotation)}' + (f", {field.description}" if field.description else "")
            for name, field in annotation.model_fields.items()
        )
        return f"objects {{{keys}}}"
    return {str: "string", int: "integer", float: "number", bool: "true or false"}.get(annotation, "JSON value")


def _text(info: Any) -> str:
    text = str((info.json_schema_extra or {}).get("desc", "")).strip()
    return "" if text.startswith("${") else text
