"""The words the clash check goes by: trips, duties, changes of plan, and words that name nothing (ours).

The lists are short on purpose: a duty that is not recognised costs a note, a change that is not recognised costs a
false clash, so ``CHANGED`` is wide and ``BOUND`` narrow.
"""

from __future__ import annotations

import re

from pace_dspy.temporal.lexicon import MONTHS, NUMBERS, PARTS, UNITS, WEEKDAYS

TRIP = re.compile(
    r"\b(?:by (?:car|train|bus|tram|truck|road|bicycle|bike|ferry|boat|taxi|metro)|on foot|drive|ride|walk|journey|trip"
    r"|train|bus|tram|shuttle|ferry|coach|minutes? (?:from|away|off|apart)|hours? (?:from|away|off))\b",
    re.IGNORECASE,
)
CHANGED = re.compile(
    r"\b(?:put \w+ ?(?:\w+ ){0,4}off|put off|postpon\w+|mov(?:ed|ing) (?:to|from)|cancel\w+|swap\w*|exchang\w+|instead"
    r"|no longer|replac\w+|brought forward|resched\w+|chang\w+|takes? the (?:night|shift)|timetable|expired|was agreed"
    r"|were agreed|stands? in for|cover(?:s|ed)?|exempt\w*|video|by phone|remote\w*)\b",
    re.IGNORECASE,
)
BOUND = re.compile(
    r"\b(?:promis\w+|(?:her|his|their|my) word|pledged|must|has to|have to|bound to|obliged|committed|sworn|required"
    r"|alone|no absences|not \w+ without|without (?:her|him|me)|may not leave|no \w+ may leave)\b",
    re.IGNORECASE,
)
NOT_NAMES = frozenset(
    (*MONTHS, *WEEKDAYS, *(f"{day}s" for day in WEEKDAYS), "a", "an", "the", "on", "in", "at", "from", "to", "of",
     "by", "for", "after", "before", "until", "since", "between", "every", "each", "no", "not", "neither", "all",
     "one", "her", "his", "their", "its", "she", "he", "they", "it", "when", "while", "once", "because", "as", "and",
     "but", "if", "dr", "mr", "mrs", "ms", "i", "i'll", "i'm", "my", "book", "put", "tell", "reserve", "accept",
     "getting", "back", "am", "pm", "cooling", "fitting", "packing", "that", "this", "there", "then", "with", "please"),
)  # fmt: skip
GENERIC = frozenset(
    (*MONTHS, *WEEKDAYS, *PARTS, *UNITS, *NUMBERS, "takes", "their", "there", "which", "about", "before",
     "after", "until", "since", "every", "other", "first", "again", "would", "could", "never", "always", "least",
     "where", "while", "whose", "being", "until", "starts", "begins", "lasts", "order", "please"),
)  # fmt: skip
# Words of three or four letters that tie nothing to anything.
_SHORT_WORDS = (
    "the", "and", "for", "her", "his", "can", "you", "our", "out", "she", "him", "are", "was", "has", "had", "not",
    "but", "who", "one", "two", "all", "any", "its", "with", "that", "this", "from", "have", "been", "than", "then",
    "into", "they", "them", "when", "what", "will", "onto", "over", "also", "only", "just", "very", "may", "day",
    "off", "own", "onl", "get", "put", "tell", "book", "take", "each", "week", "hour", "year", "time", "back",
    "they", "does", "thi",
)  # fmt: skip
SHORT = frozenset(_SHORT_WORDS)
