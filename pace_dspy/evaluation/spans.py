"""Spans of one request, recorded through DSPy's own callbacks as plain, bounded data. No tracking library here.

A span never holds a knowledge base: lists keep their first `LIST_LIMIT` items, texts their head and tail, objects we do
not know only the name of their type, and options of a model (where keys live) are not read at all.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import dspy
from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback
from pydantic import BaseModel

from pace_dspy.backends.profiles import BackendProfile
from pace_dspy.types import Request, Trace

SpanKind = Literal["CHAIN", "LLM", "CHAT_MODEL", "RETRIEVER", "TOOL", "AGENT"]

LIST_LIMIT = 40
"""Most items of a list in a span. Ours."""
TEXT_HEAD, TEXT_TAIL = 4000, 1500
"""Characters kept of a long text. Ours."""
_MLFLOW_NAMES = {"model": "mlflow.llm.model", "tokens": "mlflow.chat.tokenUsage", "cost": "mlflow.llm.cost"}


@dataclass
class SpanRecord:
    """One call: a module, a model call, or a step between two modules; times in nanoseconds since 1970."""

    span_id: str
    parent_id: str | None
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int = 0
    inputs: Any = None
    outputs: Any = None
    error: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestSpans:
    """All spans of one request, the root first."""

    request: Request
    spans: tuple[SpanRecord, ...]

    @property
    def preview(self) -> str:
        """One line on the outcome, for lists of traces."""
        root = self.spans[0]
        if root.error or not isinstance(root.outputs, dict):
            return f"failed: {root.error or 'no result'}"
        decision, facts = root.outputs.get("decision"), root.outputs.get("evidence") or []
        return f"{decision}: {root.outputs.get('response')}" if decision else f"no decision; {len(facts)} facts found"


class SpanRecorder(BaseCallback):
    """Records the calls of one request. Active only inside ``dspy.context(callbacks=[recorder])``."""

    def __init__(self) -> None:
        self.spans: dict[str, SpanRecord] = {}
        self._stages: dict[int, str] = {}
        self._profiles: dict[str, BackendProfile] = {}
        self._lock = threading.Lock()

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Open a span named after the stage (``planner``, ``pre_filter``) or the class."""
        if not self.spans:
            self._stages = {id(part): name for name, part in vars(instance).items() if isinstance(part, dspy.Module)}
        kind: SpanKind = "LLM" if isinstance(instance, dspy.Predict) else "CHAIN"
        kind = "AGENT" if isinstance(instance, dspy.ReAct) else kind
        span = self._open(call_id, self._stages.get(id(instance), type(instance).__name__), kind)
        span.inputs = bounded(_named_arguments(instance, inputs))
        span.attributes["module"] = type(instance).__name__
        if isinstance(instance, dspy.Predict):
            span.attributes["signature"] = bounded(str(instance.signature.signature))

    def on_module_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """Close it."""
        self._close(call_id, bounded(outputs), exception)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Open a span with the messages only; options of the model are not read."""
        span = self._open(call_id, f"model call: {instance.model}", "CHAT_MODEL")
        span.attributes["model_name"] = str(instance.model)
        profile = getattr(instance, "profile", None)
        if isinstance(profile, BackendProfile):
            self._profiles[call_id] = profile
        span.inputs = {"messages": _messages(inputs)}

    def on_lm_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """Close it with the reply's text and tokens."""
        usage = getattr(outputs, "usage", None)
        span = self.spans.get(call_id)
        if span is not None and usage is not None:
            read, wrote = int(usage.input_tokens or 0), int(usage.output_tokens or 0)
            span.attributes["tokens"] = {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}
            self._price(call_id, span, read, int(usage.cache_read_tokens or 0), wrote)
        self._close(call_id, _reply(outputs), exception)

    def on_tool_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Open a span for a tool of an agent."""
        span = self._open(call_id, f"tool: {instance.name}", "TOOL")
        span.inputs = bounded(inputs.get("kwargs", {}))

    def on_tool_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """Close it."""
        self._close(call_id, bounded(outputs), exception)

    def finish(self, request: Request, trace: Trace | None) -> RequestSpans:
        """Return all spans, with retrieval and walk (steps between two modules) filled in from the typed trace."""
        spans = list(self.spans.values())
        if spans and trace is not None:
            spans += _steps(spans, trace)
        return RequestSpans(request, tuple(spans))

    def _open(self, call_id: str, name: str, kind: SpanKind) -> SpanRecord:
        with self._lock:
            parent = self.spans.get(ACTIVE_CALL_ID.get() or "") or next(iter(self.spans.values()), None)
            span = SpanRecord(secrets.token_hex(8), parent.span_id if parent else None, name, kind, time.time_ns())
            self.spans[call_id] = span
        return span

    def _price(self, call_id: str, span: SpanRecord, read: int, cached: int, wrote: int) -> None:
        """Name model and price together: a model without a price makes MLflow ask LiteLLM, which asks the net."""
        profile = self._profiles.get(call_id)
        paid = profile.cost_usd(read, cached, 0) if profile else None
        got = profile.cost_usd(0, 0, wrote) if profile else None
        if paid is not None and got is not None:
            span.attributes["model"] = span.attributes["model_name"]
            span.attributes["cost"] = {"input_cost": paid, "output_cost": got, "total_cost": paid + got}

    def _close(self, call_id: str, outputs: Any, exception: BaseException | None) -> None:
        span = self.spans.get(call_id)
        if span is None:
            return
        span.end_ns, span.outputs = time.time_ns(), outputs
        if exception is not None:
            span.error = bounded(f"{type(exception).__name__}: {exception}")


def span_dict(span: SpanRecord, trace_id: str, scrub: Callable[[str], str]) -> dict[str, Any]:
    """Return a span in MLflow's own JSON form (schema v3).

    Args:
        span: The span.
        trace_id: ``tr-`` and 32 hex digits.
        scrub: Takes keys out of a text.
    """
    attributes = {
        "mlflow.traceRequestId": trace_id,
        "mlflow.spanType": span.kind,
        "mlflow.spanInputs": span.inputs,
        "mlflow.spanOutputs": span.outputs,
        **{_MLFLOW_NAMES.get(name, name): value for name, value in span.attributes.items()},
    }
    return {
        "trace_id": trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_id,
        "name": span.name,
        "start_time_unix_nano": span.start_ns,
        "end_time_unix_nano": span.end_ns or span.start_ns,
        "status": {"code": "ERROR" if span.error else "OK", "message": scrub(span.error or "")},
        "attributes": {name: scrub(json.dumps(value)) for name, value in attributes.items()},
        "events": [],
    }


def bounded(value: Any) -> Any:
    """Return a JSON-ready copy with long lists and texts cut; unknown objects become the name of their type."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        cut = len(value) - TEXT_HEAD - TEXT_TAIL
        return value if cut <= 0 else f"{value[:TEXT_HEAD]} [... {cut} characters ...] {value[-TEXT_TAIL:]}"
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dspy.Prediction):
        return {name: bounded(item) for name, item in value.items() if not isinstance(item, Trace)}
    if isinstance(value, BaseModel):
        return {name: bounded(getattr(value, name)) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: bounded(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): bounded(item) for name, item in list(value.items())[:LIST_LIMIT]}
    if isinstance(value, list | tuple | set | frozenset):
        items = list(value)
        more = [f"... {len(items) - LIST_LIMIT} more"] if len(items) > LIST_LIMIT else []
        return [bounded(item) for item in items[:LIST_LIMIT]] + more
    return f"<{type(value).__name__}>"


