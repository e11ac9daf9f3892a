"""The whole run: score, optimize group after group, keep what is better on dev, calibrate, save. Resumable.

Resuming is replaying: every validated reply of a run is kept in its work folder, an optimizer with the same seed asks
the same questions, so a restarted run repeats itself at no cost up to where it ended and goes on from there.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import dspy

from pace_dspy.artifacts import save_program
from pace_dspy.errors import ConfigError
from pace_dspy.optimization.budget import OptimizerPlan
from pace_dspy.optimization.calibration import Calibration, Measured, fit_threshold
from pace_dspy.optimization.examples import Sets
from pace_dspy.optimization.groups import Group, examples_for
from pace_dspy.optimization.ledger import Candidate, Ledger
from pace_dspy.optimization.meter import Meter, MeteredAdapter, Spent, Stop
from pace_dspy.optimization.optimizers import Task, optimize
from pace_dspy.optimization.result import CompileResult, GroupResult
from pace_dspy.optimization.scorer import Scorer
from pace_dspy.optimization.scoring import Scored, score_examples
from pace_dspy.optimization.setup import Compilation, identity, open_work
from pace_dspy.optimization.snapshot import apply, fits, same, snapshot
from pace_dspy.optimization.stage_programs import AnswerProgram, freeze, predictor_stages, thaw
from pace_dspy.program import PaceMakerProgram

PROPOSAL_TOKENS = 1_500
Say = Callable[[str], None]


def run(
    compilation: Compilation, *, say: Say | None = None, on_candidate: Callable[[str, Candidate], None] | None = None
) -> CompileResult:
    """Compile and save the artifact (``program.json`` and ``manifest.json`` in ``settings.out``).

    Args:
        compilation: From `pace_dspy.optimization.setup.prepare`.
        say: Called with lines of progress.
        on_candidate: Called with the group's name and each candidate scored on dev, for tracking.

    Raises:
        ConfigError: The work folder belongs to another run, or a metric's value was refused.
        BackendError: A backend failed; the same call continues the run.
    """
    compilation, say = open_work(compilation), say or _silent
    settings, spent = compilation.settings, Spent(compilation.settings.work_folder, compilation.settings.budget)
    program: PaceMakerProgram = compilation.program.deepcopy()
    start = snapshot(program)
    results = []
    for group, plan in compilation.plans:
        say(f"{group.name}: {settings.optimizer}, at most {plan.metric_calls} metric calls")
        one = GroupRun(compilation, group, plan, program, spent, say, on_candidate)
        results.append(one.run())
        say(f"{group.name}: {results[-1].to_text()}")
    calibration = None
    if settings.calibrate:
        calibration = calibrate(compilation, program, spent)
    changed = calibration is not None or not same(start, snapshot(program))
    spent.add(())
    result = CompileResult(tuple(results), calibration, spent.to_dict(), changed, settings.out / "program.json")
    save_program(thaw(program), settings.out, backend=settings.backend, **manifest_facts(compilation, result))
    return result


def manifest_facts(compilation: Compilation, result: CompileResult) -> dict[str, Any]:
    """Return what the manifest says beside config, signatures, versions and commit."""
    settings = compilation.settings
    plain = result.to_dict()
    return {
        "optimizer": settings.optimizer,
        "arguments": {**identity(compilation), "budget": vars(settings.budget)},
        "seed": settings.seed,
        "data_hash": compilation.data_hash,
        "split_data_hash": compilation.split.data_hash,
        "prompt_backend": compilation.prompt_lm.profile.name if compilation.prompt_lm else None,
        "metrics": [group.name for group, _ in compilation.plans] if compilation.metric is None else ["own"],
        "groups": plain["groups"],
        "changed": plain["changed"],
        "calibration": plain["calibration"],
        "spent": plain["spent"],
    }


class GroupRun:
    """One optimizer run on one group of stages; writes what is better into the program, in place.

    Args:
        compilation: The whole run.
        group: The stages.
        plan: Options and limits.
        program: The program so far.
        spent: Sums over all groups and starts.
        say: Progress.
        on_candidate: Called for each candidate.
    """

    def __init__(
        self,
        compilation: Compilation,
        group: Group,
        plan: OptimizerPlan,
        program: PaceMakerProgram,
        spent: Spent,
        say: Say,
        on_candidate: Callable[[str, Candidate], None] | None,
    ) -> None:
        self.settings, self.compilation = compilation.settings, compilation
        self.group, self.plan, self.program, self.spent, self.say = group, plan, program, spent, say
        self.on_candidate = on_candidate
        self.meter = Meter(spent, plan.metric_calls)
        self.metric = compilation.metric or group.metric(self.settings.weights)

    def run(self) -> GroupResult:
        """Score before, optimize, choose on dev, apply.

        Raises:
            ConfigError: No example is left, or the metric's value was refused.
            BackendError: A backend failed.
        """
        adapter = MeteredAdapter(self.meter)
        with self._context(adapter):
            sets = _unstopped(
                lambda: examples_for(
                    self.group, self.program, self.compilation.sets, self.settings, self.compilation.recorded
                )
            )
            student = self.group.student(self.program)
            scorer = Scorer(self.metric, predictor_stages(student), self.meter)
            before = _unstopped(lambda: score_examples(student, sets.dev, scorer, self.settings.threads))
            ledger = Ledger(sets.dev, self.meter, self._tell)
            ledger.add(student, before.scores)
            uncalled = tuple(name for name, n in before.calls.items() if not n)
            skipped = self._nothing_to_do(before, uncalled)
            if skipped is None:
                freeze(student, [name for name in before.calls if name not in uncalled])
                self._optimize(student, sets, scorer, adapter, ledger)
        self._refuse_failures()
        best = self._choose(ledger)
        apply(self.program, best.state)
        decisions = before.decisions if best.number == 0 else self._decisions(sets, best)
        return GroupResult(
            name=self.group.name,
            n_train=len(sets.train),
            n_dev=len(sets.dev),
            dropped=sets.dropped,
            before=before.mean,
            after=best.score,
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
        reserve = len(sets.dev)
        limit = self.meter.limit
        self.meter.limit = None if limit is None else limit - reserve
        loose: list[dspy.Module] = []
        with contextlib.suppress(Stop), _quiet(), dspy.context(callbacks=[ledger]):
            loose = list(optimize(self.settings.optimizer, self._task(student, sets, scorer, adapter)))
        if self.meter.stopped is not None and self.meter.stopped.error is None:
            self.say(f"{self.group.name}: {self.meter.stopped.reason}; the best so far is kept")
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
            options["metric_calls"] = max(1, self.plan.metric_calls - 2 * len(sets.dev))
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

    def _nothing_to_do(self, before: Scored, uncalled: tuple[str, ...]) -> str | None:
        if len(uncalled) == len(before.calls):
            return "no dev example reached the predictor"
        return "every dev example scores 1 already" if before.mean >= 1.0 else None

    def _choose(self, ledger: Ledger) -> Candidate:
        """Return the best candidate on dev that fits; of equals the first, so that the program as it was wins ties."""
        first, *others = ledger.candidates
        return max([first, *(one for one in others if fits(one.state))], key=lambda one: (one.score, -one.number))

    def _decisions(self, sets: Sets, best: Candidate) -> Any:
        """Return the decision metrics of the kept program on dev; its replies are in the cache."""
        student = thaw(self.group.student(self.program))
        apply(student, best.state)
        free = Meter(self.spent, None)
        with self._context(MeteredAdapter(free)):
            scorer = Scorer(self.metric, {}, free)
            return _unstopped(lambda: score_examples(student, sets.dev, scorer, self.settings.threads)).decisions

    def _refuse_failures(self) -> None:
        if self.meter.stopped is not None and self.meter.stopped.error is not None:
            raise self.meter.stopped.error

    def _tell(self, candidate: Candidate) -> None:
        self.say(f"{self.group.name}: candidate {candidate.number} scores {candidate.score:.3f} on dev")
        if self.on_candidate is not None:
            self.on_candidate(self.group.name, candidate)

    def _context(self, adapter: MeteredAdapter) -> Any:
        return dspy.context(lm=self.compilation.lm, adapter=adapter, disable_history=True, max_errors=1_000_000)


def calibrate(compilation: Compilation, program: PaceMakerProgram, spent: Spent) -> Calibration:
    """Fit the answerer's threshold on dev (gold facts and distractors) and set it on the program, in place.

    Raises:
        ConfigError: Too few replies came with probabilities.
        BackendError: The backend failed.
    """
    settings = compilation.settings
    group = next(group for group, _ in compilation.plans if "answerer" in group.stages)
    answerer = replace(group, name="answerer", stages=("answerer",))
    sets = examples_for(answerer, program, compilation.sets, settings, None)
    student = answerer.student(program)
    if not isinstance(student, AnswerProgram):
        raise ConfigError("calibration fits the answerer alone")
    student.answerer.threshold, student.answerer.measure = None, True
    meter = Meter(spent, None)
    adapter = MeteredAdapter(meter)
    with dspy.context(lm=compilation.lm, adapter=adapter, disable_history=True):
        scorer = Scorer(answerer.metric(settings.weights), {}, meter)
        scored = _unstopped(lambda: score_examples(student, sets.dev, scorer, settings.threads))
    measured = [
        Measured(prediction.p_conflict, example.label, prediction.decision)
        for example, prediction in zip(sets.dev, scored.predictions, strict=True)
        if prediction.p_conflict is not None
    ]
    calibration = fit_threshold(measured, settings.refusal_cost, len(sets.dev) - len(measured))
    program.answerer.threshold = calibration.threshold
    return calibration


def _unstopped(work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns; a stop outside the optimizer becomes an error.

    Raises:
        PaceError: The failure behind the stop.
        ConfigError: The budget ended before the program was scored once.
    """
    try:
        return work()
    except Stop as stop:
        if stop.error is not None:
            raise stop.error from stop
        raise ConfigError(f"{stop.reason} before the program was scored once on dev; raise --budget") from stop


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep optimizers' prints and bars off our output; their log goes to the ``dspy`` logger as ever."""
    logger = logging.getLogger("dspy")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(_Through(sys.stderr)):
            yield
    finally:
        logger.setLevel(level)


class _Through(io.StringIO):
    """Swallows progress bars (lines without an end) and passes on whole lines."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self._target = target

    def write(self, text: str) -> int:
        if text.endswith("\n") and "\r" not in text and "it/s" not in text and "rollouts" not in text:
            self._target.write(text)
        return len(text)

    def isatty(self) -> bool:
        return False


def _silent(line: str) -> None:
    """Say nothing."""
