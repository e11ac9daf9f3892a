"""The people of a knowledge base, from its own facts: names, and who is what to whom (ours)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pace_dspy.entities.described import RoleBook
from pace_dspy.entities.names import NameFinder, Reading, Span
from pace_dspy.entities.relations import Role, is_role_word, roles_in
from pace_dspy.entities.words import TITLES, Word, fold, split_words, word_set

OWNER_SHARE = 0.2
_PERSON_VERBS = word_set(
    "told asked promised said says lent gave wants likes loves hates lives works teaches plays sings knows met married "
    "thinks wrote rang phoned invited agreed swore hopes cannot turned moved brought bought wore has"
)
_PLACE_WORDS = word_set(
    "street road lane row hall room square park pier bay hill school club church market hotel cafe bar house hospital "
    "bank station bridge river lake island quay mill basin field terrace court office theatre museum library garden "
    "quartet trio band team"
)
_PLACE_BEFORE = word_set("in at near from into the outside towards toward around")


@dataclass(frozen=True, slots=True)
class PersonMention:
    """A person, named or described, in a text.

    Attributes:
        text: The words of the text.
        kind: ``name`` or ``relation``.
        names: Who is meant, as the facts write them; several when the words fit several.
        doc_ids: Facts that establish it: those that state the relation, or that have the name.
        is_owner: Whether it is the owner of the notes, who tells no fact from another.
    """

    text: str
    kind: Literal["name", "relation"]
    names: tuple[str, ...]
    doc_ids: tuple[str, ...]
    is_owner: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """A name of the facts: how it is written, in which facts (rows, ascending), and whether it is a person's."""

    written: str
    positions: tuple[int, ...]
    person: bool


