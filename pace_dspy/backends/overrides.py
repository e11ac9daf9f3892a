"""Changing single fields of a backend profile: ``--set KEY=VALUE`` and the ``[backend]`` table of a config file.

A plain key belongs to the command's own model (``--backend``; for ``evaluate`` the judge); a key that begins with
``answer.`` to the answerer. So ``--set temperature=0.7 --set answer.model=gpt-5.4`` is, in a TOML config file::

    [backend]
    temperature = 0.7
    answer.model = "gpt-5.4"

``--set`` wins over the file. Without an ``--answer-backend``, ``answer.`` keys make a second model of the same profile,
on top of the plain keys; with one, plain keys stay with ``--backend``. Keys (API keys) never come this way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pace_dspy.backends.profiles import override_fields
from pace_dspy.errors import ConfigError

ANSWER_PREFIX = "answer."


def parse_settings(items: Sequence[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a mapping; of repeats the last holds.

    Raises:
        ConfigError: Not of that form, or an unknown key; the message lists the known ones.
    """
    settings: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set takes KEY=VALUE, such as --set temperature=0.2 (received {_key_only(item)!r})")
        settings[key.strip()] = value.strip()
    return check_settings(settings, "--set")


def flatten(table: Mapping[str, Any]) -> dict[str, str]:
    """Return a ``[backend]`` table as the same mapping that `parse_settings` gives.

    Raises:
        ConfigError: A key that no profile has, or a value that is not a text, number or truth value.
    """
    settings: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            settings |= {f"{key}.{name}": text for name, text in flatten_plain(value).items()}
        else:
            settings |= flatten_plain({key: value})
    return check_settings(settings, "backend")


def flatten_plain(table: Mapping[str, Any]) -> dict[str, str]:
    """Return a flat table with its values as texts.

    Raises:
        ConfigError: A value that is not a text, number or truth value.
    """
    for key, value in table.items():
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"backend.{key} must be a text, number or truth value, received {value!r}")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in table.items()}


def check_settings(settings: dict[str, str], source: str) -> dict[str, str]:
    """Return the settings unless a key is unknown.

    Raises:
        ConfigError: It is; the message lists the known ones. Values are not repeated: they may be secrets.
    """
    known = override_fields()
    for key in settings:
        name = key.removeprefix(ANSWER_PREFIX)
        if "key" in name and name not in known:
            raise ConfigError(f"{source} {key}: API keys come from the environment only; see `pace-dspy backends`")
        if name not in known:
            raise ConfigError(
                f"{source}: unknown setting {key!r}; known: {', '.join(known)}, "
                f"each also as {ANSWER_PREFIX}KEY for the answerer"
            )
    return settings


def own_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what applies to the command's own model."""
    return {key: value for key, value in settings.items() if not key.startswith(ANSWER_PREFIX)}


def answer_settings(settings: Mapping[str, str], *, other_backend: bool) -> dict[str, str]:
    """Return what applies to the answerer's model, empty when it needs none of its own.

    Args:
        settings: All settings.
        other_backend: Whether the answerer has a backend of its own.
    """
    mine = {key.removeprefix(ANSWER_PREFIX): value for key, value in settings.items() if key.startswith(ANSWER_PREFIX)}
    return mine if other_backend or not mine else {**own_settings(settings), **mine}


def _key_only(item: str) -> str:
    return item if len(item) <= 20 else f"{item[:17]}..."
