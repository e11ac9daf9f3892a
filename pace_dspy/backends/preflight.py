"""What would fail on every request, found before the first one is spent: address, key, model, window."""

from __future__ import annotations

from typing import Any

import dspy

from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.backends.budget import MESSAGE_OVERHEAD_TOKENS, estimate_tokens, prompt_tokens, reply_room
from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.served import Served, listed, read_served
from pace_dspy.errors import BadSettingError, WindowError
from pace_dspy.modules.base import StageAgent

_INPUT_CHARS = 160
"""Length of an ordinary input, such as a request or one fact. Ours."""


def preflight(lm: BackendLM | None, program: dspy.Module) -> None:
    """Check every model that a program will ask, and take over the window that its server names.

    Args:
        lm: The model of stages that have none of their own; ``None`` checks only the others.
        program: The program, with its models attached.

    Raises:
        BackendError: The server cannot be reached, refuses the key, or does not serve the model; says what it serves.
        WindowError: Instructions, one candidate and the reply of some stage do not fit the window; names the stage
            and the window that would do.
        WeightsError: The weights of an embedded model cannot be had.
    """
    agents = [part for _, part in program.named_sub_modules(type_=StageAgent)]
    asked = [(agent, agent.predict.lm or lm) for agent in agents]
    seen: list[BackendLM] = []
    for model in (lm, *(its for _, its in asked)):  # lm too: a program such as ReAct has no agents of ours
        if isinstance(model, BackendLM) and model not in seen:
            seen.append(model)
            check_server(model)
    for model in seen:
        model.warm_up()
        check_window(model, [agent for agent, its in asked if its is model])


def check_server(lm: BackendLM) -> Served | None:
    """Ask the server what it serves; a window that it names becomes the model's, unless one is configured.

    Returns:
        What it serves, ``None`` when it does not say.

    Raises:
        BackendError: See `preflight`.
    """
    served = read_served(lm)
    if served is None or not served.windows:
        return served
    model = lm.model.partition("/")[2]
    name = served.find(model)
    if name is None:
        raise BadSettingError(
            f"the server does not serve this model; it serves {listed(served.windows)}",
            backend=lm.profile.name,
            model=model,
            parameter="model",
            remedy=f"Use --set model={next(iter(served.windows))}",
        )
    window = served.windows[name]
    if window is not None and lm.profile.window is None:
        lm.profile = lm.profile.model_copy(update={"window": window})
    elif window is not None and (lm.profile.window or 0) > window:
        raise BadSettingError(
            f"window={lm.profile.window} is more than the {window} tokens that the server offers",
            backend=lm.profile.name,
            model=model,
            parameter="window",
            remedy=f"Use --set window={window}",
        )
    return served


def check_window(lm: BackendLM, agents: list[StageAgent]) -> None:
    """Refuse a window in which some agent could not be asked at all.

    Raises:
        WindowError: One message about the agent that needs most.
    """
    window = lm.profile.window
    if window is None or not agents:
        return
    needs = {agent.stage: _least(lm, agent, window) for agent in agents}
    stage = max(needs, key=needs.__getitem__)
    if needs[stage] > window:
        raise WindowError(
            f"a window of {window} tokens is too small: stage {stage} needs about {needs[stage]} "
            f"for its instructions, one candidate and the reply",
            backend=lm.profile.name,
            model=lm.model.partition("/")[2],
            parameter="window",
            remedy=f"Use a window of {needs[stage]} tokens or more (four times that leaves room for the evidence)",
        )


def _least(lm: BackendLM, agent: StageAgent, window: int) -> int:
    """Return the tokens of the shortest call; exact counts only when the estimate alone would refuse the window."""
    predict = agent.predict
    inputs = dict.fromkeys(predict.signature.input_fields, "word " * (_INPUT_CHARS // 5))
    messages: list[dict[str, Any]] = PaceAdapter().format(predict.signature, predict.demos, inputs)
    room = reply_room(lm, agent.reply_tokens)
    estimate = room + sum(estimate_tokens(message["content"]) + MESSAGE_OVERHEAD_TOKENS for message in messages)
    return estimate if estimate <= window else room + prompt_tokens(lm, messages)
