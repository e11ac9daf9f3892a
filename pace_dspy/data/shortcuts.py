"""Can the label be guessed without any fact? Small classifiers on the surface of the requests. Ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pace_dspy.data.date_text import WEEKDAYS, find_dates
from pace_dspy.errors import ConfigError
from pace_dspy.types import Dataset, Request

MIN_CASES = 2
"""Personas needed, as each is held out once."""

_RIDGE = 1.0
_N_STEPS = 25
_FIRST_WORDS = ("can", "could", "please", "book", "is", "will", "would", "should", "what", "when", "i", "let")
_TIME_WORDS = re.compile(
    rf"\b(?:{'|'.join(WEEKDAYS)}|today|tonight|tomorrow|weekend|noon|midnight|\d{{1,2}}:\d\d|\d{{1,2}} ?[ap]\.?m\b)",
    re.IGNORECASE,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ShortcutResult:
    """How well one surface feature predicts the label.

    Attributes:
        name: What is looked at.
        field: The field it is read from.
        accuracy: In [0, 1], on held-out personas; 0.5 is chance on balanced data, higher is a leak.
        n_requests: Requests scored.
    """

    name: str
    field: str
    accuracy: float
    n_requests: int


def has_date_or_time(query: str) -> bool:
    """Tell whether a request names a date, a weekday, a relative day or a clock time."""
    return _TIME_WORDS.search(query) is not None or next(find_dates(query), None) is not None


def _length(request: Request) -> list[float]:
    return [len(request.query.split()), len(request.query)]


def _question_words(request: Request) -> list[float]:
    words = request.query.lower().split()
    return [float("?" in request.query), *(float(words[0] == word) for word in _FIRST_WORDS)]


def _date_or_time(request: Request) -> list[float]:
    return [float(has_date_or_time(request.query))]


def _n_gold(request: Request) -> list[float]:
    return [float(len(request.gold_doc_ids))]


SHORTCUTS: tuple[tuple[str, str, Callable[[Request], list[float]]], ...] = (
    ("request length", "query", _length),
    ("question or imperative words", "query", _question_words),
    ("presence of a date or time", "query", _date_or_time),
    ("number of gold facts", "gold_doc_ids", _n_gold),
)
"""Name, field and features of each check."""


def shortcut_checks(dataset: Dataset) -> tuple[ShortcutResult, ...]:
    """Predict the label from each shortcut by logistic regression, leaving one persona out at a time.

    Args:
        dataset: Labelled data with at least `MIN_CASES` personas that have requests.

    Returns:
        One result a shortcut. A prediction of exactly even odds counts as half right.

    Raises:
        ConfigError: There are too few personas.
    """
    labelled = [request for request in dataset.requests if request.label is not None]
    groups = np.array([request.case_id for request in labelled])
    if len(set(groups.tolist())) < MIN_CASES:
        raise ConfigError(f"shortcut checks need requests of at least {MIN_CASES} personas, {dataset.name} has fewer")
    target = np.array([float(request.label == "conflict") for request in labelled])
    results = []
    for name, field, features in SHORTCUTS:
        matrix = np.array([features(request) for request in labelled], dtype=np.float64)
        right = np.concatenate([_held_out(matrix, target, groups == group) for group in sorted(set(groups.tolist()))])
        results.append(ShortcutResult(name, field, float(right.mean()), len(right)))
    return tuple(results)


def _held_out(matrix: Floats, target: Floats, test: npt.NDArray[np.bool_]) -> Floats:
    """Train on the other personas; return 1 (right), 0 (wrong) or 0.5 (even odds) for each held-out request."""
    mean, spread = matrix[~test].mean(axis=0), matrix[~test].std(axis=0)
    scaled = (matrix - mean) / np.where(spread > 0, spread, 1.0)
    scaled[:, spread == 0] = 0.0
    design = np.hstack([np.ones((len(scaled), 1)), scaled])
    log_odds = design[test] @ fit_logistic(design[~test], target[~test])
    sure = np.abs(log_odds) > 1e-9
    return np.where(sure, (log_odds > 0) == (target[test] > 0.5), 0.5).astype(np.float64)


def fit_logistic(design: Floats, target: Floats) -> Floats:
    """Fit a logistic regression by Newton's method with a ridge of 1 on all weights but the first.

    Args:
        design: (n, n_features) float64, the first column all ones.
        target: (n,) float64, 0 or 1.

    Returns:
        (n_features,) float64 weights.
    """
    penalty = np.full(design.shape[1], _RIDGE)
    penalty[0] = 1e-6
    weights = np.zeros(design.shape[1])
    for _ in range(_N_STEPS):
        odds = np.clip(design @ weights, -30, 30)
        predicted = 1 / (1 + np.exp(-odds))
        gradient = design.T @ (target - predicted) - penalty * weights
        hessian = (design.T * (predicted * (1 - predicted))) @ design + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        weights += step
        if float(np.abs(step).max()) < 1e-10:
            break
    return weights
