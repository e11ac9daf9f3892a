"""One start of a command on the ``batch`` backend: read what came back, go as far as it goes, write the next round."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pace_dspy.backends.lm import BackendLM
from pace_dspy.batch.files import OpenRound
from pace_dspy.batch.folder import BatchFolder
from pace_dspy.batch.lm import BatchLM, required
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.flight import Limits, Outcome
from pace_dspy.evaluation.scores import Key

_HOW_AGAIN = "to have a round answered again, delete its round-N.responses.jsonl"
AGENTS = ""
"""Role of the model that all stages ask: its rounds lie in the folder itself, those of others below it."""


@dataclass(frozen=True)
class Rounds:
    """The batch models of a command; none of them where all are live."""

    lms: tuple[BatchLM, ...] = ()

    def run(
        self, work: Callable[[Limits], Outcome], keys: Iterable[Key], finished: Callable[[], set[Key]], limits: Limits
    ) -> Outcome:
        """Do the work once, with the replies that are there.

        Args:
            work: Does what is not finished; pieces without a reply count as paused.
            keys: All pieces.
            finished: Returns those that are finished.
            limits: Money is that of all replies in the folders, and reaching it means that no further round is written.
                Time ends this start, and the round is written with the prompts found so far.

        Returns:
            The outcome; its ``rounds`` are to be answered next. An open round is waited for, and nothing is done.

        Raises:
            ConfigError: A folder cannot be used; see `BatchFolder.session`.
        """
        if not self.lms:
            return work(limits)
        folders = [required(lm.transport.folder) for lm in self.lms]
        with ExitStack() as stack:
            for folder in folders:
                stack.enter_context(folder.session())
            waiting = [folder.waiting for folder in folders if folder.waiting is not None]
            if waiting and (outcome := _waits(waiting, keys, finished())).paused:
                return outcome
            notes = [folder.note for folder in folders if folder.note is not None]
            outcome = work(replace(limits, max_usd=None, max_outages=None))
            outcome.notes += notes
            if outcome.failed:
                outcome.notes.append(_HOW_AGAIN)
            if self._may_go_on(outcome, limits):
                rounds = [folder.close_round() for folder in folders]
                outcome.rounds += [its.to_dict() for its in rounds if its is not None]
        return outcome

    def _may_go_on(self, outcome: Outcome, limits: Limits) -> bool:
        """Say whether another round may be written; when money forbids it, the outcome is stopped by that."""
        out_of_time = replace(limits, max_usd=None).reached(0.0, outcome.seconds)
        if outcome.interrupted:
            return False
        if outcome.stopped is not None and outcome.stopped != out_of_time:
            return False
        spent = sum(spent_usd(lm) for lm in self.lms)
        reached = replace(limits, max_minutes=None).reached(spent, 0.0)
        if reached is None or not any(required(lm.transport.folder).n_open for lm in self.lms):
            return True
        outcome.stopped = f"{reached}: the replies so far cost ${spent:.2f}, so the next round was not written"
        return False


def open_rounds(folder: Path, models: Iterable[tuple[str, BackendLM | None]]) -> Rounds:
    """Give every batch model its folder.

    Args:
        folder: The folder of all.
        models: Role and model; `AGENTS` for the model of all stages.
    """
    found: list[BatchLM] = []
    for role, lm in models:
        if isinstance(lm, BatchLM):
            found.append(lm)
            lm.attach(
                BatchFolder(
                    folder / role,
                    model=lm.model.partition("/")[2],
                    identity=lm.identity,
                    tries=1 + lm.profile.num_retries,
                )
            )
    return Rounds(tuple(found))


def require_batch(rounds: Rounds, folder: Path | None) -> Rounds:
    """Refuse a folder that nobody would use.

    Raises:
        ConfigError: ``--batch`` was given and no model is a batch model.
    """
    if folder is not None and not rounds.lms:
        raise ConfigError("--batch names the folder of the batch backend; give --backend batch, or leave it out")
    return rounds


def judge_role(lm: BackendLM) -> str:
    """Return the folder name of a judge, one a model."""
    return f"judge-{re.sub(r'[^A-Za-z0-9._-]+', '_', lm.model.partition('/')[2])}"


def spent_usd(lm: BatchLM) -> float:
    """Return the price of all replies of a model's folder; unknown prices count as zero."""
    return lm.profile.cost_usd(*required(lm.transport.folder).usage()) or 0.0


def _waits(rounds: list[OpenRound], keys: Iterable[Key], finished: set[Key]) -> Outcome:
    wanted = list(keys)
    skipped = sum(key in finished for key in wanted)
    return Outcome(
        planned=len(wanted),
        skipped=skipped,
        paused=len(wanted) - skipped,
        notes=[f"round {its.number} waits for its replies: {its.responses} is not there or empty" for its in rounds],
        rounds=[its.to_dict() for its in rounds],
    )
