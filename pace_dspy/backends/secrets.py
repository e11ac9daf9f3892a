"""The keys in the environment, so that everything written for others can be cleaned of them."""

from __future__ import annotations

from collections.abc import Mapping

from pace_dspy.backends.profile_table import PROFILES

ENDINGS = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
MIN_LENGTH = 8


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of all key variables that are set, longest first; very short values are no keys.

    Args:
        environ: Such as ``os.environ``.
    """
    names = {profile.key_env for profile in PROFILES.values() if profile.key_env}
    names |= {name for name in environ if name.upper().endswith(ENDINGS)}
    values = {environ.get(name, "").strip() for name in names}
    return tuple(sorted((value for value in values if len(value) >= MIN_LENGTH), key=len, reverse=True))
