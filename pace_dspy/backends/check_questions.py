"""The questions of `pace_dspy.backends.checks`: an input for every field of every agent, and ways to ask. Ours."""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Sequence
from typing import Any, Literal

import dspy
from dspy.lm15 import Config, Message, Request, Response
from dspy.utils.exceptions import LMError

from pace_dspy.backends.budget import reply_room
from pace_dspy.backends.failures import map_error
from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.noise import quiet_truncation
from pace_dspy.backends.usage import request_log
from pace_dspy.calendar import today_line
from pace_dspy.modules.base import StageAgent, numbered
from pace_dspy.types import StageUsage

_FACTS = (
    "The dinner on Friday is with Maya Lindqvist.",
    "Maya Lindqvist has been vegan since she was twelve.",
    "Hearth & Bone serves one fixed menu of meat this week and swaps nothing.",
    "Ines works from home on Fridays.",
    "Hearth & Bone closes at 10 PM.",
    "Maya's brother plays the cello.",
    "The tram to Hearth & Bone takes 15 minutes.",
    "Ines paid the rent on the first of March.",
    "Last year Ines and Maya went to Porto.",
    "The kitchen light was repaired on Monday.",
    "Ines likes to eat early.",
    "The yoga class moved to Thursday.",
)
_REQUEST = "Book a table for two at Hearth & Bone, Friday 7 to 8 PM."
SAMPLE = {
    "request": _REQUEST,
    "today": today_line(dt.date(2026, 3, 18)),
    "cues": "needs of the people involved\npresent state of the restaurant",
    "candidates": "\n".join(numbered(_FACTS)),
    "evidence": "\n".join(numbered(_FACTS[:5])),
    "persona": "Ines Carvalho",
    "gold_decision": "conflict",
    "gold_reason": "> Maya is vegan and the restaurant serves only a fixed menu of meat this week.",
    "response": "> This should not be booked: Maya eats no meat, and nothing else is served there this week.",
}
"""An input for every field of every agent."""


class PickTopic(dspy.Signature):
    """Say what a text is about."""

    text: str = dspy.InputField()
    topic: Literal["meal", "travel", "work"] = dspy.OutputField()


class CopyCode(dspy.Signature):
    """Copy the code word that the request names, letter by letter."""

    request: str = dspy.InputField(desc="a sentence with one code word in capital letters and a number")
    code: str = dspy.OutputField(desc="the code word with its number")


def ask_agent(agent: StageAgent, lm: BackendLM, **given: Any) -> tuple[dspy.Prediction, StageUsage]:
    """Ask an agent about the sample; its reply and what it cost.

    Args:
        agent: The agent.
        lm: The model.
        given: Inputs that differ from the sample's, and settings of the call (``config``).

    Raises:
        ReplyError: The reply stayed unusable.
        BackendError: The backend failed.
    """
    inputs = {name: given.pop(name, SAMPLE.get(name)) for name in agent.predict.signature.input_fields}
    with request_log() as log, dspy.context(lm=lm, disable_history=True):
        reply = agent.ask_strictly(**inputs, **given)
    [usage] = log.usage()
    return reply, usage


def ask(lm: BackendLM, request: Request) -> Response:
    """Ask without repair and return the whole response.

    Raises:
        BackendError: The backend failed.
    """
    try:
        with quiet_truncation():
            response: Response = lm(request, cache=False)
            return response
    except LMError as exc:
        raise map_error(exc, lm) from exc


def plain_request(lm: BackendLM, text: str, tokens: int) -> Request:
    """Return a request for free text of at most ``tokens``, no schema."""
    config = Config(max_tokens=reply_room(lm, tokens), temperature=lm.profile.temperature)
    return Request(model=lm.model, messages=(Message.user(text),), config=config)


def told(usage: StageUsage) -> str:
    """Return what one call took, in words."""
    cached = f" ({usage.prompt_cached_tokens} cached)" if usage.prompt_cached_tokens else ""
    how = "only after a repair" if usage.repairs else "first try"
    return f"{how}, {usage.prompt_tokens} tokens read{cached}, {usage.completion_tokens} written"


def user_turn(text: str) -> dict[str, Any]:
    """Return a chat message of the user."""
    return {"role": "user", "content": text}


def words_of(messages: Sequence[dict[str, Any]]) -> int:
    """Return the number of words of a prompt: no tokenizer makes fewer tokens."""
    return sum(len(message["content"].split()) for message in messages)


def unseen_words(words: int) -> str:
    """Return words that no prefix cache has seen."""
    letters = random.Random(time.time_ns())
    return " ".join("".join(letters.choices("bcdfghjklmnpqrstvwxz", k=3)) for _ in range(words))
