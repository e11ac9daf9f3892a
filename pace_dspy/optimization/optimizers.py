"""DSPy's optimizers behind one call. Thin: they get a student, train and dev examples, and a metric; we keep the rest.

What differs from their defaults: ``valset`` is always the dev side; nothing is bootstrapped in more than one round
(a second one would sample at temperature 1); labelled demos only where examples carry gold outputs; the order of the
training examples follows our seed, because three of them shuffle with a fixed one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.teleprompt import GEPA, SIMBA, BootstrapFewShot, BootstrapFewShotWithRandomSearch, LabeledFewShot, MIPROv2
from dspy.teleprompt.gepa import InstructionProposer

from pace_dspy.backends.lm import BackendLM
from pace_dspy.errors import MissingExtraError
from pace_dspy.optimization.meter import MeteredAdapter
from pace_dspy.optimization.scorer import Scorer
from pace_dspy.optimization.settings import OptimizerName
from pace_dspy.optimization.snapshot import INSTRUCTION_CHARS

RICH_WINDOW = 32_000
"""Least window of a prompt model that is shown the program's code and a summary of the data. Ours."""


@dataclass(frozen=True)
class Task:
    """One optimizer run.

    Attributes:
        student: The program; agents that must not change are frozen.
        train: What is learned from.
        dev: ``valset``.
        scorer: The metric.
        adapter: The metered boundary.
        lm: Model of the agents.
        prompt_lm: Model that proposes.
        options: Of the plan (`pace_dspy.optimization.budget`).
        max_demos: Most demos of a predictor.
        threshold: Least score, above 0, of a trace that becomes a demo.
        labelled: Whether examples carry the gold outputs of the one predictor.
        seed: Seed of every draw.
        threads: Examples in flight.
    """

    student: dspy.Module
    train: Sequence[dspy.Example]
    dev: Sequence[dspy.Example]
    scorer: Scorer
    adapter: MeteredAdapter
    lm: BackendLM
    prompt_lm: BackendLM | None
    options: Mapping[str, Any]
    max_demos: int
    threshold: float
    labelled: bool
    seed: int
    threads: int

    @property
    def shuffled(self) -> list[dspy.Example]:
        """The training examples in an order that depends on the seed only."""
        examples = list(self.train)
        random.Random(self.seed).shuffle(examples)
        return examples

    @property
    def labelled_demos(self) -> int:
        """Labelled demos an optimizer may use."""
        return self.max_demos if self.labelled else 0


def optimize(name: OptimizerName, task: Task) -> Sequence[dspy.Module]:
    """Run an optimizer; its candidates are scored on dev by itself, except where it cannot.

    Returns:
        Programs that the caller must still score on dev, best first (LabeledFewShot, BootstrapFewShot and SIMBA
        never see a dev side).

    Raises:
        Stop: The budget ended or a backend failed.
        MissingExtraError: ``mipro`` without Optuna.
    """
    return _RUNS[name](task)


def check_installed(name: OptimizerName) -> None:
    """Refuse an optimizer whose dependency is missing.

    Raises:
        MissingExtraError: Holds the pip line.
    """
    if name == "mipro":
        try:
            import optuna  # noqa: F401
        except ImportError as exc:
            raise MissingExtraError("optuna", "compile") from exc


def needs_prompt_model(name: OptimizerName) -> bool:
    """Return whether an optimizer asks a model for proposals."""
    return name in ("mipro", "gepa", "simba")


def _labeled(task: Task) -> Sequence[dspy.Module]:
    return [LabeledFewShot(k=task.max_demos).compile(task.student, trainset=task.shuffled)]


def _bootstrap(task: Task) -> Sequence[dspy.Module]:
    optimizer = BootstrapFewShot(
        metric=task.scorer,
        metric_threshold=task.threshold,
        max_bootstrapped_demos=task.max_demos,
        max_labeled_demos=task.labelled_demos,
    )
    return [optimizer.compile(task.student, trainset=task.shuffled)]


