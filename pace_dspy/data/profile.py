"""The ego's name in a persona's profile. Paper: PACE release, ``spec.demographic.full_name``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pace_dspy.data.schema import to_plain

_PATH = ("spec", "demographic", "full_name")


def find_full_name(profile: Mapping[str, Any]) -> str | None:
    """Return ``spec.demographic.full_name``; the record may be nested one level deeper and may be JSON text.

    Args:
        profile: A row of ``profiles.parquet`` or the content of ``profile/<case_id>.json``.

    Returns:
        The name, or ``None`` when the profile has none.
    """
    plain: dict[str, Any] = to_plain(profile)
    for candidate in (plain, *plain.values()):
        value: Any = candidate
        for key in _PATH:
            value = _as_record(value).get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return None


def _as_record(value: Any) -> dict[str, Any]:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return {}
    return value if isinstance(value, dict) else {}
