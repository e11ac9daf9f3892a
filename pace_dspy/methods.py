"""Methods by name: PaceMaker and its baselines behind one call, for runs, comparisons and tests."""

from __future__ import annotations

from collections.abc import Callable

import dspy

from pace_dspy.baselines import BASELINES, BaselineProgram
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.program import PaceMakerProgram
from pace_dspy.react import REACT, ReactProgram
from pace_dspy.types import Request

METHODS: tuple[str, ...] = ("pacemaker", *BASELINES, REACT)

Program = PaceMakerProgram | BaselineProgram | ReactProgram
"""The program of any method; all have ``config``, ``answerer`` and the same ``forward``."""

CheckRequest = Callable[[Request, str, "str | None"], dspy.Prediction]
"""Takes a request, its ``kb_id`` and the persona's name; returns a prediction as `PaceMakerProgram.forward` does."""


def make_program(method: str, config: PaceMakerConfig) -> Program:
    """Return the program of a method.

    Raises:
        ConfigError: Unknown method; the message lists them.
    """
    if method == "pacemaker":
        return PaceMakerProgram(config)
    if method in BASELINES:
        return BaselineProgram(method, config)
    if method == REACT:
        return ReactProgram(config)
    raise ConfigError(f"unknown method {method!r}; methods: {', '.join(METHODS)}")


def make_check(program: Program) -> CheckRequest:
    """Return the one call that a runner makes for each request."""

    def check(request: Request, kb_id: str, persona: str | None) -> dspy.Prediction:
        inputs = {
            "request": request.query,
            "reference_date": request.reference_date,
            "kb_id": kb_id,
            "persona": persona,
        }
        if isinstance(program, BaselineProgram):
            inputs["gold_doc_ids"] = request.gold_doc_ids
        return program(**inputs)

    return check


def without_model(method: str, config: PaceMakerConfig) -> PaceMakerConfig:
    """Return the config for a run without a language model: the answerer is off.

    Raises:
        ConfigError: A stage of the method still asks a model; names the stages.
    """
    quiet = config.model_copy(update={"agents": config.agents.model_copy(update={"answerer": "off"})})
    if method == REACT:
        raise ConfigError(f"--backend none cannot run method {REACT}: its agent asks a model. Give a --backend")
    asking = quiet.agents.model_stages if method == "pacemaker" else ()
    if asking:
        raise ConfigError(
            f"--backend none cannot run method pacemaker with config {config.name!r}: its stages "
            f"{', '.join(asking)} ask a model. Give a --backend, or a config without model stages"
        )
    return quiet
