"""Judging the runs of an experiment on the way, with one judge or with two and their agreement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import BackendLM, make_lm
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.flight import Limits, Outcome
from pace_dspy.evaluation.judge_report import JudgeReport, judge_report
from pace_dspy.evaluation.judging import judge_identity, judge_run, judgeable
from pace_dspy.evaluation.plan import Plan


def make_judges(backends: Sequence[str], *, cache: bool = True) -> list[BackendLM]:
    """Return the judges, the first one's verdicts being the run's.

    Raises:
        ConfigError: More than two, the same one twice, or an unknown backend.
        MissingKeyError: A needed key is not set.
    """
    if len(backends) > 2:
        raise ConfigError(f"at most two judges, received {len(backends)}: {', '.join(backends)}")
    judges = [make_lm(name, reply_cache=ReplyCache() if cache else None) for name in backends]
    if len({judge_identity(lm) for lm in judges}) < len(judges):
        raise ConfigError(f"the two judges are the same ({', '.join(backends)}); give backends with different models")
    return judges


def judge_plan(
    plan: Plan, judges: Sequence[BackendLM], limits: Callable[[], Limits]
) -> tuple[JudgeReport, tuple[Outcome, ...]]:
    """Judge what a run has answered and these judges have not judged yet.

    Args:
        plan: A run that was started; its store takes the verdicts.
        judges: From `make_judges`.
        limits: What may still be spent.

    Raises:
        ConfigError: Nothing to judge: no answer, or no gold rationale.
    """
    keys = [job.key for job in plan.jobs]
    found = judgeable(plan.store.rows(keys))
    names = [judge_identity(lm) for lm in judges]
    plan.store.verdicts(names[0]).choose()
    outcomes = tuple(judge_run(plan.store, found.jobs, lm, limits=limits()) for lm in judges)
    second = (names[1], plan.store.rows(keys, judge=names[1])) if len(names) > 1 else None
    return judge_report(plan.store.rows(keys, judge=names[0]), names[0], second), outcomes
