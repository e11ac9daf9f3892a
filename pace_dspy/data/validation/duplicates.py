"""Checks of duplicates: equal and nearly equal texts, found through an inverted index. Ours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import ceil

from pace_dspy.data.validation.context import Context
from pace_dspy.data.validation.report import Finding
from pace_dspy.data.validation.words import tokens


def check_duplicates(context: Context) -> Iterator[Finding]:
    """Equal and nearly equal facts and requests of a persona (``duplicate``, ``near_duplicate``)."""
    for case in context.dataset.cases:
        for first, second, score in near_duplicates([fact.text for fact in case.facts], context.rules.max_jaccard):
            fact, other = case.facts[second], case.facts[first].doc_id
            check = "duplicate" if fact.text == case.facts[first].text else "near_duplicate"
            problem, remedy = _words_for(check, other, score)
            yield context.of_fact(check, case, fact, problem, remedy)
        for first, second, score in near_duplicates([r.query for r in case.requests], context.rules.max_jaccard):
            request, other = case.requests[second], case.requests[first].query_id
            check = "duplicate" if request.query == case.requests[first].query else "near_duplicate"
            problem, remedy = _words_for(check, other, score)
            yield context.of_request(check, case, request, "query", request.query, problem, remedy)


def near_duplicates(texts: Sequence[str], threshold: float) -> list[tuple[int, int, float]]:
    """Find pairs of texts whose token sets have a Jaccard similarity above a threshold.

    Two sets of similarity above t share one of the n - ceil(t * n) + 1 rarest tokens of each, so only those are
    indexed (prefix filtering, Chaudhuri et al. 2006); sets whose sizes differ too much are passed over.

    Args:
        texts: The texts.
        threshold: In (0, 1).

    Returns:
        (first position, second position, similarity in (threshold, 1]), sorted; texts without tokens are left out.
    """
    sets = [set(tokens(text)) for text in texts]
    frequency = Counter(token for words in sets for token in words)
    index: defaultdict[str, list[int]] = defaultdict(list)
    pairs: list[tuple[int, int, float]] = []
    for position, words in enumerate(sets):
        rarest_first = sorted(words, key=lambda token: (frequency[token], token))
        prefix = rarest_first[: len(words) - ceil(threshold * len(words)) + 1]
        smallest, largest = threshold * len(words), len(words) / threshold
        for other in {other for token in prefix for other in index[token]}:
            if not smallest <= len(sets[other]) <= largest:
                continue
            shared = len(words & sets[other])
            score = shared / (len(words) + len(sets[other]) - shared)
            if score > threshold:
                pairs.append((other, position, score))
        for token in prefix:
            index[token].append(position)
    return sorted(pairs)


def _words_for(check: str, other: str, score: float) -> tuple[str, str]:
    if check == "duplicate":
        return f"the same text as {other}", "Drop one of them"
    return f"nearly the same text as {other} (token Jaccard {score:.2f})", "Reword or drop one of them"
