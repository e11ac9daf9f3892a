"""PaceMaker as a declarative DSPy program: find the few decisive facts, then decide."""

from pace_dspy.artifacts import load_program, save_program
from pace_dspy.backends.lm import make_lm, use_backend
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_kb, load_pace
from pace_dspy.knowledge import open_kb
from pace_dspy.program import PaceMakerProgram
from pace_dspy.retrieval import make_embedder

__all__ = [
    "PaceMakerConfig",
    "PaceMakerProgram",
    "load_kb",
    "load_pace",
    "load_program",
    "make_embedder",
    "make_lm",
    "open_kb",
    "save_program",
    "use_backend",
]
