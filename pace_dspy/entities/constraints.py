"""Wording of constraints: does a fact state a rule, limit, commitment or lasting state, or tell what happened once?

What blocks a request is far more often "only on Saturdays", "takes three working days" or "promised to keep it" than
"bought a lamp in March". Plain word lists, one for each way to bind someone (ours; used to rank, never to exclude).
The first five are closed classes of English grammar (negators, quantifiers and restrictive adverbs, modals and verbs
of permission, words of bounds, nouns of measure), the last three everyday words for commitments, for things that
cannot be used and for what a body cannot take. They are general on purpose:
the former lists, made of words of the train and dev personas of PACE-mini, gained most on those very personas.
"""

from __future__ import annotations

from pace_dspy.entities.words import split_words

_LISTS = {
    "negation": "no not none nobody nothing nowhere never neither nor without cannot can't won't don't doesn't didn't "
    "isn't aren't wasn't weren't hasn't haven't hadn't couldn't wouldn't shouldn't mustn't hardly barely",
    "scope": "all every each any both either always whole entire everyone everybody everything anyone anybody anything "
    "whoever whatever wherever whenever only solely merely exclusively strictly alone just sole single one but except "
    "unless otherwise if provided whether",
    "duty": "must may might can could should shall need needs needed ought require requires required allow allows "
    "allowed permit permits permitted forbid forbids forbidden prohibit prohibits prohibited ban bans banned bar bars "
    "barred oblige obliges obliged refuse refuses refused deny denies denied accept accepts accepted admit admits "
    "admitted demand demands demanded insist insists insisted depend depends let lets mandatory compulsory optional "
    "eligible entitled supposed",
    "bounds": "until till since while before after during between within by beyond under over than least most maximum "
    "minimum limit limits limited up deadline latest earliest",
    "measure": "second seconds minute minutes hour hours day days night nights week weeks fortnight month months year "
    "years quarter half percent gram grams kilo kilos kilogram kilograms tonne tonnes metre metres kilometre "
    "kilometres mile miles litre litres degree degrees euro euros pound pounds dollar dollars take takes last lasts",
    "promise": "promise promises promised agree agrees agreed agreement pledge pledges pledged vow vows vowed swear "
    "swears swore sworn guarantee guarantees guaranteed undertake undertakes undertook commit commits committed "
    "commitment sign signs signed word contract deal rule rules law policy terms condition conditions licence license "
    "permission assure assures assured owe owes owed lease leased rented booked reserved insured warranty",
    "state": "closed shut broken damaged faulty repair repairs repaired cancelled canceled postponed suspended delayed "
    "expired expires lost missing stolen sold empty full unavailable away absent off out due overdue occupied blocked "
    "locked stuck dead lent borrowed moved replaced removed gone ended",
    "body": "allergic allergy allergies intolerant intolerance vegan vegetarian pregnant pregnancy sick ill illness "
    "disease diabetic asthma asthmatic injured injury surgery operation medication medicine doctor fasting sober "
    "alcohol afraid phobia halal kosher",
}
_KINDS = {kind: frozenset(words.split()) for kind, words in _LISTS.items()}
MOST_KINDS = 3


def constraint_kinds(text: str) -> frozenset[str]:
    """Return the kinds of binding words in a text: negation, scope, duty, bounds, measure, promise, state, body."""
    words = {word.raw.lower().replace("’", "'") for word in split_words(text) if word.kind == "word"}
    return frozenset(kind for kind, listed in _KINDS.items() if words & listed)


def constraint_strength(text: str) -> int:
    """Return the number of `constraint_kinds` of a text, at most 3: higher is more binding."""
    return min(MOST_KINDS, len(constraint_kinds(text)))
