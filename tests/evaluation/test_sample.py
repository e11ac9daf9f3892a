"""A spread sample holds every persona and both labels, and is the same each time."""

from collections import Counter
from dataclasses import replace

import pytest

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.plan import RunSettings, chosen_jobs, select_data

SETTINGS = RunSettings(data="mini", backend="none", part="test", sample=12)


def test_personas_and_labels_are_even() -> None:
    jobs = chosen_jobs(SETTINGS, select_data(SETTINGS)[0])
    assert Counter(job.request.case_id for job in jobs) == dict.fromkeys(
        ("mini_06", "mini_07", "mini_08", "mini_xl"), 3
    )
    assert Counter(job.request.label for job in jobs) == {"conflict": 6, "non_conflict": 6}
    assert [job.position for job in jobs] == sorted(job.position for job in jobs)


def test_a_larger_sample_keeps_the_smaller_one() -> None:
    dataset = select_data(SETTINGS)[0]
    small, large = ({job.key for job in chosen_jobs(replace(SETTINGS, sample=n), dataset)} for n in (12, 20))
    assert len(large) == 20
    assert small < large


@pytest.mark.parametrize("n", [40, 1000])
def test_more_than_there_are_is_all(n: int) -> None:
    dataset = select_data(SETTINGS)[0]
    every = chosen_jobs(replace(SETTINGS, sample=None), dataset)
    assert chosen_jobs(replace(SETTINGS, sample=n), dataset) == every


def test_not_together_with_limit() -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        chosen_jobs(replace(SETTINGS, limit=3), select_data(SETTINGS)[0])
