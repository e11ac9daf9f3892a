"""Judging a run: every finished, answered row once per judge, each verdict committed at once. Paper: LLM judge.

Three outcomes: a verdict; a judge error (the reply could not be had or read), which is never a FAIL and is asked again
on the next start; not judged (the request failed, or there is no response or decision to judge).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.usage import request_log
from pace_dspy.batch.files import FOLDER_NAME
from pace_dspy.batch.rounds import judge_role, open_rounds
from pace_dspy.errors import ConfigError, PaceError, PendingReplyError, ReplyError
from pace_dspy.evaluation.flight import Limits, OnRow, Outcome, error_of, run_work
from pace_dspy.evaluation.scores import Key, Row, finished, key_of
from pace_dspy.evaluation.store import RunStore
from pace_dspy.modules.judge import Judge

logger = logging.getLogger(__name__)

RAW_CHARS = 500
"""Most characters kept of a judge reply that cannot be read."""


@dataclass(frozen=True)
class JudgeJob:
    """One answered row to judge, with its place in the run."""

    row: Row
    position: int

    @property
    def key(self) -> Key:
        """``(case_id, query_id)``."""
        return key_of(self.row)


@dataclass(frozen=True)
class Judgeable:
    """What a judge can be given.

    Attributes:
        jobs: Answered rows, in data order.
        n_failed: Rows whose request failed; nothing to judge.
        n_unanswered: Rows that ended well without response or decision; nothing to judge.
    """

    jobs: tuple[JudgeJob, ...]
    n_failed: int
    n_unanswered: int


def judge_identity(lm: BackendLM) -> str:
    """Return who judges: backend, model, address, changed reply settings and judge prompt; the key of its verdicts."""
    return f"{lm.label}, prompt {Judge().prompt_id()}"


def judgeable(rows: Sequence[Row], limit: int | None = None) -> Judgeable:
    """Return the rows to judge.

    Args:
        rows: Rows of a run.
        limit: Only the first so many answered rows.

    Raises:
        ConfigError: No row is answered, or an answered one has no gold label or rationale to compare with.
    """
    ended = finished(rows)
    answered = [row for row in ended.rows if row["response"] and row["decision"]]
    if not answered:
        raise ConfigError(
            f"the run has no answered request to judge ({len(rows)} rows, {ended.n_failed} failed, "
            f"{len(ended.rows)} without response or decision); run a method with a --backend first"
        )
    jobs = tuple(JudgeJob(row, position) for position, row in enumerate(answered))[:limit]
    for field, what in (("label", "gold label"), ("judgment", "gold rationale"), ("query", "request text")):
        lacking = ["/".join(job.key) for job in jobs if not (job.row.get(field) or "").strip()]
        if lacking:
            raise ConfigError(
                f"{len(lacking)} of {len(jobs)} answered requests have no {what} (first: {lacking[0]}), and the judge "
                f"compares with it; nothing was sent. Add it to the data ({field}) and run again in a new folder"
            )
    return Judgeable(jobs, ended.n_failed, len(ended.rows) - len(answered))


def judge_run(
    store: RunStore,
    jobs: Sequence[JudgeJob],
    lm: BackendLM,
    *,
    concurrency: int | None = None,
    limits: Limits | None = None,
    on_row: OnRow | None = None,
    batch: Path | None = None,
) -> Outcome:
    """Judge what this judge has not judged yet; see `pace_dspy.evaluation.flight.run_work`.

    Args:
        store: The run; verdicts go into it.
        jobs: From `judgeable`.
        lm: The judge.
        concurrency: Judgements in flight; the backend's slots by default.
        limits: When to stop early.
        on_row: Called after each commit.
        batch: Folder below which a ``batch`` judge has its rounds; by default in the run folder.

    Returns:
        The outcome; ``failed`` counts judge errors.
    """
    sink = store.verdicts(judge_identity(lm))
    rounds = open_rounds(batch or store.folder / FOLDER_NAME, [(judge_role(lm), lm)])

    def work(limits: Limits) -> Outcome:
        return run_work(
            partial(judge_one, Judge()),
            jobs,
            sink,
            concurrency=concurrency or lm.profile.slots,
            limits=limits,
            on_row=on_row,
        )

    with dspy.context(lm=lm):
        return rounds.run(work, [job.key for job in jobs], sink.finished, limits or Limits())


def judge_one(judge: Judge, job: JudgeJob) -> dict[str, Any]:
    """Judge one row and return its verdict row; trouble becomes its ``error``, never a verdict.

    Raises:
        PendingReplyError: A round of the ``batch`` backend must be answered first.
    """
    row = job.row
    verdict: dict[str, Any] = {"verdict": None, "reason": None, "error": None}
    with request_log() as log:
        try:
            with dspy.context(disable_history=True):
                given = judge(
                    request=row["query"],
                    reference_date=dt.date.fromisoformat(row["reference_date"]),
                    gold_decision=row["label"],
                    gold_reason=row["judgment"],
                    response=row["response"],
                )
            verdict |= {"verdict": given.verdict, "reason": given.reason}
        except PendingReplyError:
            raise
        except PaceError as exc:
            verdict["error"] = _error(exc)
        except Exception as exc:
            logger.exception("judging request %s failed unexpectedly", "/".join(job.key))
            verdict["error"] = _error(exc)
    usage = [dataclasses.asdict(stage) for stage in log.usage()]
    return {"case_id": row["case_id"], "query_id": row["query_id"], **verdict, "usage": usage}


def _error(exc: Exception) -> dict[str, Any]:
    raw = exc.raw if isinstance(exc, ReplyError) else ""
    shown = raw if len(raw) <= RAW_CHARS else f"{raw[:RAW_CHARS]}... ({len(raw)} characters)"
    return {**error_of(exc), "raw": shown}
