"""One optimizer on one group of stages: score before, optimize, choose on dev, keep in the program what is better."""

from __future__ import annotations

import contextlib
from statistics import fmean
from typing import Any

import dspy

from pace_dspy.evaluation.answers import DecisionScores
from pace_dspy.modules.off import KeepFirst
from pace_dspy.optimization.budget import reserved_calls
from pace_dspy.optimization.examples import Sets
from pace_dspy.optimization.forecast import MAKES_LISTS, Forecast
from pace_dspy.optimization.groups import examples_for
from pace_dspy.optimization.ledger import Candidate, Ledger
from pace_dspy.optimization.meter import Meter, MeteredAdapter, Spent, Stop, unstopped
from pace_dspy.optimization.optimizers import Task, optimize
from pace_dspy.optimization.quiet import quiet
from pace_dspy.optimization.result import GroupResult
from pace_dspy.optimization.scorer import Scorer
from pace_dspy.optimization.scoring import Scored, score_examples
from pace_dspy.optimization.setup import Compilation
from pace_dspy.optimization.snapshot import apply, fits, same, snapshot
from pace_dspy.optimization.stage_programs import freeze, predictor_stages, thaw
from pace_dspy.optimization.watch import Watch
from pace_dspy.program import PaceMakerProgram

PROPOSAL_TOKENS = 1_500


