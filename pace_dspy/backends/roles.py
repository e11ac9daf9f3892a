"""Which model plays which role: the command's own, and one of the answerer's own when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import dspy

from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.overrides import answer_settings, own_settings
from pace_dspy.errors import ConfigError

Make = Callable[[str, Mapping[str, str]], BackendLM]
"""Builds the model of a profile with some of its fields changed, as `pace_dspy.backends.lm.make_lm` does."""


def make_role_lms(
    make: Make, backend: str, answer_backend: str | None, settings: Mapping[str, str]
) -> tuple[BackendLM, BackendLM | None]:
    """Return the model of all agents, and the answerer's where it differs.

    Args:
        make: Builds one.
        backend: Profile of all agents.
        answer_backend: Profile of the answerer, ``None`` for the same.
        settings: Changed profile fields (`pace_dspy.backends.overrides`).

    Raises:
        ConfigError: Unknown profile, setting or value.
        MissingKeyError: A needed key or address is not set.
    """
    lm = make(backend, own_settings(settings))
    its_own = answer_settings(settings, other_backend=answer_backend is not None)
    if answer_backend is None and not its_own:
        return lm, None
    return lm, make(answer_backend or backend, its_own)


def attach_answer_lm(program: dspy.Module, lm: BackendLM | None) -> None:
    """Make ``lm`` the model of the program's answerer; ``None`` changes nothing.

    Raises:
        ConfigError: The program has no answerer of its own that asks a model.
    """
    if lm is None:
        return
    predict = getattr(getattr(program, "answerer", None), "predict", None)
    if predict is None:
        raise ConfigError(
            f"the answerer cannot have a model of its own ({lm.profile.name}): this method or config has no answerer "
            "that asks one; leave out --answer-backend and answer. settings"
        )
    predict.lm = lm
