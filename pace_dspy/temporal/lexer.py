"""Text to tokens: one character per token, so that grammar rules are plain regular expressions (ours)."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

from pace_dspy.temporal import lexicon

_KINDS: dict[str, str] = {}
_HOLIDAY = "|".join(re.escape(name) for name in sorted(lexicon.HOLIDAYS, key=len, reverse=True))
_TOKEN = re.compile(
    rf"(?P<iso>(?<![\w-])\d{{4}}-\d{{2}}-\d{{2}}(?:T\d{{2}}:\d{{2}}(?::\d{{2}})?)?(?![\w-]))"
    r"|(?P<clock>(?<![\w:.])(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))?\s?(?P<ampm>[ap]m\b|[ap]\.m\b\.?)(?!\w)"
    r"|(?<![\w:.,])\d{1,2}:\d{2}(?::\d{2})?(?![\w:]))"
    r"|(?P<slash>(?<![\w/.])\d{1,2}(?:/\d{1,2}(?:/\d{4})?|\.\d{1,2}\.\d{4})(?![\w/]))"
    r"|(?P<ord>(?<![\w.,])\d{1,2}(?:st|nd|rd|th)\b)"
    r"|(?P<num>\d+(?:[.,]\d+)*)"
    rf"|(?P<holiday>\b(?:{_HOLIDAY})\b)"
    r"|(?P<word>(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-[a-z]+|[^\W\d_]+(?:['’][^\W\d_]+)?)"
    r"|(?P<punct>[,\-–—.!?;:()\n/])",
    re.IGNORECASE,
)
_PUNCTUATION = {",": "COMMA", "-": "DASH", "–": "DASH", "—": "DASH", ":": "COLON", "/": "OVER"} | dict.fromkeys(
    ".!?;\n", "STOP"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, number or sign, or a piece already understood.

    Attributes:
        kind: One character (see ``kind``).
        value: What it stands for.
        start: First character position.
        end: Position after the last character.
    """

    kind: str
    value: Any
    start: int
    end: int


def kind(name: str) -> str:
    """Return the one-character code of a token kind, made on first use; lower-case names are literal words."""
    if name not in _KINDS:
        _KINDS[name] = chr(0x4E00 + len(_KINDS))
        if name.islower():
            lexicon.VOCABULARY.setdefault(name, (name, name))
    return _KINDS[name]


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text, unknown words as ``WORD``."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        group, raw, start, end = match.lastgroup or "", match.group(), match.start(), match.end()
        name, value = "WORD", None
        if group == "word":
            word = raw.lower().replace("’", "'")
            if word.endswith("'s") and word not in lexicon.VOCABULARY:
                word, end = word[:-2], end - 2
            name, value = lexicon.VOCABULARY.get(word, ("WORD", word))
            if name in ("WORD", "MONTH"):
                name, value = _short_form(text[start:end], word, name, value, tokens, text[end : end + 6])
        elif group == "punct":
            name, value = _PUNCTUATION.get(raw, "SIGN"), raw
            if raw == "." and tokens and tokens[-1].value in lexicon.TITLES:
                continue
        elif group == "num":
            name, value = _number(raw)
        elif group == "holiday":
            name, value = "HOLIDAY", lexicon.HOLIDAYS[raw.lower()]
        else:
            name, value = _structured(match, group, raw)
        tokens.append(Token(kind(name), value, start, end))
    return tokens


def _short_form(raw: str, word: str, name: str, value: Any, before: list[Token], after: str) -> tuple[str, Any]:
    """Months and weekdays that are also ordinary words need a capital or a number beside them."""
    beside = (bool(before) and before[-1].kind in (kind("NUM"), kind("ORD"))) or bool(re.match(r"\.?\s\d", after))
    if name == "MONTH":
        return (name, value) if beside or raw[0].isupper() or word not in ("may", "march") else ("WORD", word)
    if word in lexicon.SHORT_MONTHS and (beside or (raw[0].isupper() and word not in ("mar", "dec", "jan"))):
        return "MONTH", lexicon.SHORT_MONTHS[word]
    if word in lexicon.SHORT_WEEKDAYS and raw[0].isupper():
        leads = bool(before) and before[-1].value in ("on", "this", "next", "last", "every")
        joined = after[:1] in ("-", "–") or (bool(before) and before[-1].kind == kind("DASH"))
        if beside or leads or joined or word in ("tue", "tues", "thu", "thur", "thurs", "fri", "weds"):
            return "WEEKDAY", lexicon.SHORT_WEEKDAYS[word]
    return "WORD", word


def _number(raw: str) -> tuple[str, Any]:
    if raw.isdigit():
        if len(raw) == 4 and raw[:2] in ("19", "20") and raw.isascii():
            return "YEAR", int(raw)
        return ("NUM", int(raw)) if len(raw) <= 3 else ("WORD", raw)
    whole = re.fullmatch(r"(\d{1,2})\.(\d)", raw)
    return ("DECIMAL", float(raw)) if whole else ("WORD", raw)


def _structured(match: re.Match[str], group: str, raw: str) -> tuple[str, Any]:
    """ISO dates, clock times, slashed dates and ordinals; a bad value makes it an impossible date or a word."""
    if group == "ord":
        return "ORD", int(raw[:-2])
    if group == "iso":
        return "ISO", raw
    if group == "slash":
        return "SLASHED", tuple(int(part) for part in re.split(r"[/.]", raw))
    if match["ampm"]:
        hour, minute = int(match["hour"]), int(match["minute"] or 0)
        if not 1 <= hour <= 12 or minute > 59:
            return "WORD", raw
        return "CLOCKPM", dt.time(hour % 12 + (12 if match["ampm"][0] in "pP" else 0), minute)
    hour, minute = (int(part) for part in raw.split(":")[:2])
    if hour > 24 or minute > 59 or (hour == 24 and minute):
        return "WORD", raw
    return "CLOCK", dt.time(hour % 24, minute)