def _named_arguments(instance: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    names = [
        name for name in inspect.signature(type(instance).forward).parameters if name not in ("self", "args", "kwargs")
    ]
    return {**dict(zip(names, inputs.get("args") or (), strict=False)), **(inputs.get("kwargs") or {})}


def _messages(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    prompt, messages = inputs.get("prompt"), inputs.get("messages") or []
    if isinstance(prompt, str):
        messages = [{"role": "user", "content": prompt}]
    elif prompt is not None:  # a dspy.lm15.Request, which is what our adapter sends
        system = [{"role": "system", "content": str(prompt.system)}] if prompt.system else []
        messages = system + [{"role": str(part.role), "content": part.text or ""} for part in prompt.messages]
    return [{"role": str(part.get("role")), "content": bounded(str(part.get("content")))} for part in messages]


def _reply(outputs: Any) -> Any:
    message = getattr(outputs, "message", None)
    if message is None:
        return bounded(outputs)
    return {"choices": [{"message": {"role": "assistant", "content": bounded(message.text or "")}}]}


def _steps(spans: list[SpanRecord], trace: Trace) -> list[SpanRecord]:
    root = spans[0]
    children = sorted((span for span in spans if span.parent_id == root.span_id), key=lambda span: span.start_ns)

    def step(name: str, after: str, inputs: Any, outputs: Any) -> SpanRecord:
        before = next((span for span in children if span.name == after), None)
        start = before.end_ns if before else root.start_ns
        end = next((span.start_ns for span in children if span.start_ns >= start), root.end_ns)
        return SpanRecord(
            secrets.token_hex(8), root.span_id, name, "RETRIEVER", start, end, bounded(inputs), bounded(outputs)
        )

    steps = []
    if trace.views:
        found = {f"view {number}": hits for number, hits in enumerate(trace.hits)}
        result = {"fused": trace.fused} if trace.fused else {"hits": found}
        steps.append(step("retrieve", "views", {"views": trace.views}, result))
    if trace.seeds:
        steps.append(step("walk", "pre_filter", {"seeds": trace.seeds}, {"pool": trace.pool}))
    return steps
