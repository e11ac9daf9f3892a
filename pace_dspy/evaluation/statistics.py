"""Bootstrap intervals over personas, paired comparisons on the same requests, and McNemar's exact test. Ours.

Requests of one persona share a knowledge base, so personas are drawn, with all their requests (cluster bootstrap).
Sources: Efron and Tibshirani 1993, ch. 13 (percentile interval) and 15-16 (achieved significance level); Davison and
Hinkley 1997, sec. 3.8 (clusters), sec. 4.2 (the added one); McNemar 1947 (exact binomial form).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.resampling import Mean, p_value, percentiles, resample, table_of
from pace_dspy.evaluation.samples import Sample
from pace_dspy.evaluation.scores import Key

RESAMPLES = 2000
"""Bootstrap resamples. Ours."""


@dataclass(frozen=True)
class Interval:
    """A score with its percentile bootstrap interval.

    Attributes:
        value: The score itself, ``None`` when nothing was scored.
        low: Lower end; ``None`` with fewer than two cases, where no spread can be seen.
        high: Upper end, likewise.
        level: Coverage aimed at, such as 0.95.
        n: Requests scored.
        n_cases: Personas among them.
        n_failed: Requests that failed.
        n_unscored: Requests that ended well but have no value.
        reasons: Failures by kind.
        n_resamples: Resamples used; fewer than asked for when one lacked a whole stratum.
    """

    value: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    n_cases: int
    n_failed: int
    n_unscored: int
    reasons: Mapping[str, int]
    n_resamples: int


@dataclass(frozen=True)
class Comparison:
    """Two runs on the same requests; ``difference`` is a minus b.

    Attributes:
        metric: The metric compared.
        value_a: Score of a over the pairs, ``value_b`` likewise.
        value_b: Score of b over the pairs.
        difference: ``value_a - value_b``, in [-1, 1].
        low: Lower end of its interval; ``None`` with fewer than two cases.
        high: Upper end, likewise.
        p_value: Two-sided, ``2 * (1 + min(#(d* <= 0), #(d* >= 0))) / (B + 1)``, at most 1; ``None`` likewise.
        level: Coverage aimed at.
        n_pairs: Requests scored in both.
        n_cases: Personas among the pairs.
        n_requests: Requests both runs were asked.
        n_only_a: Requests only a was asked (left out, ``intersect=True``), ``n_only_b`` likewise.
        n_only_b: Requests only b was asked.
        n_failed_a: Shared requests that failed in a, ``n_failed_b`` likewise; they form no pair.
        n_failed_b: Shared requests that failed in b.
        n_resamples: Resamples used.
    """

    metric: str
    value_a: float | None
    value_b: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    level: float
    n_pairs: int
    n_cases: int
    n_requests: int
    n_only_a: int
    n_only_b: int
    n_failed_a: int
    n_failed_b: int
    n_resamples: int


@dataclass(frozen=True)
class McNemar:
    """Exact test of two runs' right / wrong answers. Ignores that requests share a persona.

    Attributes:
        both_right: Requests both runs got right.
        only_a: Right in a only.
        only_b: Right in b only.
        both_wrong: Requests both got wrong.
        p_value: Two-sided exact binomial over the discordant pairs, in (0, 1]; 1.0 without any.
    """

    both_right: int
    only_a: int
    only_b: int
    both_wrong: int
    p_value: float


def bootstrap_interval(
    sample: Sample, *, average: Mean = "micro", level: float = 0.95, n_resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return a score with its percentile interval from drawing personas with replacement.

    Args:
        sample: The metric of one run.
        average: See `Mean`. For balanced accuracy: metric ``decision_accuracy``, average ``balanced``.
        level: Coverage, in (0, 1).
        n_resamples: Resamples, >= 1.
        seed: Same seed, same interval.

    Raises:
        ValueError: The run does not record failures, or a setting is out of range.
    """
    failed = _failed(sample)
    table = table_of(sample.values, sample.strata, average)
    value, draws = resample(table, level, n_resamples, seed)
    low, high = percentiles(draws, level)
    return Interval(
        value,
        low,
        high,
        level,
        n=len(sample.values),
        n_cases=len(table.numerators),
        n_failed=len(failed),
        n_unscored=len(sample.unscored),
        reasons=dict(sorted(Counter(failed.values()).items())),
        n_resamples=len(draws),
    )


def compare(
    a: Sample,
    b: Sample,
    *,
    intersect: bool = False,
    average: Mean = "micro",
    level: float = 0.95,
    n_resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare two runs request by request (paired cluster bootstrap of the difference).

    A request that failed in one run, or has no value in one, forms no pair and is counted beside the result.

    Args:
        a: One run.
        b: The other one.
        intersect: Compare on the requests both were asked when the sets differ, instead of refusing.
        average: See `Mean`.
        level: Coverage of the interval, in (0, 1).
        n_resamples: Resamples, >= 1.
        seed: Same seed, same result.

    Raises:
        ValueError: A run that does not record failures, different metrics, different requests without ``intersect``,
            no request in common, or a setting out of range.
    """
    shared = _shared(a, b, intersect)
    pairs = [key for key in sorted(shared) if key in a.values and key in b.values]
    table = table_of({key: a.values[key] - b.values[key] for key in pairs}, a.strata, average)
    difference, draws = resample(table, level, n_resamples, seed)
    low, high = percentiles(draws, level)
    return Comparison(
        a.metric,
        table_of({key: a.values[key] for key in pairs}, a.strata, average).value(),
        table_of({key: b.values[key] for key in pairs}, a.strata, average).value(),
        difference,
        low,
        high,
        p_value(draws),
        level,
        n_pairs=len(pairs),
        n_cases=len(table.numerators),
        n_requests=len(shared),
        n_only_a=len(a.requests - b.requests),
        n_only_b=len(b.requests - a.requests),
        n_failed_a=len(shared & frozenset(_failed(a))),
        n_failed_b=len(shared & frozenset(_failed(b))),
        n_resamples=len(draws),
    )


def mcnemar_exact(a: Sample, b: Sample, *, intersect: bool = False) -> McNemar:
    """Test whether two runs differ in right and wrong decisions (values 1.0 and 0.0).

    Raises:
        ValueError: As `compare`, or a value that is neither 0 nor 1.
    """
    shared = _shared(a, b, intersect)
    pairs = Counter((a.values[key], b.values[key]) for key in shared if key in a.values and key in b.values)
    odd = {value for pair in pairs for value in pair} - {0.0, 1.0}
    if odd:
        raise ConfigError(f"McNemar's test needs values 0 and 1, metric {a.metric} gives {min(odd)}; use compare()")
    only_a, only_b = pairs[1.0, 0.0], pairs[0.0, 1.0]
    n = only_a + only_b
    tail = sum(math.comb(n, i) for i in range(min(only_a, only_b) + 1))
    return McNemar(pairs[1.0, 1.0], only_a, only_b, pairs[0.0, 0.0], min(1.0, 2 * tail / 2**n))


def _failed(sample: Sample) -> Mapping[Key, str]:
    if sample.failed is None:
        raise ConfigError(
            f"run {sample.name} does not record failures (no n_failed), so its scores cannot be trusted or compared; "
            "run it again with this version"
        )
    return sample.failed


def _shared(a: Sample, b: Sample, intersect: bool) -> frozenset[Key]:
    _failed(a), _failed(b)
    if a.metric != b.metric:
        raise ConfigError(f"two metrics cannot be compared: {a.metric} ({a.name}) and {b.metric} ({b.name})")
    shared = a.requests & b.requests
    differing = [_sample_text(one.name, one.requests - shared) for one in (a, b) if one.requests - shared]
    if differing and not intersect:
        raise ConfigError(
            f"the runs were asked different requests ({len(shared)} in common; {'; '.join(differing)}); run the same "
            "ones, or pass --intersect (intersect=True) to compare the common ones"
        )
    if not shared:
        raise ConfigError(f"runs {a.name} and {b.name} have no request in common; nothing can be compared")
    return shared


def _sample_text(name: str, keys: frozenset[Key]) -> str:
    examples = ", ".join("/".join(key) for key in sorted(keys)[:3])
    return f"{len(keys)} only in {name}, such as {examples}"
