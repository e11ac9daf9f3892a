"""Capitalised names in notes, told from ordinary words at the start of a sentence by the notes themselves (ours)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pace_dspy.entities.words import CALENDAR, STOP_WORDS, TITLES, Word, bare, split_words

_JOINERS = frozenset({"de", "da", "del", "der", "den", "di", "du", "la", "le", "van", "von", "al", "bin", "and", "of"})


@dataclass(frozen=True, slots=True)
class Span:
    """A name in a text.

    Attributes:
        text: As written, without a possessive ending.
        key: Lower-case words of it, folded, without titles, joined by a space.
        start: Index of its first token.
        end: Index after its last token.
        possessive: Whether it was written as an owner ("Rui's").
    """

    text: str
    key: str
    start: int
    end: int
    possessive: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the key."""
        return tuple(self.key.split())


@dataclass(frozen=True, slots=True)
class Reading:
    """All facts split into words, with the names learnt from them: read once, used by people and vocabulary.

    Attributes:
        words: Tokens of each fact, in corpus order.
        names: Tells capitalised names from sentence starts.
    """

    words: tuple[Sequence[Word], ...]
    names: NameFinder

    @classmethod
    def of(cls, texts: Iterable[str]) -> Reading:
        """Read facts."""
        words = tuple(split_words(text) for text in texts)
        return cls(words, NameFinder.build(words))


class NameFinder:
    """Finds capitalised names; learns from all notes which capitals are names. Use `build`.

    Args:
        capital: Times each word stands capitalised inside a sentence, by lower-case form.
        lower: Times it stands in lower case.
        standing: Names seen without a possessive ending.
    """

    def __init__(self, capital: Mapping[str, int], lower: Mapping[str, int], standing: frozenset[str]) -> None:
        self.capital, self.lower, self.standing = capital, lower, standing

    @classmethod
    def build(cls, texts: Iterable[Sequence[Word]]) -> NameFinder:
        """Count capitals.

        Args:
            texts: Tokens of every fact.
        """
        capital: Counter[str] = Counter()
        lower: Counter[str] = Counter()
        standing = set()
        for words in texts:
            for word in words:
                if word.kind != "word":
                    continue
                form = bare(word.raw).lower()
                if not word.capital:
                    lower[form] += 1
                elif not word.first:
                    capital[form] += 1
                if word.capital and not word.possessive:
                    standing.add(form)
        return cls(capital, lower, frozenset(standing))

    def is_name(self, word: Word, following: Word | None = None) -> bool:
        """Return whether a word is (part of) a name: capitalised, and not just because a sentence starts there."""
        form = bare(word.raw).lower() if word.kind == "word" else ""
        if not word.capital or word.key in CALENDAR or form in CALENDAR or form in _PRONOUNS:
            return False
        if not word.first:
            return self.capital.get(form, 0) >= self.lower.get(form, 0) or form not in STOP_WORDS
        if form in STOP_WORDS or self.lower.get(form, 0) > self.capital.get(form, 0):
            return False
        if form in TITLES or self.capital.get(form, 0):
            return True
        if following is not None and following.kind in ("amp", "comma"):
            return following.kind == "amp" or not form.endswith("ly")  # "Karin, the weaver", not "Sadly, it rained"
        if following is None or not following.capital or following.key in CALENDAR:
            return word.possessive
        unknown = form not in self.standing and bare(following.raw).lower() in self.capital
        return not unknown  # "Promise Jakob ..." in a request: a verb no fact begins with, then a name of the facts

    def spans(self, words: Sequence[Word]) -> list[Span]:
        """Return the names of a text, in order.

        "Ferryman's Primary" and "Pell & Rowe" are one name; "Rui's Lia" is two, since "Rui" also stands alone.
        """
        found: list[Span] = []
        start = 0
        while start < len(words):
            if not self.is_name(words[start], words[start + 1] if start + 1 < len(words) else None):
                start += 1
                continue
            end = start + 1
            while end < len(words) and self._continues(words, end):
                end += 1
            part = [word for word in words[start:end] if word.kind == "word" and word.key not in TITLES]
            if part:
                raw = [word.raw for word in words[start:end]]
                text = " ".join([*raw[:-1], bare(raw[-1])])
                found.append(Span(text, " ".join(w.key for w in part), start, end, words[end - 1].possessive))
            start = end
        return found

    def _continues(self, words: Sequence[Word], at: int) -> bool:
        before, word = words[at - 1], words[at]
        if before.possessive and bare(before.raw).lower() in self.standing:
            return False
        following = words[at + 1] if at + 1 < len(words) else None
        if word.kind == "amp" or (word.raw in _JOINERS - {"and", "of"}):
            return following is not None and following.capital and self.is_name(following)
        return not word.first and self.is_name(word)


_PRONOUNS = frozenset(["i", "i'm", "i'll", "i've", "i'd"])
