"""What a compiled program differs in: instructions and demos by predictor. Small by construction, plain JSON.

A demo keeps the fields of its signature and nothing else (no label, gold id or persona id), and at most
`DEMO_LINES` of a candidate list; the demos of one predictor together stay under `DEMO_CHARS`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.adapters.utils import serialize_for_json

DEMO_LINES = 24
"""Most lines of a candidate list in a demo. Ours."""
DEMO_CHARS = 7_800
"""Most characters of all demos of one predictor, about 2,600 tokens: a third of the embedded model's window. Ours."""
INSTRUCTION_CHARS = 6_000
"""Longer proposed instructions are not accepted, about 1,500 tokens. Ours."""

_NUMBERED = re.compile(r"\[(\d+)\] ")


@dataclass(frozen=True)
class PredictorState:
    """Instructions and demos of one predictor, JSON-ready."""

    instructions: str
    demos: tuple[Mapping[str, Any], ...]


Snapshot = Mapping[str, PredictorState]
"""Predictor name -> state."""


def snapshot(program: dspy.Module) -> dict[str, PredictorState]:
    """Return the state of every predictor that is not frozen."""
    return {
        name: PredictorState(predictor.signature.instructions, kept_demos(predictor.signature, predictor.demos))
        for name, predictor in program.named_predictors()
    }


def apply(program: dspy.Module, state: Snapshot) -> None:
    """Write a state into the predictors of the same names, in place."""
    for name, predictor in program.named_predictors():
        if name in state:
            predictor.signature = predictor.signature.with_instructions(state[name].instructions)
            predictor.demos = [dspy.Example(**demo) for demo in state[name].demos]


def fits(state: Snapshot) -> bool:
    """Return whether every instruction is short enough to be accepted."""
    return all(len(part.instructions) <= INSTRUCTION_CHARS for part in state.values())


def to_json(state: Snapshot) -> str:
    """Return a state as canonical JSON: equal states give equal texts."""
    plain = {name: {"instructions": part.instructions, "demos": list(part.demos)} for name, part in state.items()}
    return json.dumps(plain, ensure_ascii=False, sort_keys=True)


def readable(part: PredictorState) -> list[str]:
    """Return a predictor's instructions and demos as text lines."""
    lines = part.instructions.splitlines()
    for number, demo in enumerate(part.demos, start=1):
        lines += [f"-- demo {number}", *demo_lines(demo)]
    return lines


def demo_lines(demo: Mapping[str, Any]) -> list[str]:
    """Return a demo as text lines, one headed part a field."""
    lines: list[str] = []
    for field, value in demo.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [f"[{field}]", *(f"  {line}" for line in text.splitlines())]
    return lines


def changes(before: Snapshot, after: Snapshot, names: tuple[str, str]) -> dict[str, list[str]]:
    """Return what one program says otherwise than another, as unified diff lines by predictor; empty where equal.

    Args:
        before: One program.
        after: The other one.
        names: What the two are called.
    """
    return {
        name: list(
            difflib.unified_diff(
                readable(before[name]) if name in before else [],
                readable(after[name]) if name in after else [],
                *names,
                lineterm="",
            )
        )
        for name in dict.fromkeys((*before, *after))
    }


def kept_demos(signature: Any, demos: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """Return demos cleaned and shortened, the first ones that fit the limit; applying it again changes nothing."""
    kept: list[dict[str, Any]] = []
    room = DEMO_CHARS
    for demo in demos:
        short = short_demo(signature, demo)
        room -= len(json.dumps(short, ensure_ascii=False))
        if room < 0:
            break
        if any(name in short for name in signature.output_fields):
            kept.append(short)
    return tuple(kept)


def short_demo(signature: Any, demo: Any) -> dict[str, Any]:
    """Return the fields of a demo that its signature has, JSON-ready, with long candidate lists cut.

    Lines whose numbers the outputs name stay, then the first others; numbers are given anew in inputs and outputs.
    """
    fields = {name: serialize_for_json(demo[name]) for name in signature.fields if name in demo}
    listed = [name for name in signature.input_fields if _is_long_list(fields.get(name))]
    chosen = [name for name in signature.output_fields if _is_numbers(fields.get(name))]
    if len(listed) != 1 or not chosen:
        return fields
    lines = str(fields[listed[0]]).splitlines()
    wanted = {number for name in chosen for number in fields[name]}
    numbers = [int(match[1]) if (match := _NUMBERED.match(line)) else 0 for line in lines]
    others = [number for number in numbers if number not in wanted]
    keep = [number for number in numbers if number in wanted][:DEMO_LINES]
    stay = {*keep, *others[: DEMO_LINES - len(keep)]}
    renamed = {old: new for new, old in enumerate([number for number in numbers if number in stay], start=1)}
    short = [
        f"[{renamed[number]}] {line.split('] ', 1)[1]}"
        for number, line in zip(numbers, lines, strict=True)
        if number in renamed
    ]
    mapped = {name: [renamed[number] for number in fields[name] if number in renamed] for name in chosen}
    return {**fields, listed[0]: "\n".join(short), **mapped}


def same(before: Snapshot, after: Snapshot) -> bool:
    """Return whether two states are equal."""
    return to_json(before) == to_json(after)


def _is_long_list(value: Any) -> bool:
    lines: Sequence[str] = value.splitlines() if isinstance(value, str) else ()
    return len(lines) > DEMO_LINES and all(_NUMBERED.match(line) for line in lines)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(number, int) for number in value)
