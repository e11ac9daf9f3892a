"""Drawing cases with replacement: the table of sums, the draws, their percentiles and p-value. Ours.

Sources: see `statistics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.scores import UNKNOWN, Key

Mean = Literal["micro", "macro", "balanced"]
"""micro: over requests; macro: over cases of the case's mean; balanced: over strata (labels) of the stratum's mean."""


@dataclass(frozen=True)
class Table:
    """Sums by case and column: ``(n_cases, n_columns)`` float64; the score is the mean of the columns' ratios."""

    numerators: NDArray[np.float64]
    denominators: NDArray[np.float64]

    def value(self) -> float | None:
        """Return the score, or ``None`` without a case."""
        if not len(self.numerators):
            return None
        return float(np.mean(self.numerators.sum(axis=0) / self.denominators.sum(axis=0)))


def table_of(values: Mapping[Key, float], strata: Mapping[Key, str], average: Mean) -> Table:
    """Return the sums of ``values`` by case; columns are the strata when ``average`` is ``balanced``, else one."""
    cases = {case_id: i for i, case_id in enumerate(sorted({case_id for case_id, _ in values}))}
    column_of = {key: strata.get(key, UNKNOWN) if average == "balanced" else "" for key in values}
    columns = {name: i for i, name in enumerate(sorted(set(column_of.values())))}
    numerators = np.zeros((len(cases), len(columns)))
    denominators = np.zeros_like(numerators)
    for key, value in values.items():
        cell = cases[key[0]], columns[column_of[key]]
        numerators[cell] += value
        denominators[cell] += 1
    if average == "macro":
        return Table(numerators / denominators, np.ones_like(denominators))
    return Table(numerators, denominators)


def resample(table: Table, level: float, n_resamples: int, seed: int) -> tuple[float | None, NDArray[np.float64]]:
    """Return the score and its draws ``(n_draws,)``; no draws with fewer than two cases.

    A draw that holds no case of some stratum has no score and is left out.

    Raises:
        ConfigError: ``level`` outside (0, 1), or ``n_resamples`` under 1.
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, received {level}")
    if n_resamples < 1:
        raise ConfigError(f"n_resamples must be at least 1, received {n_resamples}")
    n_cases = len(table.numerators)
    if n_cases < 2:
        return table.value(), np.empty(0)
    times = np.random.default_rng(seed).multinomial(n_cases, np.full(n_cases, 1 / n_cases), size=n_resamples)
    drawn = times @ table.denominators
    whole = (drawn > 0).all(axis=1)
    return table.value(), ((times @ table.numerators)[whole] / drawn[whole]).mean(axis=1)


def percentiles(draws: NDArray[np.float64], level: float) -> tuple[float | None, float | None]:
    """Return the two ends of the percentile interval, or ``None`` without draws."""
    if not len(draws):
        return None, None
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def p_value(draws: NDArray[np.float64]) -> float | None:
    """Return the two-sided achieved significance level of a difference of zero, or ``None`` without draws."""
    if not len(draws):
        return None
    extreme = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    return min(1.0, 2 * (1 + extreme) / (len(draws) + 1))
