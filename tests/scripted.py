"""A scripted language model: replies by stage, and a failure on any call the script does not know."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dspy.lm15 import Message, Request, Response, Usage

from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.profiles import get_profile
from pace_dspy.backends.usage import current_stage

Reply = str | dict | Exception
Script = Mapping[str, Sequence[Reply] | Callable[[str], Reply]]


class Cut(str):
    """A reply text that arrives cut off by the token limit."""


class ScriptedEngine:
    """Plays replies by stage; remembers every request it saw."""

    def __init__(self, script: Script) -> None:
        self.script = {stage: replies if callable(replies) else list(replies) for stage, replies in script.items()}
        self.requests: list[tuple[str, Request]] = []
        self.lock = threading.Lock()

    def complete(self, request: Request) -> Response:
        stage = current_stage()
        with self.lock:
            self.requests.append((stage, request))
            replies = self.script.get(stage)
            if callable(replies):
                reply = replies(prompt_of(request))
            elif replies:
                reply = replies.pop(0)
            else:
                raise AssertionError(f"the script has no reply for stage {stage!r}: {prompt_of(request)[-300:]}")
        if isinstance(reply, Exception):
            raise reply
        text = json.dumps(reply) if isinstance(reply, dict) else str(reply)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(text or " "),
            finish_reason="length" if isinstance(reply, Cut) else "stop",
            usage=Usage(input_tokens=100, output_tokens=10, cache_read_tokens=40),
        )

    def calls(self, stage: str) -> int:
        return sum(name == stage for name, _ in self.requests)


def prompt_of(request: Request) -> str:
    """The whole prompt as text, system part first."""
    return "\n".join([str(request.system or ""), *(message.text or "" for message in request.messages)])


def scripted_lm(script: Script, *, reply_cache: Any = None, **profile: Any) -> BackendLM:
    """A `BackendLM` that plays ``script``; ``lm.engine`` is the `ScriptedEngine`."""
    fields = {"model": "scripted", "base_url": "http://127.0.0.1:1/v1", "num_retries": 0, "window": 8192, **profile}
    chosen = get_profile("openai-compatible", fields)
    return BackendLM(
        chosen, "openai/scripted", identity="scripted@test", reply_cache=reply_cache, engine=ScriptedEngine(script)
    )


ANSWER = {"response": "It can be done. Nothing stands against it.", "cited": [1], "decision": "non_conflict"}
GOOD = {
    "planner": lambda _: {"cues": [{"direction": "time", "why": "another plan", "anchors": ["Friday"]}]},
    "views": lambda _: {"queries": ["other plans on Friday", "who is vegan"]},
    "pre_filter": lambda _: {"keep": [1, 2, 3]},
    "post_filter": lambda _: {"selected": [2, 1]},
    "answerer": lambda _: ANSWER,
}
"""A script in which every agent answers well."""
