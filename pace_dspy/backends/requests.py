"""What is sent: the canonical request of one call, in the form that the backend's profile asks for."""

from __future__ import annotations

from typing import Any

from dspy._vendor.lm15.serde import request_to_dict
from dspy.lm15 import Config, Message, Reasoning, Request, Response

from pace_dspy.backends.budget import reply_room
from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.profiles import BackendProfile
from pace_dspy.backends.schema import output_schema
from pace_dspy.backends.usage import CallRecord, current_stage

_SHOWN_IN_REPAIR = 2_000


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
    effort = profile.reasoning_effort if profile else None
    config = Config(
        max_tokens=reply_room(lm, reply_tokens),
        temperature=_accepted(profile, options, "temperature"),
        top_p=_accepted(profile, options, "top_p"),
        seed=options.get("seed") if profile is None or profile.supports_seed else None,
        reasoning=Reasoning(effort=effort) if effort else None,
        response_format=formats[form],
        logprobs=options.get("logprobs") if profile and profile.supports_logprobs else None,
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


def _accepted(profile: BackendProfile | None, options: dict[str, Any], name: str) -> Any:
    """Return an option, or ``None`` when the profile says that the backend refuses it (an optimizer may set it)."""
    wanted = profile is None or name in profile.params or getattr(profile, name, None) is not None
    return options.get(name) if wanted else None


def with_problem(messages: list[dict[str, Any]], raw: str, reason: str) -> list[dict[str, Any]]:
    """Return the prompt of the repair turn: the refused reply and why, or a note when there was no reply to show."""
    problem = f"cannot be used: {reason}. Send the JSON object alone."
    if not raw.strip():
        *before, last = messages
        return [*before, {**last, "content": f"{last['content']}\n\n(Your last reply {problem})"}]
    return [
        *messages,
        {"role": "assistant", "content": _clean(raw[:_SHOWN_IN_REPAIR])},
        {"role": "user", "content": f"That reply {problem}"},
    ]


def encodable(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages without half characters, which no backend could be sent."""
    return [{**message, "content": _clean(message["content"])} for message in messages]


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode()


def request_dict(request: Request) -> dict[str, Any]:
    """Return a request as JSON-ready data, for cache keys."""
    plain: dict[str, Any] = request_to_dict(request)
    return plain
