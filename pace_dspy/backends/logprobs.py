"""The probability of each choice of an output field, from the token log-probabilities of a reply. Ours.

The field's value is found in the reply's text; the token that tells the choices apart is compared with the
alternatives that the backend lists for its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from dspy.lm15 import TokenLogprob

TOP_TOKENS = 10
"""Alternatives asked for at each place."""
CHOICES_KEY = "choice_probabilities"
"""Key beside the output fields of a reply: field name -> choice -> probability."""


def choice_fields(signature: Any) -> dict[str, tuple[str, ...]]:
    """Return the output fields of a signature that are a choice of texts, with their choices."""
    fields = {name: info.annotation for name, info in signature.output_fields.items()}
    return {
        name: tuple(map(str, get_args(annotation)))
        for name, annotation in fields.items()
        if get_origin(annotation) is Literal
    }


def measured(signature: Any, tokens: Sequence[TokenLogprob] | None) -> dict[str, dict[str, dict[str, float]]]:
    """Return ``{CHOICES_KEY: {field: {choice: probability}}}``, empty where nothing can be told."""
    if not tokens:
        return {}
    found = {name: choice_probabilities(tokens, name, choices) for name, choices in choice_fields(signature).items()}
    told = {name: shares for name, shares in found.items() if shares is not None}
    return {CHOICES_KEY: told} if told else {}


def choice_probabilities(
    tokens: Sequence[TokenLogprob] | None, field: str, choices: Sequence[str]
) -> dict[str, float] | None:
    """Return the probability of each choice of a field; together they are 1.

    Args:
        tokens: The reply's tokens with alternatives, in order.
        field: Name of the output field; its last occurrence as a key counts.
        choices: The texts it may have.

    Returns:
        Choice -> probability in [0, 1], or ``None`` where it cannot be told: no log-probabilities, no such key, or
        choices that begin alike at the place that decides.
    """
    if not tokens:
        return None
    text = "".join(token.token for token in tokens)
    keys = list(re.finditer(rf'"{re.escape(field)}"\s*:\s*"', text))
    if not keys:
        return None
    start, end = keys[-1].end(), 0
    for token in tokens:
        begin, end = end, end + len(token.token)
        if end > start:
            break
    else:
        return None
    before = text[begin:start] if begin < start else ""
    mass = dict.fromkeys(choices, 0.0)
    listed = {alternative.token: alternative.logprob for alternative in token.top}
    for written, logprob in {**listed, token.token: token.logprob}.items():
        fitting = _choices_of(written, before, choices)
        if len(fitting) == 1:
            mass[fitting[0]] += math.exp(logprob)
    total = sum(mass.values())
    return {choice: value / total for choice, value in mass.items()} if total else None


def _choices_of(token: str, before: str, choices: Sequence[str]) -> list[str]:
    """Return the choices that a token can begin, when it starts with what stands before the value."""
    if not token.startswith(before) or len(token) == len(before):
        return []
    begun = token[len(before) :]
    return [choice for choice in choices if f'{choice}"'.startswith(begun) or begun.startswith(f'{choice}"')]
