"""A small share of the requests that still holds every persona and both labels. Ours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from pace_dspy.evaluation.runner import Job


def spread(jobs: Sequence[Job], n: int) -> tuple[Job, ...]:
    """Return ``n`` jobs in data order: as many of each persona and of each label as the data allows.

    The personas take turns; within a persona the labels take turns, and neighbouring personas begin with different
    labels. No draw is made, so the same data gives the same requests; all jobs when there are not more than ``n``.

    Args:
        jobs: In data order.
        n: At least 1.
    """
    lines: dict[str, list[Job]] = {}
    for job in jobs:
        lines.setdefault(job.persona or job.request.case_id, []).append(job)
    labels = list(dict.fromkeys(job.request.label for job in jobs))
    turns = [
        _by_label(own, labels[i % len(labels) :] + labels[: i % len(labels)]) for i, own in enumerate(lines.values())
    ]
    taken = [job for turn in zip_longest(*turns) for job in turn if job is not None][:n]
    return tuple(sorted(taken, key=lambda job: job.position))


def _by_label(jobs: Sequence[Job], labels: Sequence[str | None]) -> list[Job]:
    groups = [[job for job in jobs if job.request.label == label] for label in labels]
    return [job for turn in zip_longest(*groups) for job in turn if job is not None]
