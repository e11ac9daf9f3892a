"""The one object that DSPy's optimizers call as ``metric``: it scores, counts, checks, and gives feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from pace_dspy.errors import ConfigError
from pace_dspy.optimization.feedback import feedback_for
from pace_dspy.optimization.meter import Meter
from pace_dspy.optimization.metrics import Metric, checked_value


class Scorer:
    """A metric in the form of every DSPy optimizer, GEPA included.

    With a predictor's name it returns score and feedback for that predictor (not counted: nothing is run for it), else
    the score, with or without ``trace``. A prediction that is ``None`` (the program raised) scores 0.0.

    Args:
        metric: Scores a prediction in [0, 1].
        stages: Predictor name -> stage, for feedback.
        meter: Counts every scored example.
    """

    def __init__(self, metric: Metric, stages: Mapping[str, str], meter: Meter) -> None:
        self.metric, self.stages, self.meter = metric, stages, meter
        self.__name__ = getattr(metric, "__name__", "metric")

    def __call__(
        self,
        example: dspy.Example,
        prediction: dspy.Prediction | None,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> Any:
        """Return the score, or ``dspy.Prediction(score, feedback)`` when a predictor is named.

        Raises:
            Stop: The budget is used up, or the metric's value is refused.
        """
        if pred_name is not None:
            score = self._value(example, prediction)
            return dspy.Prediction(score=score, feedback=feedback_for(self.stages[pred_name], example, prediction))
        self.meter.before_score()
        return self._value(example, prediction)

    def _value(self, example: dspy.Example, prediction: dspy.Prediction | None) -> float:
        if prediction is None:
            return 0.0
        try:
            return checked_value(self.metric(example, prediction, None), self.__name__)
        except ConfigError as exc:
            raise self.meter.stop(str(exc), exc) from exc
        except Exception as exc:
            error = ConfigError(f"metric {self.__name__} failed with {type(exc).__name__}: {exc}")
            raise self.meter.stop(str(error), error) from exc
