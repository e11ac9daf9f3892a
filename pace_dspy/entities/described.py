"""Find the people a request describes instead of naming: "my sister", "our usual caterer", "the kids' coach" (ours)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pace_dspy.entities.relations import Role, is_role_word, role_stem
from pace_dspy.entities.words import CALENDAR, STOP_WORDS, Word, bare

_SPEAKER = frozenset(["my", "our", "the"])
_HABITUAL = frozenset(["usual", "old", "new", "first", "second"])
_PLAIN = STOP_WORDS - CALENDAR


class Described(NamedTuple):
    """Words of a text that describe people: where they begin, the words, the roles they fit."""

    start: int
    text: str
    roles: tuple[Role, ...]


class RoleBook:
    """The roles of a knowledge base, ready to be matched with descriptions.

    Args:
        roles: What facts call people; those of the owner of the notes are left out.
        names: Keys of all names, to tell "Rui's wife" from "the kids' coach".
        owner: Words of the owner's name.
    """

    def __init__(self, roles: Sequence[Role], names: frozenset[str], owner: frozenset[str]) -> None:
        self.roles = tuple(role for role in roles if not set(role.name.split()) <= owner)
        self.names, self.owner = names, owner
        self._by_head: dict[str, list[Role]] = defaultdict(list)
        for role in self.roles:
            self._by_head[role.head].append(role)

    def find(self, words: Sequence[Word], named: Mapping[int, frozenset[str]]) -> Iterator[Described]:
        """Yield descriptions from left to right; "my brother-in-law's wife" builds on "my brother-in-law".

        Args:
            words: Tokens of the text.
            named: Name keys by the index of a name's last token.
        """
        start, held_by, modifiers = 0, None, list[str]()
        for at, word in enumerate(words):
            lower = word.raw.lower()
            if lower in _SPEAKER:
                start, held_by, modifiers = at, frozenset[str](), []
            elif at in named:
                start, held_by, modifiers = at, named[at] if word.possessive else None, []
            elif word.kind != "word" or (word.key in _PLAIN and lower not in _HABITUAL):
                held_by, modifiers = None, []
            elif held_by is None:
                if word.possessive:
                    start, held_by, modifiers = at, frozenset([word.key]), []
            elif not word.possessive and at + 1 < len(words) and _goes_on(word, words[at + 1]):
                modifiers.append(word.key)
            else:
                roles = self.fitting(word.raw, modifiers, held_by)
                if roles:
                    yield Described(start, " ".join([*(w.raw for w in words[start:at]), bare(word.raw)]), roles)
                base = frozenset(role.name for role in roles) or frozenset([word.key])
                held_by, modifiers = base if word.possessive else None, []

    def fitting(self, head: str, modifiers: Sequence[str], held_by: frozenset[str]) -> tuple[Role, ...]:
        """Return the roles that words fit: the same role and holder, then those that share most modifiers.

        Args:
            head: The last word of the description: "helper".
            modifiers: Folded words before it: ("weekend",).
            held_by: Keys of those towards whom the role is held; empty for the owner of the notes.
        """
        if not is_role_word(head):
            return ()
        same = self._by_head.get(role_stem(head), [])
        fit = [role for role in same if self._held(role, held_by)]
        if not fit and held_by and not held_by & self.names:  # "the kids' coach" where a fact says just "the coach"
            fit = [role for role in same if not role.owners]
        if not fit and modifiers and not held_by:  # "our weekend helper" where a fact says "the weekend hand"
            wanted = set(modifiers)
            fit = [role for role in self.roles if role.noun and wanted <= role.modifiers and self._held(role, held_by)]
        most = max((len(role.modifiers & set(modifiers)) for role in fit), default=0)
        return tuple(role for role in fit if len(role.modifiers & set(modifiers)) == most)

    def _held(self, role: Role, held_by: frozenset[str]) -> bool:
        if not held_by:
            return not role.owners or bool(role.owners & self.owner)
        wanted = {role_stem(word) for key in held_by for word in key.split()}
        return bool(wanted & {role_stem(key) for key in role.owners})


def _goes_on(word: Word, following: Word) -> bool:
    """Return whether a description goes on: "prep" before "cook", but not "landlord" before "tomorrow"."""
    if following.kind != "word" or following.capital or following.key in _PLAIN:
        return False
    return not is_role_word(word.raw) or is_role_word(following.raw)
