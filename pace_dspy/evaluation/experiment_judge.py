"""Judging the runs of an experiment on the way, with one judge or with two and their agreement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import BackendLM, make_lm
from pace_dspy.backends.overrides import own_settings, parse_settings
from pace_dspy.backends.preflight import check_server
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.entries import BackendEntry
from pace_dspy.evaluation.flight import Limits, Outcome
from pace_dspy.evaluation.judge_report import JudgeReport, judge_report
from pace_dspy.evaluation.judging import judge_identity, judge_run, judgeable
from pace_dspy.evaluation.plan import Plan


def make_judges(entries: Sequence[BackendEntry], *, cache: bool = True) -> list[BackendLM]:
    """Return the judges, the first one's verdicts being the run's; they can be reached and serve their models.

    Raises:
        ConfigError: More than two, the same one twice, or an unknown backend.
        BackendError: See `check_server`.
    """
    names = ", ".join(entry.label for entry in entries)
    if len(entries) > 2:
        raise ConfigError(f"at most two judges, received {len(entries)}: {names}")
    replies = ReplyCache() if cache and entries else None
    judges = [make_lm(one.backend, own_settings(parse_settings(one.settings)), reply_cache=replies) for one in entries]
    if len({judge_identity(lm) for lm in judges}) < len(judges):
        raise ConfigError(f"the two judges are the same ({names}); give backends with different models")
    for lm in judges:
        check_server(lm)
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
