"""A compiled program as an MLflow model: ``mlflow.pyfunc.load_model("runs:/RUN_ID/program")``. JSON only, no pickle.

MLflow calls `_load_pyfunc` with the folder that `pace_dspy.tracking.Tracker.program` stored. Predicting needs a
language model in DSPy's settings (`pace_dspy.use_backend`) and the knowledge base in the registry, as everywhere else.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pace_dspy.artifacts import load_program, read_manifest
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.program import PaceMakerProgram

INPUTS = ("request", "reference_date", "kb_id")


class TrackedProgram:
    """What MLflow's generic model wraps.

    Args:
        program: The loaded program.
    """

    def __init__(self, program: PaceMakerProgram) -> None:
        self.program = program

    def get_raw_model(self) -> PaceMakerProgram:
        """Return the DSPy program (``model.get_raw_model()`` in MLflow)."""
        return self.program

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Check requests.

        Args:
            model_input: A data frame, or a list of records, with ``request``, ``reference_date`` (a date or
                YYYY-MM-DD), ``kb_id`` and, if known, ``persona``.
            params: Not used; MLflow passes it.

        Returns:
            ``decision``, ``response``, ``evidence`` and ``cited``, one record a request.

        Raises:
            ConfigError: A column is missing.
        """
        records = model_input.to_dict("records") if hasattr(model_input, "to_dict") else list(model_input)
        return [self._one(record) for record in records]

    def _one(self, record: Mapping[str, Any]) -> dict[str, Any]:
        missing = [name for name in INPUTS if name not in record]
        if missing:
            raise ConfigError(f"a request needs {', '.join(INPUTS)}; {', '.join(missing)} is missing")
        day = record["reference_date"]
        made = self.program(
            request=record["request"],
            reference_date=dt.date.fromisoformat(day) if isinstance(day, str) else day,
            kb_id=record["kb_id"],
            persona=record.get("persona"),
        )
        return {name: made[name] for name in ("decision", "response", "evidence", "cited")}


def _load_pyfunc(path: str) -> TrackedProgram:
    """Load the program of an MLflow model folder, for the config and backend that its manifest names."""
    manifest = read_manifest(Path(path))
    config = PaceMakerConfig.parse(manifest.get("config", {}), source=path)
    return TrackedProgram(load_program(Path(path), config, backend=str(manifest.get("backend"))))
