"""Server addresses: one check for language models and embedders, made before anything is sent. Ours."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from pace_dspy.errors import ConfigError

_CREDENTIALS = re.compile(r"//.*@", re.DOTALL)
_NOT_IN_A_HOST = frozenset('<>"{}|\\^`%')


def address_parts(address: str, source: str) -> SplitResult:
    """Return the parts of an address that a request can be sent to.

    Args:
        address: The address.
        source: Who it belongs to and where it was set, for the message.

    Raises:
        ConfigError: It is not an http(s) address with a host and, if any, a port from 1 to 65535; what may be
            credentials in it is not shown.
    """
    problem = _problem(address)
    if problem:
        raise ConfigError(f"{source}={hidden(address)!r} {problem}; use one like http://localhost:8000/v1")
    return urlsplit(address)


def check_address(address: str, source: str, key_place: str) -> None:
    """Refuse an address that cannot be used, or that holds a secret.

    Args:
        address: The address.
        source: See `address_parts`.
        key_place: Where a key belongs.

    Raises:
        ConfigError: See `address_parts`; or it holds a user, password, query or fragment.
    """
    parts = address_parts(address, source)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"{source}: the address of the server at {parts.hostname} must hold no user, password or query; "
            f"a key belongs into {key_place}"
        )


def hidden(address: str) -> str:
    """Return an address without what may be a user, password or query."""
    return re.split(r"[?#]", _CREDENTIALS.sub("//***@", address))[0]


def _problem(address: str) -> str | None:
    if any(char.isspace() or not char.isprintable() for char in address):
        return "holds a space, line break or control character"
    try:
        parts = urlsplit(address)
    except ValueError:  # such as a bracket left open
        return "cannot be read as an address"
    if parts.scheme not in {"http", "https"}:
        return "is not an http:// or https:// address"
    if not parts.hostname:
        return "names no host"
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        return "names a host that cannot exist"
    if _NOT_IN_A_HOST.intersection(parts.hostname):
        return "names a host that cannot exist"
    try:
        usable = parts.port != 0
    except ValueError:
        usable = False
    return None if usable else "has a port that is not a number from 1 to 65535"
