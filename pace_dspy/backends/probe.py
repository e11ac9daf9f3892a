"""One tiny structured call to a backend, and what it tells: reachability, schema, window, speed, price."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

import dspy

from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.preflight import check_server
from pace_dspy.backends.usage import request_log
from pace_dspy.modules.base import StageAgent

REPLY_TOKENS = 80


class ReadNote(dspy.Signature):
    """Read a note and say what it is about."""

    note: str = dspy.InputField(desc="one sentence")
    summary: str = dspy.OutputField(desc="the note in other words, about twenty words")
    numbers: list[int] = dspy.OutputField(desc="whole numbers in the note, in order")
    topic: Literal["meal", "travel", "work"] = dspy.OutputField(desc="what it is about")


@dataclass(frozen=True)
class ProbeReport:
    """What one call showed.

    Attributes:
        backend: Profile name.
        model: Model as the server knows it.
        address: Server address, ``None`` for the provider's own.
        served: Models that the server lists, ``None`` when it lists none.
        window: Tokens of prompt plus reply, ``None`` when nobody knows.
        window_source: ``profile`` or ``server``, ``None`` likewise.
        schema_form: How structure was asked for.
        structured: ``first try`` or ``after a repair``.
        latency_ms: Wall time of the call or calls, the model being loaded.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written.
        tokens_per_second: Tokens written over wall time; low for a reply this short.
        price_prompt: US dollars per million prompt tokens, ``None`` when unknown.
        price_completion: The same for written tokens.
        cost_usd: Price of this call.
        retries: Attempts made again.
    """

    backend: str
    model: str
    address: str | None
    served: tuple[str, ...] | None
    window: int | None
    window_source: str | None
    schema_form: str
    structured: str
    latency_ms: float
    prompt_tokens: int
    completion_tokens: int
    tokens_per_second: float | None
    price_prompt: float | None
    price_completion: float | None
    cost_usd: float | None
    retries: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return asdict(self)


def probe(lm: BackendLM) -> ProbeReport:
    """Check a backend's server, then ask it one small question.

    Raises:
        BackendError: Whatever is wrong, as it would meet a run.
        ReplyError: The reply stayed unusable.
    """
    configured = lm.profile.window
    served = check_server(lm)
    if lm.profile.name == "local":
        lm.server.start()
    agent = StageAgent("planner", ReadNote, reply_tokens=REPLY_TOKENS)
    started = time.perf_counter()
    with request_log() as log, dspy.context(lm=lm, disable_history=True):
        agent.ask_strictly(note="Lunch with 4 colleagues at 12 on Friday; the table is booked under Ines.")
    latency_s = time.perf_counter() - started
    [usage] = log.usage()
    window, profile = lm.profile.window, lm.profile
    return ProbeReport(
        backend=profile.name,
        model=lm.model.partition("/")[2],
        address=getattr(lm.engine, "base_url", None),
        served=None if served is None else tuple(served.windows),
        window=window,
        window_source=None if window is None else "profile" if configured is not None else "server",
        schema_form=profile.schema_form,
        structured="after a repair" if usage.repairs else "first try",
        latency_ms=round(latency_s * 1000, 1),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        tokens_per_second=round(usage.completion_tokens / latency_s, 1) if usage.completion_tokens else None,
        price_prompt=profile.price_prompt,
        price_completion=profile.price_completion,
        cost_usd=usage.cost_usd,
        retries=usage.retries,
    )
