"""Changing single fields of a backend profile: ``--set KEY=VALUE`` and the ``[backend]`` table of a config file.

A plain key belongs to the command's own model (``--backend``); a key that begins with ``answer.`` to the answerer.
Judges have settings of their own (``--judge-set``, ``--second-judge-set``). So ``--set temperature=0.7
--set answer.model=gpt-5.4`` is, in a TOML config file::

    [backend]
    temperature = 0.7
    answer.model = "gpt-5.4"

``--set`` wins over the file. Without an ``--answer-backend``, ``answer.`` keys make a second model of the same profile,
on top of the plain keys; with one, plain keys stay with ``--backend``. Keys (API keys) never come this way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pace_dspy.backends.profiles import override_fields
from pace_dspy.errors import ConfigError

ANSWER_PREFIX = "answer."


def parse_settings(items: Sequence[str], source: str = "--set", joint: str = " ") -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a mapping; of repeats the last holds.

    Args:
        items: The texts.
        source: Where they come from, for messages.
        joint: What stands between that and a setting.

    Raises:
        ConfigError: Not of that form, or an unknown key; the message lists the known ones.
    """
    settings: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            example = f"{source}{joint}temperature=0.2"
            raise ConfigError(f"{source} takes KEY=VALUE, such as {example} (received {_key_only(item)!r})")
        settings[key.strip()] = value.strip()
    return check_settings(settings, source)


def parse_own_settings(items: Sequence[str], source: str) -> dict[str, str]:
    """Return the settings of a model beside which there is no answerer, such as a judge.

    Raises:
        ConfigError: As `parse_settings`, or a key for the answerer.
    """
    settings = parse_settings(items, source)
    for key in settings:
        if key.startswith(ANSWER_PREFIX):
            raise ConfigError(f"{source} {key}: {ANSWER_PREFIX} settings are for the answerer of a run")
    return settings


def flatten(table: object, source: str = "config") -> dict[str, str]:
    """Return a ``[backend]`` table as the same mapping that `parse_settings` gives.

    Args:
        table: Profile fields, and ``answer`` with a table of its own.
        source: Where it comes from, for messages.

    Raises:
        ConfigError: Not a table, a key that no profile has, or a value that is not a text, number or truth value.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{source}: backend must be a table of profile fields, such as temperature = 0.2")
    settings: dict[str, str] = {}
    for key, value in table.items():
        inner = {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, Mapping) else {key: value}
        for name, item in inner.items():
            if not isinstance(item, str | int | float):
                raise ConfigError(f"{source}: backend.{name} must be a text, number or truth value")
            settings[name] = str(item).lower() if isinstance(item, bool) else str(item)
    return check_settings(settings, f"{source}: backend")


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
