"""Backends as an experiment lists them: a profile with settings of its own, so that one may stand there twice.

On the command line ``PROFILE`` or ``PROFILE:KEY=VALUE,KEY=VALUE``; ``name=TEXT`` among the settings says how it is
called in folders, tables and the report. In the experiment's file::

    [[backends]]
    backend = "vllm"
    name = "our 4B"  # may be left out
    settings = { base_url = "http://127.0.0.1:8011/v1", model = "small" }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from pace_dspy.backends.overrides import flatten, own_settings, parse_settings
from pace_dspy.backends.profiles import BackendProfile, get_profile
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.plan import NO_BACKEND

NAME = "name"
Setting = str | int | float | bool


class EntrySpec(BaseModel):
    """One ``[[backends]]`` table.

    Attributes:
        backend: Profile, or ``none``.
        name: How it is called; made of the settings when empty.
        settings: Changed profile fields, ``answer`` with those of the answerer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: str
    name: str = ""
    settings: dict[str, Setting | dict[str, Setting]] = Field(default_factory=dict)


@dataclass(frozen=True)
class BackendEntry:
    """A backend of an experiment.

    Attributes:
        backend: Profile, or ``none``.
        settings: ``KEY=VALUE`` texts, on top of ``--set``.
        name: How the user calls it, empty for a name made of the settings.
    """

    backend: str
    settings: tuple[str, ...] = ()
    name: str = ""

    @property
    def label(self) -> str:
        """How it is shown: its name, or the profile with what distinguishes it (``local lm_small``)."""
        shown = [_shown(*setting.partition("=")[::2]) for setting in self.settings]
        return self.name or " ".join([self.backend, *shown])

    def profile(self) -> BackendProfile:
        """Return the profile with the settings of its own model.

        Raises:
            ConfigError: See `get_profile`.
        """
        return get_profile(self.backend, own_settings(parse_settings(self.settings)))


def parse_entry(text: str, source: str = "--backend") -> BackendEntry:
    """Read ``PROFILE[:KEY=VALUE,...]``.

    Args:
        text: The text.
        source: Where it comes from, for messages.

    Raises:
        ConfigError: Another form, an unknown profile or setting, or a value of the wrong kind.
    """
    backend, _, rest = text.strip().partition(":")
    items = [item.strip() for item in rest.split(",") if item.strip()]
    names = [item.partition("=")[2].strip() for item in items if item.partition("=")[0].strip() == NAME]
    settings = [item for item in items if item.partition("=")[0].strip() != NAME]
    place = f"{source} {backend}"
    return _checked(backend, parse_settings(settings, place, ":"), names[-1] if names else "", place)


def entries_of(specs: Sequence[EntrySpec], source: str) -> tuple[BackendEntry, ...]:
    """Return the backends of an experiment's file.

    Raises:
        ConfigError: As `parse_entry`.
    """
    found = []
    for spec in specs:
        place = f"{source}: backend {spec.backend}"
        found.append(_checked(spec.backend, flatten(spec.settings, place), spec.name, place))
    return tuple(found)


def distinct(entries: Sequence[BackendEntry]) -> tuple[BackendEntry, ...]:
    """Return the entries without repeats.

    Raises:
        ConfigError: Two different ones have the same name, or would share their folders.
    """
    unique = tuple(dict.fromkeys(entries))
    counts = Counter(slug(entry.label) for entry in unique)
    for entry in unique:
        if counts[slug(entry.label)] > 1:
            raise ConfigError(
                f"two different backends are called {entry.label!r}; give one a name of its own, such as "
                f"--backend {entry.backend}:...,{NAME}=OTHER"
            )
    return unique


def slug(text: str) -> str:
    """Return a text as part of a folder's name."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text)


def _checked(backend: str, settings: Mapping[str, str], name: str, source: str) -> BackendEntry:
    if not name.isprintable():
        raise ConfigError(f"{source}: name must be printable text (received {name!r})")
    if backend == NO_BACKEND:
        if settings:
            raise ConfigError(f"{source}: {NO_BACKEND} has no settings; name a backend profile")
    else:
        get_profile(backend, own_settings(settings))
    return BackendEntry(backend, tuple(f"{key}={value}" for key, value in settings.items()), name)


def _shown(key: str, value: str) -> str:
    if key == "model":
        return value.rpartition("/")[2]
    return urlsplit(value).netloc.rpartition("@")[2] if key == "base_url" else f"{key}={value}"