class People:
    """Names and roles of a knowledge base. Use `build`.

    Args:
        doc_ids: Facts in corpus order.
        finder: Tells names from sentence starts.
        known: Names by key, in order of first appearance.
        roles: What facts call people.
        owner: Words of the owner's name, folded.
    """

    def __init__(
        self,
        doc_ids: Sequence[str],
        finder: NameFinder,
        known: Mapping[str, Known],
        roles: Sequence[Role],
        owner: frozenset[str],
    ) -> None:
        self.doc_ids, self.finder, self.known, self.owner = tuple(doc_ids), finder, dict(known), owner
        self.roles = RoleBook([role for role in roles if known[role.name].person], frozenset(known), owner)
        self._position = {doc_id: position for position, doc_id in enumerate(self.doc_ids)}
        self._with_part: dict[str, list[str]] = _by_part(known)

    @classmethod
    def build(
        cls, facts: Sequence[tuple[str, str]], persona: str | None = None, *, reading: Reading | None = None
    ) -> People:
        """Read the facts.

        Args:
            facts: ``(doc_id, text)`` in corpus order.
            persona: The owner's name; without it the name in most facts (at least a fifth of them) is the owner's.
            reading: Their texts, read already.
        """
        reading = reading or Reading.of(text for _, text in facts)
        finder = reading.names
        written: dict[str, Counter[str]] = defaultdict(Counter)
        places: dict[str, dict[int, None]] = defaultdict(dict)
        votes: Counter[str] = Counter()
        roles: list[Role] = []
        for position, words in enumerate(reading.words):
            spans = finder.spans(words)
            for span in spans:
                written[span.key][span.text] += 1
                places[span.key][position] = None
                votes[span.key] += _vote(words, span)
            found = list(roles_in(words, spans, position))
            roles.extend(found)
            for role in found:
                votes[role.name] += 2 if is_role_word(role.head) or role.owners else int(role.noun)
        with_part = _by_part(written)
        persons = {other for key, vote in votes.items() if vote > 0 for other in _same(key, with_part)}
        known = {
            key: Known(forms.most_common(1)[0][0], tuple(places[key]), key in persons) for key, forms in written.items()
        }
        return cls([doc_id for doc_id, _ in facts], finder, known, roles, _owner(persona, known, len(facts)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names that behave like persons, the owner's included, in order of first appearance."""
        return tuple(name.written for name in self.known.values() if name.person)

    def facts_of(self, name: str) -> tuple[str, ...]:
        """Return the facts that name a person, in corpus order.

        "Ilse Grauw" also stands behind "Ilse" and "Grauw" where no other full name has that part; "Ilse" stands for
        everyone called so. Unknown names give none.
        """
        return self._ids(self._positions(_key(name)))

    def mentions(self, text: str) -> tuple[PersonMention, ...]:
        """Return the people a text names or describes ("my sister", "our usual caterer"), in text order."""
        words = split_words(text)
        found: list[tuple[int, PersonMention]] = []
        named: dict[int, frozenset[str]] = {}
        for span in self.finder.spans(words):
            keys = _same(span.key, self._with_part)
            named[span.end - 1] = frozenset([*keys, span.key])
            is_owner = set(span.words) <= self.owner
            if is_owner or any(self.known[key].person for key in keys):
                ids = self._ids(position for key in keys for position in self._positions(key))
                found.append((span.start, PersonMention(span.text, "name", self._written(keys), ids, is_owner)))
        for start, described, roles in self.roles.find(words, named):
            names = self._written(dict.fromkeys(role.name for role in roles))
            ids = self._ids(role.position for role in roles)
            found.append((start, PersonMention(described, "relation", names, ids)))
        return tuple(mention for _, mention in sorted(found, key=lambda item: item[0]))

    def positions(self, doc_ids: Iterable[str]) -> list[int]:
        """Return the rows of facts, in the order given.

        Raises:
            KeyError: Not a fact these people were read from.
        """
        return [self._position[doc_id] for doc_id in doc_ids]

    def _positions(self, key: str) -> set[int]:
        found = set(self.known[key].positions) if key in self.known else set()
        for other in _same(key, self._with_part):
            full_names = sum(" " in name for name in self._with_part[other]) if " " not in other else 0
            if " " not in key or full_names == 1:
                found.update(self.known[other].positions)
        return found

    def _written(self, keys: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.known[key].written for key in keys)

    def _ids(self, positions: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.doc_ids[position] for position in sorted(set(positions)))


def _by_part(keys: Iterable[str]) -> dict[str, list[str]]:
    """Return the names that have each word."""
    found: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        for part in dict.fromkeys(key.split()):
            found[part].append(key)
    return dict(found)


def _same(key: str, with_part: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the known names that may be the same person's: equal, or one of the two is a word of the other."""
    if " " not in key:
        return list(with_part.get(key, ()))
    found = [other for part in key.split() for other in with_part.get(part, ()) if other in (key, part)]
    return list(dict.fromkeys(found))


def _vote(words: Sequence[Word], span: Span) -> int:
    """Return evidence that a name is a person's (positive) or a place's or thing's (negative)."""
    before = words[span.start - 1].raw.lower() if span.start else ""
    after = words[span.end].raw.lower() if span.end < len(words) else ""
    if words[span.start].key in TITLES - {"st", "saint"} or after in _PERSON_VERBS:
        return 2
    if span.possessive:
        return 0
    if before in _PLACE_BEFORE or span.words[-1] in _PLACE_WORDS:
        return -2
    return 1 if before in ("with", "told", "asked") or (span.end - span.start == 2 and "&" not in span.text) else 0


def _owner(persona: str | None, known: Mapping[str, Known], n_facts: int) -> frozenset[str]:
    if persona and persona.strip():
        return frozenset(_key(persona).split())
    best = max(known, key=lambda key: len(known[key].positions), default="")
    often = bool(best) and n_facts >= 5 and len(known[best].positions) >= OWNER_SHARE * n_facts
    return frozenset(best.split()) if often else frozenset()


def _key(name: str) -> str:
    return " ".join(fold(part) for part in name.split() if fold(part.strip(".")) not in TITLES)
