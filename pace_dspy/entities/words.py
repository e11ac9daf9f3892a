"""Words of personal notes: tokens with their place in the sentence, light folding, stop words (ours)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<word>[^\W\d_]+(?:[-'’][^\W\d_]+)*['’]?)|(?P<number>\d[\d:.,-]*)|(?P<amp>&)"
    r"|(?P<stop>[.!?;:\n]+)|(?P<comma>[,()\"])"
)
_POSSESSIVE = re.compile(r"(?:['’]s|['’])$")


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text that holds a list."""
    return frozenset(words.split())


TITLES = word_set("mr mrs ms miss dr st saint prof professor sir dame rev")
CALENDAR = word_set(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august "
    "september october november december mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul aug "
    "sep sept oct nov dec am pm christmas easter today tomorrow yesterday tonight day week weekend month year "
    "morning afternoon evening night noon midnight o'clock hour minute"
)
_STOP = (
    word_set(
        "a about above across after again against all almost along already also although always an and another any "
        "anyone anything are around as ask at away back be because been before began begin behind being below beside "
        "between both bring but buy by call came can cannot come could did do does done down during each either else "
        "enough even ever every everybody everyone everything few first for from full gave get give go goes gone good "
        "got great had has have he her here hers herself him himself his how however i if in into is it its itself "
        "just keep kept know last later least leave left less let like little long look made make many may me might "
        "mine more most much must my myself near need never new next no nobody none nor not nothing now of off often "
        "old on once one only onto or other others ought our ours out over own part pay per place please put quite "
        "rather really right said same saw say second see send set several shall she should since small so some "
        "someone something soon still such take taken tell than thank that the their theirs them themselves then "
        "there these they thing think this those though three through time to told too took toward towards two under "
        "until up upon us use used usual usually very want was way we well went were what when where whether which "
        "while who whole whom whose why will with within without would yes yet you your yours four five six seven "
        "eight nine ten eleven twelve half i'm i'll i've i'd it's that's don't can't won't let's we're we'll you're "
        "book reserve order sign help needs"
    )
    | CALENDAR
)


@dataclass(frozen=True, slots=True)
class Word:
    """One token of a text.

    Attributes:
        raw: As written, possessive ending included.
        key: Folded form (see `fold`).
        kind: ``word``, ``number``, ``amp``, ``stop`` (ends a clause) or ``comma``.
        first: Whether it is the first word of a sentence.
    """

    raw: str
    key: str
    kind: str
    first: bool

    @property
    def capital(self) -> bool:
        """Whether it is a word that starts with a capital letter."""
        return self.kind == "word" and self.raw[0].isupper()

    @property
    def possessive(self) -> bool:
        """Whether it ends in ``'s`` or ``s'``."""
        return self.kind == "word" and bool(_POSSESSIVE.search(self.raw))


def split_words(text: str) -> list[Word]:
    """Return the tokens of a text, in order; the full stop of a title ("Dr.") ends nothing."""
    words: list[Word] = []
    first = True
    for match in _TOKEN.finditer(text):
        raw, kind = match.group(), match.lastgroup or "word"
        if kind == "stop" and words and words[-1].key in TITLES and raw == ".":
            continue
        words.append(Word(raw, fold(raw) if kind == "word" else raw, kind, first and kind in ("word", "number")))
        first = kind == "stop" if kind in ("word", "number", "stop") else first
    return words


def bare(word: str) -> str:
    """Return a word without its possessive ending: "Ines's" gives "Ines", "twins'" gives "twins"."""
    return _POSSESSIVE.sub("", word)


def fold(word: str) -> str:
    """Return the lower-case word without possessive and plural ending: a key to match by, not to show.

    "twins'" gives "twin", "boxes" gives "box", "cherries" gives "cherry"; "glass", "bus" and words of three letters or
    fewer keep their s. Names are folded alike, so "Ines", "Ines's" and "Ines'" all give "ine".
    """
    plain = bare(word.lower().replace("’", "'"))
    if len(plain) <= 3 or not plain.endswith("s") or plain.endswith(("ss", "us", "is")):
        return plain
    if plain.endswith("ies") and len(plain) > 4:
        return plain[:-3] + "y"
    return plain[:-2] if plain.endswith(("xes", "ches", "shes", "sses", "zes")) else plain[:-1]


STOP_WORDS = _STOP | {fold(word) for word in _STOP}
"""Words that tell no fact from another, folded forms included."""
