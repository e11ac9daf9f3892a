"""What a fact states that the clash check can count with: times on a day, trips, opening hours, names (ours)."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from pace_dspy.temporal.cues import GENERIC, NOT_NAMES, SHORT, TRIP
from pace_dspy.temporal.find import find_times
from pace_dspy.temporal.overlap import occurrences
from pace_dspy.temporal.records import Interval, TimeExpression

_NAME = re.compile(r"[^\W\d_][\w'’\-]*(?:\s(?:&\s)?(?=[A-Z])[\w'’\-]+)*")
_PLACE = re.compile(r"\b(?:from|to|at|in|on|reach(?:es|ing)?|near|leaves?|into|outside|of)\s+(?:the\s+)?$")
MAX_TRIP = dt.timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact read once (ours).

    Attributes:
        doc_id: The fact.
        text: Its sentence.
        times: Its time expressions.
        names: Capitalised names in it.
        places: Names that follow any preposition of place.
    """

    doc_id: str
    text: str
    times: tuple[TimeExpression, ...]
    names: frozenset[str]
    places: frozenset[str]

    @property
    def words(self) -> frozenset[str]:
        """Its content words of three letters or more, lower case, without plural endings."""
        found = {re.sub(r"s$", "", word) for word in re.findall(r"[^\W\d_]{3,}", self.text.lower())}
        return frozenset(word for word in found - GENERIC if len(word) > 4 or word not in SHORT)

    @property
    def trip(self) -> dt.timedelta | None:
        """Length of the one trip the fact speaks of, if it speaks of one."""
        lengths = [x.duration for x in self.times if x.duration is not None]
        if len(lengths) != 1 or lengths[0] > MAX_TRIP or not TRIP.search(self.text):
            return None
        return lengths[0]


def read(doc_id: str, text: str, date: dt.date | None, near: dt.date, ego: frozenset[str] = frozenset()) -> Statement:
    """Read a fact: relative words against its own date, dates without a year near ``near``; ``ego`` is no name."""
    names, places = set(), set()
    for match in _NAME.finditer(text):
        name = _clean(match.group())
        if name is None or ego & set(name.split()):
            continue
        names.add(name)
        before = text[max(0, match.start() - 20) : match.start()]
        whole = before + match.group()[: match.group().find(name)]
        if _PLACE.search(whole.lower()):
            places.add(name)
    times = find_times(text, date, near=near)
    return Statement(doc_id, text, times, frozenset(names), frozenset(places))


def _clean(raw: str) -> str | None:
    """Drop leading function words and possessive endings; ``None`` when no capitalised word is left."""
    words = [re.sub(r"['’]s?$", "", word) for word in raw.split()]
    while words and (not words[0][:1].isupper() or words[0].lower() in NOT_NAMES):
        words.pop(0)
    while words and words[-1].lower() in NOT_NAMES:
        words.pop()
    return " ".join(words) or None


def exact_times(statement: Statement, day: dt.date) -> list[Interval]:
    """Return the exact times of day that a fact puts on a day, one list entry an expression that has one reading.

    Plain weekly patterns and unanchored ones are left out: they may be a habit of somebody else, or of other weeks.
    """
    start = dt.datetime(day.year, day.month, day.day)
    whole = Interval(start, start + dt.timedelta(days=1))
    found = []
    for x in statement.times:
        if x.impossible or not x.clocks or not all(clock.exact for clock in x.clocks):
            continue
        if x.intervals and len(x.intervals) == 1 and x.intervals[0].overlaps(whole):
            found.append(x.intervals[0])
        elif not x.intervals and x.recurrence is not None and not x.ambiguous and falls(x, day):
            found.extend(occurrences(x.recurrence, whole)[:1])
    return found


def falls(x: TimeExpression, day: dt.date) -> bool:
    """Whether an anchored or nth-weekday pattern certainly falls on a day."""
    pattern = x.recurrence
    if pattern is None:
        return False
    certain = pattern.ordinals or pattern.month_days or (pattern.interval > 1 and pattern.anchor)
    start = dt.datetime(day.year, day.month, day.day)
    return bool(certain) and bool(occurrences(pattern, Interval(start, start + dt.timedelta(days=1))))
