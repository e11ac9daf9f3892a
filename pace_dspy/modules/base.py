"""What all agents share: one predictor, one stage name, and a defined result when the model call fails for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.backends.budget import largest_fitting
from pace_dspy.backends.lm import require_lm
from pace_dspy.backends.usage import record_fallback, record_trim, stage_scope
from pace_dspy.errors import ReplyError
from pace_dspy.types import Stage


class StageAgent(dspy.Module):
    """One agent of the program around one ``dspy.Predict``.

    Args:
        stage: Name of the stage in traces, usage and fallbacks.
        signature: The agent's own signature.
        reply_tokens: Tokens reserved for the reply.
    """

    def __init__(self, stage: Stage, signature: type[dspy.Signature], *, reply_tokens: int) -> None:
        super().__init__()
        self.stage = stage
        self.reply_tokens = reply_tokens
        self.predict = dspy.Predict(signature, max_tokens=reply_tokens)

    def ask(self, **inputs: Any) -> dspy.Prediction | None:
        """Call the model once (and once more after an unusable reply).

        Returns:
            The prediction, or ``None`` when the reply stayed unusable; the fallback is then on record.

        Raises:
            BackendError: The backend failed; an outage is an error of the request, never a fallback.
            ConfigError: No language model is set.
        """
        try:
            return self.ask_strictly(**inputs)
        except ReplyError as exc:
            record_fallback(self.stage, exc.problem)
            return None

    def ask_strictly(self, **inputs: Any) -> dspy.Prediction:
        """Call the model like `ask`; for agents without a defined result.

        Raises:
            ReplyError: The reply stayed unusable.
            BackendError: The backend failed.
            ConfigError: No language model is set.
        """
        require_lm(self.predict.lm or dspy.settings.lm)
        with stage_scope(self.stage), dspy.context(adapter=current_adapter()):
            return self.predict(**inputs)

    def fit(self, lines: Sequence[str], field: str, **inputs: str) -> int:
        """Return how many numbered candidate lines (best first) fit the prompt budget; trimming is recorded.

        Raises:
            WindowError: Not even one fits.
        """
        lm = self.predict.lm or dspy.settings.lm
        require_lm(lm)
        adapter = current_adapter()

        def render(n: int) -> list[dict[str, Any]]:
            messages: list[dict[str, Any]] = adapter.format(
                self.predict.signature, self.predict.demos, {**inputs, field: "\n".join(lines[:n])}
            )
            return messages

        shown = largest_fitting(lm, render, len(lines), self.reply_tokens)
        if shown < len(lines):
            record_trim(self.stage, len(lines), shown)
        return shown


def numbered(texts: Sequence[str]) -> list[str]:
    """Return candidates as prompt lines ``[1] text``: short numbers, one line each whatever the text holds."""
    return [f"[{number}] {' '.join(text.split())}" for number, text in enumerate(texts, start=1)]


def chosen_positions(numbers: Sequence[int], offered: int, limit: int) -> list[int]:
    """Map the model's numbers back to positions: unknown ones dropped, repeats removed (first kept), then cut.

    Args:
        numbers: Numbers as replied, from 1.
        offered: How many candidates were shown.
        limit: Most positions to return.

    Returns:
        Positions from 0, in the model's order.
    """
    return list(dict.fromkeys(number - 1 for number in numbers if 1 <= number <= offered))[:limit]


def current_adapter() -> PaceAdapter:
    """Return the `PaceAdapter` of the DSPy settings, or a new one: agents always speak through our boundary."""
    current = dspy.settings.adapter
    return current if isinstance(current, PaceAdapter) else PaceAdapter()
