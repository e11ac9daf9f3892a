"""The English words of time and their values: fixed tables, so that no locale is ever asked (ours)."""

from __future__ import annotations

import datetime as dt
from typing import Any

MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAY_LABELS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
PARTS = {  # first and last hour; the night runs into the next day
    "morning": (6, 12),
    "afternoon": (12, 18),
    "evening": (18, 23),
    "night": (21, 6),
}
UNITS = {
    "minute": "minutes", "min": "minutes", "hour": "hours", "hr": "hours", "h": "hours", "day": "days",
    "night": "days", "week": "weeks", "fortnight": "fortnights", "month": "months", "year": "years",
}  # fmt: skip
HOLIDAYS = {  # a fixed (month, day), or days from Easter Sunday
    "christmas eve": (12, 24), "christmas day": (12, 25), "christmas": (12, 25), "boxing day": (12, 26),
    "new year's eve": (12, 31), "new year's day": (1, 1), "halloween": (10, 31), "valentine's day": (2, 14),
    "ash wednesday": -46, "good friday": -2, "easter sunday": 0, "easter monday": 1, "easter": 0,
    "ascension day": 39, "whit monday": 50, "whitsun": 49, "pentecost": 49,
}  # fmt: skip
_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
    "twentieth",
)  # fmt: skip

NUMBERS: dict[str, int] = {word: value for value, word in enumerate(_ONES)} | _TENS
NUMBERS |= {f"{ten}-{one}": tens + n for ten, tens in _TENS.items() for n, one in enumerate(_ONES[1:10], 1)}
ORDINALS: dict[str, int] = {word: value for value, word in enumerate(_ORDINALS, 1)}
ORDINALS |= {f"twenty-{word}": 20 + n for n, word in enumerate(_ORDINALS[:9], 1)}
ORDINALS |= {"thirtieth": 30, "thirty-first": 31}

# Abbreviations that are also common words count only next to a number (see lexer).
SHORT_MONTHS = {name[:3]: i for i, name in enumerate(MONTHS, 1) if name != "may"} | {"sept": 9}
SHORT_WEEKDAYS = {name[:3]: i for i, name in enumerate(WEEKDAYS)} | {"tues": 1, "weds": 2, "thur": 3, "thurs": 3}
TITLES = frozenset({"dr", "mr", "mrs", "ms", "st", "prof", "no", "approx"})

VOCABULARY: dict[str, tuple[str, Any]] = {}
VOCABULARY |= {name: ("MONTH", i) for i, name in enumerate(MONTHS, 1)}
VOCABULARY |= {name: ("WEEKDAY", i) for i, name in enumerate(WEEKDAYS)}
VOCABULARY |= {f"{name}s": ("WEEKDAYS", i) for i, name in enumerate(WEEKDAYS)}
VOCABULARY |= {word: ("NUM", value) for word, value in NUMBERS.items()}
VOCABULARY |= {word: ("ORD", value) for word, value in ORDINALS.items()}
VOCABULARY |= {word: ("UNIT", unit) for word, unit in UNITS.items()}
VOCABULARY |= {f"{word}s": ("UNIT", unit) for word, unit in UNITS.items() if len(word) > 2}
VOCABULARY |= {word: ("PART", word) for word in PARTS}
VOCABULARY |= {f"{word}s": ("PARTS", word) for word in PARTS}
VOCABULARY |= {word: ("SEASON", month) for word, month in SEASONS.items()}
VOCABULARY |= {"noon": ("NOON", dt.time(12)), "midday": ("NOON", dt.time(12)), "midnight": ("NOON", dt.time(0))}
VOCABULARY |= {"today": ("REL", 0), "tomorrow": ("REL", 1), "yesterday": ("REL", -1)}
VOCABULARY |= {word: ("AMPM", "pm") for word in ("pm", "p.m")}
