"""Choose few facts from a ranking so that they are not many versions of one (ours)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from pace_dspy.entities.ppr import Reached


def evidence_scores(
    reached: Sequence[Reached], strengths: Sequence[int], *, restart_discount: float = 1.0, weight: float = 0.4
) -> list[float]:
    """Return the score by which facts of a walk compete for the evidence: ``(score - d * restart) * e^(w * strength)``.

    Without the discount the seeds, which are the facts most like the request, fill the evidence by themselves. With
    the whole of it a seed counts as much as the facts around speak for it.

    Args:
        reached: Facts of the walk.
        strengths: `constraint_strength` of each, 0 to 3.
        restart_discount: Part of a seed's own restart mass that is taken off, 0 to 1 (our choice).
        weight: How much wording counts (our choice).

    Raises:
        ValueError: Different lengths.
    """
    return [
        (fact.score - restart_discount * fact.restart) * math.exp(weight * strength)
        for fact, strength in zip(reached, strengths, strict=True)
    ]


def spread(
    scores: Sequence[float], anchors: Sequence[frozenset[str]], keep: int, *, penalty: float = 0.8
) -> tuple[int, ...]:
    """Return positions, best first, after a discount for what was already said about the same thing.

    Greedy: each time the fact with the highest ``score * penalty ** c`` is taken, where ``c`` counts the facts taken
    before that share the anchor of this fact named most often so far. Facts without anchors are never discounted.

    Args:
        scores: Scores >= 0, higher is better.
        anchors: What each fact is about: the request's terms that stand in it.
        keep: Facts wanted, >= 0.
        penalty: Factor in (0, 1]; 1 keeps the order of the scores.

    Raises:
        ValueError: Different lengths, ``keep`` < 0, or a penalty outside (0, 1].
    """
    if len(scores) != len(anchors) or keep < 0 or not 0.0 < penalty <= 1.0:
        raise ValueError(
            f"{len(scores)} scores, {len(anchors)} anchors, keep {keep}, penalty {penalty}: "
            "give one anchor set for each score, keep >= 0 and a penalty in (0, 1]"
        )
    taken: Counter[str] = Counter()
    left = list(range(len(scores)))
    chosen: list[int] = []
    while left and len(chosen) < keep:
        best = max(left, key=lambda at: (scores[at] * penalty ** max((taken[a] for a in anchors[at]), default=0), -at))
        left.remove(best)
        chosen.append(best)
        taken.update(anchors[best])
    return tuple(chosen)
