"""Wording of constraints: does a fact state a rule, limit, commitment or lasting state, or tell what happened once?

What blocks a request is far more often "only on Saturdays", "takes three working days" or "promised to keep it" than
"bought a lamp in March". Plain word lists, one for each way to bind someone (ours; used to rank, never to exclude).
"""

from __future__ import annotations

from pace_dspy.entities.words import split_words

_LISTS = {
    "scope": "only all every each any no none nothing nobody never always whole both neither without strictly solely "
    "alone one entire except unless",
    "duty": "must may can cannot can't need needs needed require requires required allowed forbidden banned bars "
    "admits accepts lets obliged mandatory refuses",
    "bounds": "until till since while before after during between within beyond under over than least most",
    "amount": "minute minutes hour hours day days week weeks fortnight month months year years percent kilo kilos "
    "tonne tonnes metre metres takes take lasts last",
    "promise": "promise promised promises agreed pledged vowed swore sworn undertook signed word rule rules contract "
    "licence license permit policy",
    "state": "shut closed broken damaged repair lacks stands away due sold stolen lost missing expired cancelled",
    "body": "allergic allergy allergies reacts hives intolerant intolerance vegan vegetarian pregnant rash sick ill "
    "fasting sober",
}
_KINDS = {kind: frozenset(words.split()) for kind, words in _LISTS.items()}
MOST_KINDS = 3


def constraint_kinds(text: str) -> frozenset[str]:
    """Return the kinds of binding words in a text: scope, duty, bounds, amount, promise, state, body."""
    words = {word.raw.lower() for word in split_words(text) if word.kind == "word"}
    return frozenset(kind for kind, listed in _KINDS.items() if words & listed)


def constraint_strength(text: str) -> int:
    """Return the number of `constraint_kinds` of a text, at most 3: higher is more binding."""
    return min(MOST_KINDS, len(constraint_kinds(text)))
