"""The budget of a prompt, computed before the call: prompt plus reserved reply must fit the window of one slot.

Token counts come from the backend's own tokenizer where it has one; otherwise from a careful estimate
(three characters a token, ours: English text averages four, dates and names less).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pace_dspy.backends.lm import BackendLM
from pace_dspy.errors import WindowError

MESSAGE_OVERHEAD_TOKENS = 12
CHARS_PER_TOKEN = 3.0


def count_tokens(lm: object, text: str) -> int:
    """Return the number of tokens of ``text`` for ``lm``, exact or estimated from above."""
    counter = lm.token_counter if isinstance(lm, BackendLM) else None
    return counter(text) if counter is not None else math.ceil(len(text) / CHARS_PER_TOKEN)


def prompt_tokens(lm: object, messages: Sequence[dict[str, str]]) -> int:
    """Return the tokens of a chat prompt, template overhead included."""
    return sum(count_tokens(lm, message["content"]) + MESSAGE_OVERHEAD_TOKENS for message in messages)


def prompt_limit(lm: object, reply_tokens: int) -> int | None:
    """Return the most tokens a prompt may have when ``reply_tokens`` are reserved; ``None`` without a known window."""
    window = lm.profile.window if isinstance(lm, BackendLM) else None
    return None if window is None else window - reply_tokens


def largest_fitting(
    lm: object, render: Callable[[int], Sequence[dict[str, str]]], offered: int, reply_tokens: int
) -> int:
    """Return how many of ``offered`` candidates (best first) fit the budget.

    Args:
        lm: The model that will be asked.
        render: Gives the messages that show the first ``n`` candidates.
        offered: Number of candidates.
        reply_tokens: Tokens reserved for the reply.

    Returns:
        The largest ``n <= offered`` whose prompt fits.

    Raises:
        WindowError: Not even one candidate fits.
    """
    limit = prompt_limit(lm, reply_tokens)
    if limit is None or prompt_tokens(lm, render(offered)) <= limit:
        return offered
    low, high = 0, offered - 1
    while low < high:
        middle = (low + high + 1) // 2
        if prompt_tokens(lm, render(middle)) <= limit:
            low = middle
        else:
            high = middle - 1
    if low == 0:
        profile = lm.profile if isinstance(lm, BackendLM) else None
        raise WindowError(
            f"the window of {profile.window if profile else '?'} tokens has no room for a single candidate "
            f"beside the instructions and {reply_tokens} reply tokens",
            backend=profile.name if profile else None,
            remedy="Use a backend or setting with a larger window.",
        )
    return low