def _bootstrap_rs(task: Task) -> Sequence[dspy.Module]:
    candidates = task.options["candidates"]
    optimizer = BootstrapFewShotWithRandomSearch(
        metric=task.scorer,
        metric_threshold=task.threshold,
        max_bootstrapped_demos=task.max_demos,
        max_labeled_demos=task.labelled_demos,
        num_candidate_programs=candidates,
        num_threads=task.threads,
    )
    # -3 is the program as it was, scored before; -2 has labelled demos only.
    seeds = [*([-2] if task.labelled else []), -1, *range(candidates)][:candidates]
    optimizer.compile(task.student, trainset=task.shuffled, valset=list(task.dev), restrict=seeds)
    return []


def _mipro(task: Task) -> Sequence[dspy.Module]:
    optimizer = MIPROv2(
        metric=task.scorer,
        prompt_model=task.prompt_lm,
        task_model=task.lm,
        auto=None,
        num_candidates=task.options["candidates"],
        max_bootstrapped_demos=task.max_demos,
        max_labeled_demos=task.labelled_demos,
        metric_threshold=task.threshold,
        num_threads=task.threads,
        seed=task.seed,
        track_stats=False,
    )
    window = task.prompt_lm.profile.window if task.prompt_lm is not None else None
    rich = window is None or window >= RICH_WINDOW
    optimizer.compile(
        task.student,
        trainset=task.shuffled,
        valset=list(task.dev),
        num_trials=task.options["trials"],
        minibatch=False,
        program_aware_proposer=rich,
        data_aware_proposer=rich,
        view_data_batch_size=5,
    )
    return []


def _gepa(task: Task) -> Sequence[dspy.Module]:
    optimizer = GEPA(
        metric=task.scorer,
        max_metric_calls=task.options["metric_calls"],
        reflection_minibatch_size=min(task.options["batch"], len(task.train)),
        reflection_lm=task.prompt_lm,
        instruction_proposer=InstructionProposer(max_chars=INSTRUCTION_CHARS, adapter=task.adapter),
        component_selector=CalledInTurn(task.student),
        num_threads=task.threads,
        use_merge=False,
        warn_on_score_mismatch=False,
        seed=task.seed,
    )
    optimizer.compile(task.student, trainset=list(task.train), valset=list(task.dev))
    return []


def _simba(task: Task) -> Sequence[dspy.Module]:
    optimizer = SIMBA(
        metric=task.scorer,
        bsize=task.options["batch"],
        num_candidates=task.options["candidates"],
        max_steps=task.options["steps"],
        max_demos=task.max_demos,
        prompt_model=task.prompt_lm,
        num_threads=task.threads,
    )
    best = optimizer.compile(task.student, trainset=list(task.train), seed=task.seed)
    return [entry["program"] for entry in best.candidate_programs]


_RUNS = {
    "labeled": _labeled,
    "bootstrap": _bootstrap,
    "bootstrap-rs": _bootstrap_rs,
    "mipro": _mipro,
    "gepa": _gepa,
    "simba": _simba,
}


class CalledInTurn:
    """GEPA's choice of predictor: in turn, among those that the sampled examples reached.

    GEPA's own round robin picks a predictor that was never called as well and then fails for want of feedback.

    Args:
        program: The student; its predictors are told apart by the fields of their signatures.
    """

    def __init__(self, program: dspy.Module) -> None:
        self.fields = {name: tuple(predictor.signature.fields) for name, predictor in program.named_predictors()}
        self.turns: Counter[tuple[int, str]] = Counter()

    def __call__(
        self, state: Any, trajectories: list[Any], scores: list[float], candidate_idx: int, candidate: dict[str, str]
    ) -> list[str]:
        """Return the one predictor to improve next; none when no example reached any."""
        reached = {tuple(step[0].signature.fields) for trajectory in trajectories for step in trajectory["trace"]}
        called = {name for name in candidate if self.fields.get(name) in reached}
        if not called:
            return []
        chosen = min((name for name in candidate if name in called), key=lambda name: self.turns[candidate_idx, name])
        self.turns[candidate_idx, chosen] += 1
        return [chosen]