class GroupRun:
    """One optimizer run on one group of stages; writes what is better into the program, in place.

    Args:
        compilation: The whole run.
        planned: The group, with options and limits.
        program: The program so far.
        spent: Sums over all groups and starts.
        watch: Told of candidates and progress.
    """

    def __init__(
        self, compilation: Compilation, planned: Forecast, program: PaceMakerProgram, spent: Spent, watch: Watch
    ) -> None:
        self.settings, self.compilation = compilation.settings, compilation
        self.group, self.plan, self.program = planned.group, planned.plan, program
        self.spent, self.watch = spent, watch
        self.meter = Meter(spent, self.plan.metric_calls, self._scored)
        self.metric = compilation.metric or self.group.metric(self.settings.weights)

    def run(self) -> GroupResult:
        """Score before, optimize, choose on dev, apply.

        Raises:
            ConfigError: No example is left, or the metric's value was refused.
            BackendError: A backend failed.
        """
        adapter = MeteredAdapter(self.meter)
        with self._context(adapter):
            sets = unstopped(
                lambda: examples_for(
                    self.group, self.program, self.compilation.sets, self.settings, self.compilation.recorded
                )
            )
            student = self.group.student(self.program)
            scorer = Scorer(self.metric, predictor_stages(student), self.meter)
            before = unstopped(lambda: score_examples(student, sets.dev, scorer, self.settings.threads))
            ledger = Ledger(sets.dev, self.meter, self._tell)
            ledger.add(student, before.scores)
            by_rank = self._by_rank(sets) if self.group.name in MAKES_LISTS else None
            uncalled = tuple(name for name, n in before.calls.items() if not n)
            skipped = _nothing_to_do(before, uncalled)
            if skipped is None:
                freeze(student, [name for name in before.calls if name not in uncalled])
                self._optimize(student, sets, scorer, adapter, ledger)
        self._refuse_failures()
        best = _choose(ledger)
        apply(self.program, best.state)
        decisions = before.decisions if best.number == 0 else self._decisions(sets, best)
        return GroupResult(
            name=self.group.name,
            n_train=len(sets.train),
            n_dev=len(sets.dev),
            dropped=sets.dropped,
            before=before.mean,
            after=best.score,
            by_rank=by_rank,
            decisions_before=before.decisions,
            decisions_after=decisions,
            candidates=tuple(ledger.candidates),
            chosen=best.number,
            changed=not same(ledger.candidates[0].state, best.state),
            metric_calls=self.meter.metric_calls,
            failed_proposals=dict(self.meter.failed_proposals),
            uncalled=uncalled,
            stopped=self.meter.stopped.reason if self.meter.stopped else None,
            skipped=skipped,
        )

    def _optimize(
        self, student: dspy.Module, sets: Sets, scorer: Scorer, adapter: MeteredAdapter, ledger: Ledger
    ) -> None:
        """Run the optimizer until it ends or is stopped; score on dev what it did not score itself."""
        limit = self.meter.limit
        if limit is not None:
            self.meter.limit = limit - reserved_calls(self.settings.optimizer, len(sets.dev))
        loose: list[dspy.Module] = []
        with contextlib.suppress(Stop), quiet(), dspy.context(callbacks=[ledger]):
            loose = list(optimize(self.settings.optimizer, self._task(student, sets, scorer, adapter)))
        if self.meter.stopped is not None and self.meter.stopped.error is None:
            self.watch.say(f"{self.group.name}: {self.meter.stopped.reason}; the best so far is kept")
            return
        self.meter.limit = limit
        with contextlib.suppress(Stop):
            for candidate in loose:
                if any(same(snapshot(candidate), known.state) for known in ledger.candidates):
                    continue
                ledger.add(candidate, score_examples(candidate, sets.dev, scorer, self.settings.threads).scores)

    def _task(self, student: dspy.Module, sets: Sets, scorer: Scorer, adapter: MeteredAdapter) -> Task:
        prompt_lm = self.compilation.prompt_lm
        options = dict(self.plan.options)
        if "batch" in options:
            options["batch"] = min(options["batch"], len(sets.train))
        if "metric_calls" in options:
            options["metric_calls"] = max(1, self.plan.metric_calls - len(sets.dev))
        return Task(
            student=student,
            train=sets.train,
            dev=sets.dev,
            scorer=scorer,
            adapter=adapter,
            lm=self.compilation.lm,
            prompt_lm=None if prompt_lm is None else prompt_lm.copy(max_tokens=PROPOSAL_TOKENS),
            options=options,
            max_demos=self.settings.max_demos,
            threshold=self.group.threshold,
            labelled=self.group.staged,
            seed=self.settings.seed,
            threads=self.settings.threads,
        )

    def _by_rank(self, sets: Sets) -> float:
        """Return what a filter would score that keeps the first facts by rank: a filter must beat that to be of use."""
        student = self.group.student(self.program)
        setattr(student, self.group.name, KeepFirst(getattr(self.program, self.group.name).keep))
        return fmean(float(self.metric(example, student(**example.inputs()), None)) for example in sets.dev)

    def _decisions(self, sets: Sets, best: Candidate) -> DecisionScores:
        """Return the decision metrics of the kept program on dev; its replies are in the cache."""
        student = thaw(self.group.student(self.program))
        apply(student, best.state)
        free = Meter(self.spent, None)
        with self._context(MeteredAdapter(free)):
            scorer = Scorer(self.metric, {}, free)
            return unstopped(lambda: score_examples(student, sets.dev, scorer, self.settings.threads)).decisions

    def _refuse_failures(self) -> None:
        if self.meter.stopped is not None and self.meter.stopped.error is not None:
            raise self.meter.stopped.error

    def _tell(self, candidate: Candidate) -> None:
        with self.spent.paused():
            self.watch.candidate(self.group.name, candidate)

    def _scored(self, done: int) -> None:
        self.watch.scored(self.group.name, done)

    def _context(self, adapter: MeteredAdapter) -> Any:
        return dspy.context(lm=self.compilation.lm, adapter=adapter, disable_history=True, max_errors=1_000_000)


def _nothing_to_do(before: Scored, uncalled: tuple[str, ...]) -> str | None:
    if len(uncalled) == len(before.calls):
        return "no dev example reached the predictor"
    return "every dev example scores 1 already" if before.mean >= 1.0 else None


def _choose(ledger: Ledger) -> Candidate:
    """Return the best candidate on dev that fits; of equals the first, so that the program as it was wins ties."""
    first, *others = ledger.candidates
    return max([first, *(one for one in others if fits(one.state))], key=lambda one: (one.score, -one.number))
