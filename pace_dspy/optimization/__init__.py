"""Compiling: metrics and feedback from the evidence funnel, DSPy's optimizers inside a budget, decision calibration."""

from pace_dspy.optimization.calibration import Calibration, Measured, fit_threshold
from pace_dspy.optimization.compile import run
from pace_dspy.optimization.compile_log import CompileLog
from pace_dspy.optimization.feedback import feedback_for
from pace_dspy.optimization.metrics import STAGE_SCORES, check_metric, program_score
from pace_dspy.optimization.result import CompileResult, GroupResult
from pace_dspy.optimization.settings import (
    NO_OPTIMIZER,
    OPTIMIZERS,
    STAGE_CHOICES,
    Budget,
    CompileSettings,
    ScoreWeights,
)
from pace_dspy.optimization.setup import Compilation, prepare
from pace_dspy.optimization.watch import Watch

__all__ = [
    "NO_OPTIMIZER",
    "OPTIMIZERS",
    "STAGE_CHOICES",
    "STAGE_SCORES",
    "Budget",
    "Calibration",
    "Compilation",
    "CompileLog",
    "CompileResult",
    "CompileSettings",
    "GroupResult",
    "Measured",
    "ScoreWeights",
    "Watch",
    "check_metric",
    "feedback_for",
    "fit_threshold",
    "prepare",
    "program_score",
    "run",
]
