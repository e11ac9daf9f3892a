"""What a compile run is asked to do. Plain data; every value is checked before anything is loaded or paid."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pace_dspy.errors import ConfigError

OptimizerName = Literal["labeled", "bootstrap", "bootstrap-rs", "mipro", "gepa", "simba", "none"]
NO_OPTIMIZER: OptimizerName = "none"
"""Leaves the prompts as they are; ``--calibrate`` alone fits the threshold."""
OPTIMIZERS: tuple[OptimizerName, ...] = tuple(name for name in get_args(OptimizerName) if name != NO_OPTIMIZER)

STAGE_CHOICES: dict[str, tuple[str, ...]] = {
    "all": ("planner", "views", "pre_filter", "second_look", "post_filter", "answerer"),
    "answerer": ("answerer",),
    "filters": ("pre_filter", "post_filter"),
    "post-filter": ("post_filter",),
    "second-look": ("second_look",),
    "planner,views": ("planner", "views"),
}
"""Values of ``--stages`` and the stages they mean. Stages that a config plays without a model are left out."""

_GOLD_OUTPUTS = ("answerer", "filters", "post-filter")
_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(calls?|min(?:utes)?|usd)?")


class ScoreWeights(BaseModel):
    """Weights of the scores that optimizers maximise; ours. Every score is a weighted mean and lies in [0, 1].

    Attributes:
        decision: Program score: the decision is right.
        recall: Program score: share of the gold facts in the evidence.
        no_over_refusal: Program score, requests without conflict only: it was not refused.
        judge_pass: Program score: the judge says PASS. Above 0 a judge must be given.
        answer_decision: Answerer score: the decision is right; the rest is the F1 of the cited facts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    decision: float = Field(0.5, ge=0)
    recall: float = Field(0.3, ge=0)
    no_over_refusal: float = Field(0.2, ge=0)
    judge_pass: float = Field(0.0, ge=0)
    answer_decision: float = Field(0.8, ge=0, le=1)

    @model_validator(mode="after")
    def _something_counts(self) -> ScoreWeights:
        if not self.decision + self.recall + self.judge_pass:
            raise ValueError("decision, recall and judge_pass are all 0: nothing would count")
        return self


@dataclass(frozen=True)
class Budget:
    """Limits of one compile run, kills and restarts included. ``None`` sets no limit of that kind.

    Attributes:
        metric_calls: Examples scored, before and after included.
        minutes: Wall time.
        usd: Money by the profiles' prices.
    """

    metric_calls: int | None = None
    minutes: float | None = None
    usd: float | None = None

    @classmethod
    def parse(cls, texts: tuple[str, ...]) -> Budget:
        """Read ``300``, ``300calls``, ``45min`` or ``2usd``; several limits hold together.

        Raises:
            ConfigError: Another form, zero, or the same kind twice.
        """
        found: dict[str, float] = {}
        for text in texts:
            match = _BUDGET.fullmatch(text.strip().lower())
            if match is None or float(match[1]) <= 0:
                raise ConfigError(f"--budget {text!r} is not a budget; use 300calls, 45min or 2usd (above 0)")
            kind = {"m": "minutes", "u": "usd"}.get((match[2] or "c")[0], "metric_calls")
            if kind in found:
                raise ConfigError(f"--budget gives {kind} twice; give each kind once")
            found[kind] = float(match[1])
        calls = found.get("metric_calls")
        return cls(None if calls is None else int(calls), found.get("minutes"), found.get("usd"))


@dataclass(frozen=True)
class CompileSettings:
    """What a user asked for; see ``pace-dspy compile --help`` for each field.

    Attributes:
        optimizer: One of `OPTIMIZERS`, or `NO_OPTIMIZER`.
        stages: One of `STAGE_CHOICES`; the predictors of other stages stay as they are.
        end_to_end: Score whole requests instead of one stage on frozen inputs.
        recorded: Run folder whose traces give the candidate lists of the filters; else the program makes them.
        calibrate: Fit the answerer's decision threshold on dev afterwards.
        refusal_cost: Cost of refusing a fine request, where obeying a bad one costs 1; ``None`` fits balanced
            accuracy.
        n_distractors: Facts shown to the answerer beside the gold ones.
        max_demos: Most demos a predictor gets.
    """

    optimizer: OptimizerName
    data: str
    out: Path
    stages: str = "answerer"
    backend: str = "local"
    prompt_backend: str | None = None
    config: str = "paper"
    split_file: Path | None = None
    budget: Budget = field(default_factory=Budget)
    threads: int = 1
    seed: int = 0
    program: Path | None = None
    end_to_end: bool = False
    recorded: Path | None = None
    calibrate: bool = False
    refusal_cost: float | None = None
    n_distractors: int = 6
    max_demos: int = 3
    limit: int | None = None
    embedder: str = "minilm"
    index: Path | None = None
    work: Path | None = None
    backend_settings: tuple[str, ...] = ()
    weights: ScoreWeights = field(default_factory=ScoreWeights)

    @property
    def work_folder(self) -> Path:
        """Where replies and spending are kept, so that a stopped run continues."""
        return self.work or Path("artifacts") / "runs" / f"compile-{self.out.name}"

    def checked(self) -> CompileSettings:
        """Return the settings unless a value is not allowed.

        Raises:
            ConfigError: Says which value, what is allowed, and what to do.
        """
        if self.optimizer not in (*OPTIMIZERS, NO_OPTIMIZER):
            raise ConfigError(
                f"unknown optimizer {self.optimizer!r}; optimizers: {', '.join(OPTIMIZERS)}, and {NO_OPTIMIZER} to "
                "calibrate only"
            )
        if self.stages not in STAGE_CHOICES:
            raise ConfigError(f"unknown stages {self.stages!r}; stages: {', '.join(STAGE_CHOICES)}")
        for name in ("threads", "max_demos"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, received {getattr(self, name)}")
        if self.n_distractors < 0:
            raise ConfigError(f"n_distractors must be at least 0, received {self.n_distractors}")
        if self.refusal_cost is not None and not 0 < self.refusal_cost < math.inf:
            raise ConfigError(f"refusal_cost must be a number above 0, received {self.refusal_cost}")
        if self.optimizer == NO_OPTIMIZER and not self.calibrate:
            raise ConfigError(f"optimizer {NO_OPTIMIZER} changes no prompt: add --calibrate, or choose another one")
        if self.optimizer == "labeled" and (self.end_to_end or self.stages not in _GOLD_OUTPUTS):
            raise ConfigError(
                "optimizer labeled needs gold outputs, which only the answerer and the filters have: use --stages "
                "answerer or filters without --end-to-end, or another optimizer"
            )
        if self.calibrate and "answerer" not in STAGE_CHOICES[self.stages]:
            raise ConfigError(f"--calibrate fits the answerer, which --stages {self.stages} leaves out")
        return self
