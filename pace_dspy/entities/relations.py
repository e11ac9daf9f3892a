"""Who is what to whom: roles that notes give to names, as "Rui, the landlord" or "her sister Clara" (ours)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pace_dspy.entities.names import Span
from pace_dspy.entities.words import STOP_WORDS, Word, fold, word_set

_KIN = (
    "mother father parent sister brother wife husband spouse partner son daughter child twin uncle aunt cousin niece "
    "nephew grandmother grandfather grandson granddaughter grandchild fiance fiancee girlfriend boyfriend godmother "
    "godfather stepmother stepfather friend neighbour neighbor colleague boss landlord landlady tenant flatmate "
    "roommate guest client customer pupil apprentice nurse vet coach cook chef aide guide judge warden dentist"
)
KIN = frozenset(_KIN.split())
_SAME = {
    "mum": "mother", "mom": "mother", "mummy": "mother", "mama": "mother", "dad": "father", "daddy": "father",
    "papa": "father", "gran": "grandmother", "grandma": "grandmother", "granny": "grandmother",
    "grandpa": "grandfather", "grandad": "grandfather", "kid": "child", "children": "child", "twin": "child",
    "auntie": "aunt", "hubby": "husband", "boss": "manager", "wives": "wife", "neighbor": "neighbour",
    "fiancee": "fiance",
}  # fmt: skip
_TITLES = KIN | word_set(
    "inspector choirmaster councillor counsellor professor captain coach doctor madame monsieur maitre signora "
    "senor pastor father rabbi imam officer judge mayor director principal nanny"
)
_AGENT = re.compile(r"(?:er|or|ist|ant|man|woman|keeper|master|mistress|ian|sitter|ee)$")
_OWNERS = frozenset(["his", "her", "their", "my", "our", "its"])
_DETERMINERS = _OWNERS | frozenset(["the", "a", "an"])
_PREPOSITIONS = word_set("of at for in to from with on by who that since until and or as near behind")
_BE = frozenset(["is", "was", "became", "remains", "are", "were"])


@dataclass(frozen=True, slots=True)
class Role:
    """What one fact calls a person.

    Attributes:
        head: Stem of the role (see `role_stem`): "sister", "teach".
        modifiers: Folded words that narrow it: ("violin", "class").
        owners: Keys of those it is held towards: a name's or a word's ("twin"); empty for the owner of the notes.
        name: Key of the person.
        position: The fact that says so, by row.
        noun: Whether a noun says so ("the landlord"), not a verb ("teaches").
    """

    head: str
    modifiers: frozenset[str]
    owners: frozenset[str]
    name: str
    position: int
    noun: bool = True


def role_stem(word: str) -> str:
    """Return what "teacher", "teaches" and "teach" share, after common synonyms ("mum" is "mother")."""
    plain = fold(word)
    plain = _SAME.get(plain, plain)
    if plain in KIN or plain in _SAME.values() or "-" in plain:
        return plain
    return re.sub(r"(?:er|or|ing|e)$", "", plain) if len(plain) > 4 else plain


def is_role_word(word: str) -> bool:
    """Return whether a word can be a role by itself: kin, or an ending such as -er, -ist or -master."""
    plain = fold(word)
    return plain in KIN or plain in _SAME or "-in-law" in plain or (len(plain) > 4 and bool(_AGENT.search(plain)))


def roles_in(words: Sequence[Word], spans: Sequence[Span], position: int) -> Iterator[Role]:
    """Yield the roles a fact gives to its names, by apposition, title, copula or verb."""
    for span in spans:
        for said in _descriptions(words, span):
            narrow = frozenset(fold(word) for word in said.modifiers)
            yield Role(role_stem(said.head), narrow, frozenset(said.owners), span.key, position, said.noun)


class Description(NamedTuple):
    """Words that describe a name: the role, what narrows it, whose it is, and whether a noun says so."""

    head: str
    modifiers: list[str]
    owners: list[str]
    noun: bool = True


def _descriptions(words: Sequence[Word], span: Span) -> Iterator[Description]:
    first = words[span.start].raw.lower()
    if span.end - span.start > 1 and first in _TITLES:
        yield Description(first, [], [])  # "Aunt Folake", "Inspector Nyman"
    yield from _before(words, span)
    after = _until(words[span.end : span.end + 20], lambda word: word.kind == "stop")
    if not after:
        return
    if after[0].kind == "comma" or after[0].raw in _BE or after[0].raw == "as":
        yield from _phrase(after[1:])
    elif after[0].kind == "word" and not after[0].capital and after[0].raw.endswith("s"):
        yield from _verb(after)
    for at, word in enumerate(after[1:], start=1):
        if span.start == 0 and word.raw == "as" and at + 1 < len(after) and after[at + 1].raw in _DETERMINERS:
            yield from _phrase(after[at + 1 :])


def _before(words: Sequence[Word], span: Span) -> Iterator[Description]:
    """Yield from before a name: "Ines's brother-in-law Rui", "His accountant, Perpetua Lunn," "Her sister is Clara"."""
    at, linked = span.start - 1, False
    if at >= 0 and (words[at].kind == "comma" or words[at].raw in _BE or words[at].raw in ("called", "named")):
        at -= 1
        linked = True
    noun: list[str] = []
    while at >= 0 and words[at].kind == "word" and len(noun) < 4 and not _opens(words[at]) and not _stops(words[at]):
        noun.insert(0, words[at].raw.lower())
        at -= 1
    if not noun or at < -1:
        return
    opener = words[at] if at >= 0 and words[at].kind == "word" else None
    owned = opener is not None and opener.possessive
    known = opener is not None and (owned or opener.raw.lower() in _DETERMINERS)
    closed = span.end < len(words) and words[span.end].kind == "comma"
    if linked and not (known and (closed or words[span.start - 1].kind != "comma") and is_role_word(noun[-1])):
        return
    if is_role_word(noun[-1]):
        yield Description(noun[-1], noun[:-1], [fold(opener.raw)] if opener is not None and owned else [])


def _phrase(words: Sequence[Word]) -> Iterator[Description]:
    """Yield from a noun phrase or clause: "the younger sister of Ines", "Oskar's wife", "who teaches the twins"."""
    if words and words[0].raw == "who":
        yield from _verb(words[1:])
        return
    reach = 4 if words and words[0].raw in ("for", "since", "once") else 2
    start = next((at for at, word in enumerate(words[:reach]) if _opens(word)), None)
    if start is None or (start == 1 and words[0].kind != "word") or (start and words[0].raw == "and"):
        return
    end = start + 1
    while end < len(words) and words[end].kind == "word" and words[end].raw not in _PREPOSITIONS:
        end += 1
    noun = [word.raw.lower() for word in words[start + 1 : end] if word.kind == "word"]
    if not noun or (end < len(words) and words[end].raw == "and"):
        return  # "Ines, the twins and Ilse": a list
    owners = [fold(word.raw) for word in words[start:end] if word.possessive]
    if end < len(words) and words[end].raw == "of":
        for word in words[end + 1 : end + 5]:
            if word.capital:
                owners.append(word.key)
            elif word.raw not in _DETERMINERS and word.raw != "and":
                break
    yield Description(noun[-1], [word for word in noun[:-1] if fold(word) not in owners], owners)


def _verb(words: Sequence[Word]) -> Iterator[Description]:
    """Yield from a verb: in "teaches geography", "does the gas checks" its objects narrow the role."""
    if not words or words[0].kind != "word" or words[0].key in STOP_WORDS - {"does"}:
        return
    clause = _until(words, lambda word: word.kind in ("comma", "stop"))[:8]
    content = [word for word in clause[1:] if word.kind == "word" and word.key not in STOP_WORDS]
    owners = [word.key for word in content if word.possessive]
    objects = [word.raw for word in content if not word.possessive]
    if words[0].raw == "does" and objects:
        yield Description(objects[-1], objects[:-1], owners, noun=False)
    elif words[0].raw != "does":
        yield Description(words[0].raw, objects, owners, noun=False)


def _until(words: Sequence[Word], ends: Callable[[Word], bool]) -> list[Word]:
    kept: list[Word] = []
    for word in words:
        if ends(word):
            break
        kept.append(word)
    return kept


def _opens(word: Word) -> bool:
    return word.kind == "word" and (word.raw.lower() in _DETERMINERS or word.possessive)


def _stops(word: Word) -> bool:
    return word.raw.lower() in _PREPOSITIONS or (
        word.key in STOP_WORDS and word.raw.lower() not in ("old", "new", "first")
    )
