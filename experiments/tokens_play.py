"""A scripted model for counting prompts: it keeps every prompt and answers by rule, so that runs are repeatable.

The planner and the views are our rules. A filter keeps the gold facts that it is offered, then the facts that share
most words with the request: no model does that, but both sides get the same. Ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage

from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.profiles import get_profile
from pace_dspy.backends.usage import current_stage
from pace_dspy.entities.words import split_words
from pace_dspy.modules.rules import RulePlanner, TemplateViews
from pace_dspy.program import PaceMakerProgram
from pace_dspy.types import Candidate, Cue, Task, Trace

SECTIONS = ("candidates", "evidence")
"""Inputs that list facts."""
KEPT = 10
_LINE = re.compile(r"\[(\d+)\] (.*)")
_NUMBER = re.compile(r"\[(\d+)\]")

Style = Callable[[Candidate, Trace | None], str]
"""Gives the label of a fact, as it stands before its text."""


@dataclass(frozen=True)
class Prompt:
    """One prompt as it was sent.

    Attributes:
        stage: Who was asked.
        system: The fixed part.
        user: The inputs.
        listed: Facts of its list with their labels, in order; empty for a prompt without one.
    """

    stage: str
    system: str
    user: str
    listed: Mapping[str, Candidate]


class WatchedProgram(PaceMakerProgram):
    """The program, remembering what it showed last: number n of a prompt is fact n of that list."""

    shown: tuple[Candidate, ...] = ()
    reached: Trace | None = None

    def show(self, task: Task, kb: Any, reached: Trace, reader: str, facts: Any = None) -> tuple[Candidate, ...]:
        """Return the facts as the program does."""
        self.shown, self.reached = super().show(task, kb, reached, reader, facts), reached
        return self.shown


@dataclass
class Play:
    """Engine of a `dspy.LM` that plays all agents.

    Args:
        program: The program that asks.
        style: Writes labels in place of numbers, and the filters read these; ``None`` leaves our prompts as they are.
    """

    program: WatchedProgram
    style: Style | None = None
    task: Task | None = None
    gold: frozenset[str] = frozenset()
    prompts: list[Prompt] = field(default_factory=list)

    def complete(self, request: Request) -> Response:
        """Remember the prompt and answer it."""
        stage, system = str(current_stage()), str(request.system or "")
        user = "\n".join(message.text or "" for message in request.messages)
        shown = self.program.shown if any(f"[{name}]\n" in user for name in SECTIONS) else ()
        listed = shown[: sum(1 for line in user.splitlines() if _LINE.fullmatch(line))]
        labels = [f"[{number}]" for number in range(1, len(listed) + 1)]
        if self.style is not None and listed:
            labels = [self.style(candidate, self.program.reached) for candidate in listed]
            user = relabelled(user, labels)
        prompt = Prompt(stage, system, user, dict(zip(labels, listed, strict=True)))
        self.prompts.append(prompt)
        reply = json.dumps(self._reply(prompt))
        usage = Usage(input_tokens=0, output_tokens=0)
        return Response(
            id=None, model=request.model, message=Message.assistant(reply), finish_reason="stop", usage=usage
        )

    def _reply(self, prompt: Prompt) -> dict[str, Any]:
        if self.task is None:
            raise ValueError("no task is set")
        cues: Sequence[Cue] = RulePlanner()(self.task)
        if prompt.stage == "planner":
            return {"cues": [{"direction": c.direction, "why": c.why, "anchors": list(c.anchors)} for c in cues]}
        if prompt.stage == "views":
            return {"queries": [view.text for view in TemplateViews()(self.task, cues)[1:]]}
        numbers = self._chosen(prompt)
        replies: dict[str, dict[str, Any]] = {
            "pre_filter": {"keep": numbers},
            "second_look": {"useful": numbers, "missing": []},
            "post_filter": {"selected": numbers},
            "answerer": {"response": "It is as the notes say.", "cited": numbers[:1], "decision": "non_conflict"},
        }
        return replies[prompt.stage]

    def _chosen(self, prompt: Prompt) -> list[int]:
        """Return the numbers of the facts kept, found in the prompt by their labels."""
        numbers = {label: number for number, label in enumerate(prompt.listed, start=1)}
        words = word_keys(self.task.request if self.task else "")
        ranked = []
        for line in prompt.user.splitlines():
            label = line[: 1 + line.find({"[": "]", "(": ")"}.get(line[:1], "\n"))]
            if label in numbers:
                overlap = len(words & word_keys(line[len(label) :]))
                ranked.append((prompt.listed[label].doc_id not in self.gold, -overlap, numbers[label]))
        return [number for _, _, number in sorted(ranked)[:KEPT]]


def word_keys(text: str) -> set[str]:
    """Return the words of a text, folded."""
    return {word.key for word in split_words(text) if word.kind == "word"}


def relabelled(user: str, labels: Sequence[str]) -> str:
    """Return a prompt with other labels before the facts of its list, and in lines that point at them."""
    lines = []
    for line in user.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            lines.append(f"{labels[int(match[1]) - 1]} {match[2]}")
        elif line.startswith("(derived from "):
            lines.append(_NUMBER.sub(lambda found: labels[int(found[1]) - 1], line))
        else:
            lines.append(line)
    return "\n".join(lines)


def scripted_model(play: Play) -> BackendLM:
    """Return a language model that ``play`` answers for; its window has no end, so nothing is trimmed."""
    profile = get_profile("openai-compatible", {"model": "scripted", "base_url": "http://127.0.0.1:1/v1"})
    return BackendLM(profile, "openai/scripted", identity="scripted", engine=play)


def ask(play: Play, task: Task, gold: Sequence[str]) -> tuple[dspy.Prediction, list[Prompt]]:
    """Run one request and return its prediction and prompts."""
    play.task, play.gold, play.prompts = task, frozenset(gold), []
    with dspy.context(lm=scripted_model(play)):
        prediction = play.program(
            request=task.request, reference_date=task.reference_date, kb_id=task.kb_id, persona=task.persona
        )
    return prediction, play.prompts
