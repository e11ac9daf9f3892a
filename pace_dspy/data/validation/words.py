"""Words and sentences of a text, as the checks count them. Ours."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\d+(?:[-:./]\d+)*|[^\W\d_]+", re.UNICODE)
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*(?=\s+[\"'(]?[A-Z0-9]|\s*$)")
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|No|Jr|Sr|vs|e\.g|i\.e|approx|[ap]\.m)$")
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about after all also am an and any are as at be been before but by can could did do does for from "
        "get had has have he her hers him his i if in into is it its just let me my no not of off on or our "
        "out over please s she so some than that the their them then there they this to until up us was we "
        "were what when which who will with would you your ",
    )
)


def tokens(text: str) -> list[str]:
    """Return the lower-case words and numbers of a text; ``7:30`` and ``2026-03-27`` are one token each."""
    return _TOKEN.findall(text.lower())


def content_words(text: str) -> set[str]:
    """Return the tokens that carry meaning, plural and possessive endings cut off roughly."""
    return {_stem(token) for token in tokens(text) if token not in _STOP_WORDS and len(token) > 1}


def count_words(text: str) -> int:
    """Return the number of words between white space."""
    return len(text.split())


def count_sentences(text: str) -> int:
    """Return the number of sentences; common abbreviations and initials do not end one."""
    ends = [match for match in _SENTENCE_END.finditer(text) if not _is_abbreviation(text, match)]
    tail = text[ends[-1].end() :] if ends else text
    return len(ends) + bool(tail.strip())


def _is_abbreviation(text: str, end: re.Match[str]) -> bool:
    before = text[: end.start()]
    return end[0] == "." and bool(text[end.end() :].strip()) and _ABBREVIATION.search(before) is not None


def _stem(token: str) -> str:
    return token[:-1] if len(token) > 3 and token.endswith("s") and not token.endswith("ss") else token
