"""PaceMaker as a declarative DSPy program: find the few decisive facts, then decide.

The public names are imported at first use, so that the command line starts (and can be stopped) at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "PaceMakerConfig": "config",
    "PaceMakerProgram": "program",
    "load_kb": "data",
    "load_pace": "data",
    "load_program": "artifacts",
    "make_embedder": "retrieval",
    "make_lm": "backends.lm",
    "open_kb": "knowledge",
    "save_program": "artifacts",
    "use_backend": "backends.lm",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
