"""What a text from outside may hold: real characters, and something to read."""

from __future__ import annotations

import unicodedata

_UNSEEN = {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}


def is_blank(text: str) -> bool:
    """Tell whether a text shows nothing: white space, control and format characters (such as U+200B) only."""
    return all(unicodedata.category(character) in _UNSEEN for character in text)


def broken_character(text: str) -> str | None:
    """Return what is wrong with a text that UTF-8 cannot hold: the first lone surrogate and its place; else ``None``.

    Such texts come from escapes in JSON, or from a command line that is not UTF-8.
    """
    for position, character in enumerate(text, start=1):
        if "\ud800" <= character <= "\udfff":
            return f"character {position} (U+{ord(character):04X}) is half of a character, so this is no valid text"
    return None
