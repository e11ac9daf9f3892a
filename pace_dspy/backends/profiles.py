"""Backend profiles: picking a row of the table, changing single fields, and resolving address and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlunsplit

from pydantic import ValidationError

from pace_dspy.backends import weights
from pace_dspy.backends.addresses import address_parts, check_address
from pace_dspy.backends.batch_profile import BATCH, batch_base
from pace_dspy.backends.machine import default_slots
from pace_dspy.backends.profile_table import PROFILES, BackendProfile
from pace_dspy.errors import ConfigError, MissingKeyError

__all__ = [
    "PROFILES",
    "BackendProfile",
    "Connection",
    "get_profile",
    "identity",
    "override_fields",
    "resolve_connection",
]

FIXED_FIELDS = ("name", "summary", "params", "schema_note")
"""Fields that describe the backend and cannot be overridden."""
_OF_THE_MODEL = ("price_prompt", "price_cached", "price_completion")


@dataclass(frozen=True)
class Connection:
    """Where a request goes.

    Attributes:
        model: DSPy model string, provider prefix included.
        base_url: Address of the server, ``None`` for the provider's own.
        api_key: The key, ``None`` when there is none. Never shown.
    """

    model: str
    base_url: str | None
    api_key: str | None = field(repr=False)

    def client_options(self) -> dict[str, str]:
        """Return ``api_base`` and ``api_key`` for ``dspy.LM``, left out where not set.

        lm15 refuses an explicit ``api_key=None``; left out, keyless servers get its placeholder.
        """
        options = {"api_base": self.base_url, "api_key": self.api_key}
        return {name: value for name, value in options.items() if value is not None}


def override_fields() -> tuple[str, ...]:
    """Return the names that `get_profile` accepts as overrides."""
    return tuple(name for name in BackendProfile.model_fields if name not in FIXED_FIELDS)


def get_profile(name: str, overrides: Mapping[str, Any] | None = None) -> BackendProfile:
    """Return a profile, with single fields replaced.

    A replaced ``model`` loses the prices of the table (they belong to the default model) and, for hosted models, the
    window, unless they are given too. Without ``slots``, ``local`` takes what the machine's cores allow.

    Args:
        name: A name of `PROFILES`.
        overrides: Field name to value; texts such as ``"0.2"``, ``"8192"``, ``"true"``, ``"none"`` are converted.

    Raises:
        ConfigError: Unknown profile, unknown field, or a value of the wrong kind; says what is allowed.
    """
    if name not in PROFILES:
        raise ConfigError(f"unknown backend {name!r}; known: {', '.join(PROFILES)}")
    base, changes = PROFILES[name], dict(overrides or {})
    if unknown := [key for key in changes if key not in override_fields()]:
        raise ConfigError(f"backend {name}: unknown setting {unknown[0]!r}; known: {', '.join(override_fields())}")
    changes = {key: None if _means_nothing(key, value) else value for key, value in changes.items()}
    if name == BATCH:
        base = batch_base(changes)
    elif "like" in changes:
        raise ConfigError(f"backend {name}: like is for --backend {BATCH} only")
    values = base.model_dump()
    if name == "local" and "slots" not in changes:
        values["slots"] = default_slots()
    if changes.get("model", base.model) != base.model:
        followed = PROFILES[base.like or name]
        if followed.provider != "local":
            values.update(dict.fromkeys(_OF_THE_MODEL))
        if followed.key_required:
            values["window"] = None
    if changes.get("base_url") is not None:
        address_parts(str(changes["base_url"]), f"backend {name}: base_url")
    try:
        return BackendProfile.model_validate({**values, **changes})
    except ValidationError as exc:
        first = exc.errors()[0]
        setting = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"backend {name}: {setting}: {first['msg']} (received {first['input']!r})") from exc


def resolve_connection(profile: BackendProfile, environ: Mapping[str, str]) -> Connection:
    """Return model string, address and key of a profile; nothing is sent.

    An override wins over the environment, the environment over the table.

    Args:
        profile: Any profile but ``local``, which needs no connection.
        environ: Where variables are looked up, such as ``os.environ``.

    Raises:
        MissingKeyError: A needed key, address or model name is not set; names the variable and the remedy.
        ConfigError: The address cannot be used, or an address or key holds what it must not.
    """
    table = PROFILES[profile.name]
    model = profile.model
    if model == table.model:
        model = _read(environ, profile.model_env) or model
    base_url, source = profile.base_url, "base_url"
    if base_url == table.base_url and (address := _read(environ, profile.base_url_env)):
        base_url, source = address, str(profile.base_url_env)
    api_key = _read(environ, profile.key_env)
    if not model:
        raise _missing(profile, "model name", profile.model_env, "or pass model=NAME")
    if base_url is None and profile.base_url_env:
        raise _missing(profile, "server address", profile.base_url_env, "or pass base_url=http://HOST:PORT/v1")
    if api_key is None and profile.key_required:
        raise _missing(profile, "key", profile.key_env, "or choose a backend that needs none: local, ollama, vllm")
    if base_url is not None:
        check_address(base_url, f"backend {profile.name}: {source}", profile.key_env or "a proxy of your own")
    check_key(api_key, profile.name, profile.key_env)
    prefix = f"{profile.provider}/"
    return Connection(
        model=prefix + model.removeprefix(prefix), base_url=base_url and base_url.rstrip("/"), api_key=api_key
    )


def identity(profile: BackendProfile, connection: Connection | None = None) -> str:
    """Return who is asked, for cache keys: model and server address, without key or credentials.

    Two servers with the same model name have different identities. For ``local`` it is the hash of the weights.

    Args:
        profile: The profile.
        connection: Its resolved connection; not needed for ``local`` or when model and address are in the profile.
    """
    if profile.provider == "local":
        return f"local:{_weights_id(profile.model)}"
    model = connection.model if connection else f"{profile.provider}/{profile.model}"
    address = connection.base_url if connection else profile.base_url
    if not address:
        return f"{model}@default address"
    parts = address_parts(address, f"backend {profile.name}: base_url")
    return f"{model}@{urlunsplit(parts._replace(netloc=parts.netloc.rpartition('@')[2]))}"


def _means_nothing(setting: str, value: object) -> bool:
    """Return whether a value stands for ``None``; ``schema_form=none`` is a form of its own."""
    return str(value).lower() in ({"null"} if setting == "schema_form" else {"none", "null"})


def check_key(api_key: str | None, backend: str, key_env: str | None) -> None:
    """Refuse a key that no HTTP header can hold.

    Raises:
        ConfigError: It is one; the key is not shown.
    """
    if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
        raise ConfigError(
            f"backend {backend}: the key in {key_env} holds a space, line break or non-ASCII character; set it again"
        )


def _weights_id(model: str) -> str:
    if model in weights.names():
        return f"{model}:{weights.entry(model).sha256}"
    path = Path(model)
    return f"{path.resolve()}:{path.stat().st_size}:{path.stat().st_mtime_ns}" if path.is_file() else model


def _read(environ: Mapping[str, str], variable: str | None) -> str | None:
    value = environ.get(variable, "").strip() if variable else ""
    return value or None


def _missing(profile: BackendProfile, what: str, variable: str | None, otherwise: str) -> MissingKeyError:
    return MissingKeyError(
        f"no {what}: {variable} is not set",
        backend=profile.name,
        remedy=f"Run: export {variable}=..., {otherwise}",
    )
