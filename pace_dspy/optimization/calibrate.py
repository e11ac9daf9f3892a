"""Measuring dev with token probabilities, and setting the fitted threshold on the program. Ours."""

from __future__ import annotations

from dataclasses import replace

import dspy

from pace_dspy.optimization.calibration import Calibration, Measured, fit_threshold
from pace_dspy.optimization.examples import Sets
from pace_dspy.optimization.groups import Group, examples_for
from pace_dspy.optimization.meter import Meter, MeteredAdapter, Spent, unstopped
from pace_dspy.optimization.scorer import Scorer
from pace_dspy.optimization.scoring import score_examples
from pace_dspy.optimization.setup import Compilation
from pace_dspy.optimization.watch import Watch
from pace_dspy.program import PaceMakerProgram


def calibrate(compilation: Compilation, program: PaceMakerProgram, spent: Spent, watch: Watch) -> Calibration:
    """Fit the answerer's threshold on dev and set it on the program, in place.

    The answerer reads gold facts and distractors, or, end to end, the evidence that the program finds: a threshold
    holds for the kind of evidence it was fitted on.

    Raises:
        ConfigError: Too few replies came with probabilities.
        BackendError: The backend failed.
    """
    settings = compilation.settings
    group = next(planned.group for planned in compilation.forecasts if "answerer" in planned.group.stages)
    student, sets = (
        _alone(group, program, compilation)
        if not settings.end_to_end
        else (
            program.deepcopy(),
            compilation.sets,
        )
    )
    student.answerer.threshold, student.answerer.measure = None, True
    meter = Meter(spent, None, lambda done: watch.scored("calibration", done))
    with dspy.context(lm=compilation.lm, adapter=MeteredAdapter(meter), disable_history=True):
        scorer = Scorer(group.metric(settings.weights), {}, meter)
        scored = unstopped(lambda: score_examples(student, sets.dev, scorer, settings.threads))
    measured = [
        Measured(prediction.p_conflict, example.label, prediction.decision)
        for example, prediction in zip(sets.dev, scored.predictions, strict=True)
        if prediction.p_conflict is not None
    ]
    calibration = fit_threshold(measured, settings.refusal_cost, len(sets.dev) - len(measured))
    program.answerer.threshold = calibration.threshold
    return calibration


def _alone(group: Group, program: PaceMakerProgram, compilation: Compilation) -> tuple[dspy.Module, Sets]:
    answerer = replace(group, name="answerer", stages=("answerer",))
    sets = examples_for(answerer, program, compilation.sets, compilation.settings, None)
    return answerer.student(program), sets
