"""JSON schemas of output fields, in the dialect a backend accepts.

OpenAI wants every property required and ``additionalProperties: false``; Gemini refuses ``additionalProperties``
and references. Schemas are therefore written out without ``$ref`` and then fitted to the profile's form.
"""

from __future__ import annotations

from typing import Any

from pace_dspy.backends.reply import output_model

_DROP = {"title", "default", "examples"}


def output_schema(signature: Any, *, additional_properties: bool = True) -> dict[str, Any] | None:
    """Return a self-contained schema of a signature's output fields.

    Args:
        signature: A ``dspy.Signature`` class.
        additional_properties: Write ``additionalProperties: false`` on objects (False for dialects that refuse it).

    Returns:
        The schema, or ``None`` when a field is an open-ended mapping, which strict schemas cannot express.
    """
    schema = output_model(signature).model_json_schema()
    definitions = schema.pop("$defs", {})
    try:
        plain: dict[str, Any] = _plain(schema, definitions, additional_properties)
    except _OpenMappingError:
        return None
    return plain


class _OpenMappingError(Exception):
    pass


def _plain(node: Any, definitions: dict[str, Any], additional: bool) -> Any:
    if isinstance(node, list):
        return [_plain(item, definitions, additional) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _plain(definitions[node["$ref"].rsplit("/", 1)[-1]], definitions, additional)
    if node.get("type") == "object" and "properties" not in node:
        raise _OpenMappingError
    if "const" in node:
        node = {**{key: value for key, value in node.items() if key != "const"}, "enum": [node["const"]]}
    out = {
        key: {name: _plain(sub, definitions, additional) for name, sub in value.items()}
        if key == "properties"
        else _plain(value, definitions, additional)
        for key, value in node.items()
        if key not in _DROP
    }
    if out.get("type") == "object":
        out["required"] = list(out["properties"])
        if additional:
            out["additionalProperties"] = False
        else:
            out.pop("additionalProperties", None)
    return out
