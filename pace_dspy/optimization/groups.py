"""Groups of stages that are compiled together, and the frozen inputs each one learns on."""

from __future__ import annotations

import contextvars
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import dspy

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.store import RunStore
from pace_dspy.optimization.examples import Key, Sets, answer_sets, filter_sets
from pace_dspy.optimization.metrics import STAGE_SCORES, Metric, score_of_program
from pace_dspy.optimization.settings import STAGE_CHOICES, CompileSettings, ScoreWeights
from pace_dspy.optimization.stage_programs import alone, freeze, predictor_stages, up_to
from pace_dspy.program import PaceMakerProgram
from pace_dspy.types import Candidate, Dataset, FusedHit, PoolFact, Task, Trace

END_TO_END = "end to end"
_TOGETHER = (("planner", "views"), ("pre_filter",), ("second_look",), ("post_filter",), ("answerer",))
_THRESHOLDS = {"planner,views": 0.5, "second_look": 0.5, END_TO_END: 0.7}
_FILTERS = ("pre_filter", "post_filter")


@dataclass(frozen=True)
class Group:
    """Stages compiled together.

    Attributes:
        name: Their names, or ``end to end``.
        stages: The stages.
        predictors: Names of their predictors.
    """

    name: str
    stages: tuple[str, ...]
    predictors: tuple[str, ...]

    @property
    def staged(self) -> bool:
        """Whether a sample is one agent on frozen facts."""
        return self.name in (*_FILTERS, "answerer")

    @property
    def threshold(self) -> float:
        """Least score of a trace that becomes a demo. Ours: low where a perfect score is rare."""
        return _THRESHOLDS.get(self.name, 0.9)

    def student(self, program: PaceMakerProgram) -> dspy.Module:
        """Return the program that an optimizer works on: a copy, with every other agent frozen or off."""
        if self.staged:
            return alone(program, self.name)
        part = program.deepcopy() if self.name == END_TO_END else up_to(program, self.stages[-1])
        return freeze(part, self.predictors)

    def metric(self, weights: ScoreWeights) -> Metric:
        """Return the score of the group as ``metric(example, prediction, trace=None)``."""
        score = score_of_program if self.name == END_TO_END else STAGE_SCORES[self.stages[-1]]

        def metric(example: dspy.Example, prediction: dspy.Prediction, trace: object = None) -> float:
            return score(example, prediction, weights)

        metric.__name__ = f"{self.name.replace(',', '_').replace(' ', '_')}_score"
        return metric


def groups_of(program: PaceMakerProgram, settings: CompileSettings) -> tuple[Group, ...]:
    """Return the groups that the settings ask for and the program has, in pipeline order.

    Raises:
        ConfigError: The config plays none of these stages with a model.
    """
    wanted = STAGE_CHOICES[settings.stages]
    by_stage: dict[str, list[str]] = {}
    for name, stage in predictor_stages(program).items():
        if stage in wanted:
            by_stage.setdefault(stage, []).append(name)
    if not by_stage:
        raise ConfigError(
            f"config {program.config.name!r} asks no model in stages {settings.stages}; it asks one in: "
            f"{', '.join(dict.fromkeys(predictor_stages(program).values())) or 'none'}"
        )
    parts: Sequence[tuple[str, ...]] = (tuple(by_stage),) if settings.end_to_end else _TOGETHER
    found = []
    for part in parts:
        stages = tuple(stage for stage in part if stage in by_stage)
        if stages:
            name = END_TO_END if settings.end_to_end else ",".join(stages)
            found.append(Group(name, stages, tuple(name for stage in stages for name in by_stage[stage])))
    return tuple(found)


def examples_for(
    group: Group,
    program: PaceMakerProgram,
    sets: Sets,
    settings: CompileSettings,
    recorded: Mapping[Key, Trace] | None,
) -> Sets:
    """Return the examples of a group; a filter's candidates come from recorded traces or are made once.

    Raises:
        ConfigError: A side has no example left.
        Stop: Making candidates hit a limit or a failure.
    """
    made, dated = sets, program.config.agents.annotate_dates
    if group.name == "answerer":
        made = answer_sets(sets, settings.n_distractors, settings.seed, dated=dated)
    elif group.staged:
        agent = getattr(program, group.name)
        traces = recorded if recorded is not None else make_traces(group, program, sets, settings.threads)
        made = filter_sets(sets, group.name, traces, agent.keep, agent.output, dated=dated)
    for part, side in (("train", made.train), ("dev", made.dev)):
        if not side:
            reasons = ", ".join(f"{reason}: {n}" for reason, n in made.dropped.items()) or "none given"
            raise ConfigError(
                f"stage {group.name} has no {part} example left ({reasons}); use more data, or another recorded run"
            )
    return made


def make_traces(group: Group, program: PaceMakerProgram, sets: Sets, threads: int) -> dict[Key, Trace]:
    """Run the earlier stages once on every request and return what they gave."""
    part = up_to(program, group.name)
    keep = getattr(program, group.name).keep
    setattr(part, group.name, _KeepFirst(keep))
    return dict(_run_all(part, (*sets.train, *sets.dev), threads))


def recorded_traces(folder: Path, sets: Sets, dataset: Dataset) -> dict[Key, Trace]:
    """Read the fused lists and pools of a finished run, for the train and dev requests only.

    Raises:
        ConfigError: No run folder, no row of these requests, or a fact that the data does not have.
    """
    store = RunStore(folder)
    wanted = {(example.case_id, example.query_id) for example in (*sets.train, *sets.dev)}
    rows = [row for row in store.rows() if row["error"] is None and (row["case_id"], row["query_id"]) in wanted]
    store.close()
    if not rows:
        raise ConfigError(f"run folder {folder} has no finished request of the train or dev personas; run them first")
    facts = {case.case_id: {fact.doc_id for fact in case.facts} for case in dataset.cases}
    traces = {}
    for row in rows:
        trace = _trace(row["case_id"], row["trace"])
        known = facts[row["case_id"]]
        ids = [*(hit.doc_id for hit in trace.fused), *(fact.doc_id for fact in trace.pool)]
        unknown = [doc_id for doc_id in ids if doc_id not in known]
        if unknown:
            raise ConfigError(f"run folder {folder} is of other data: case {row['case_id']} has no fact {unknown[0]!r}")
        traces[(row["case_id"], row["query_id"])] = trace
    return traces


class _KeepFirst(dspy.Module):
    """Stands in for the filter whose candidates are wanted."""

    def __init__(self, keep: int) -> None:
        super().__init__()
        self.keep = keep

    def forward(self, task: Task, candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """Return the ids kept."""
        return tuple(candidate.doc_id for candidate in candidates[: self.keep])


def _run_all(part: dspy.Module, examples: Sequence[dspy.Example], threads: int) -> list[tuple[Key, Trace]]:
    def one(example: dspy.Example) -> tuple[Key, Trace]:
        return (example.case_id, example.query_id), part(**example.inputs()).trace

    run: Callable[..., tuple[Key, Trace]] = one
    with ThreadPoolExecutor(threads, thread_name_prefix="pace-compile") as pool:
        waiting = [pool.submit(contextvars.copy_context().run, run, example) for example in examples]
        try:
            return [future.result() for future in waiting]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _trace(case_id: str, raw: Mapping[str, object]) -> Trace:
    fused: Sequence[Mapping[str, str]] = raw["fused"]  # type: ignore[assignment]
    looks: Sequence[Mapping[str, Sequence[Mapping[str, str]]]] = raw.get("looks") or ()  # type: ignore[assignment]
    pool: Sequence[Mapping[str, str]] = raw["pool"]  # type: ignore[assignment]
    last = next((look["pool"] for look in reversed(looks) if look["pool"]), pool)
    kept: Sequence[str] = raw.get("prefiltered") or ()  # type: ignore[assignment]
    return Trace(
        case_id,
        dt.date.min,
        fused=tuple(FusedHit(hit["doc_id"], 0.0) for hit in fused),
        pool=tuple(PoolFact(fact["doc_id"], 0) for fact in last if not kept or fact["doc_id"] in kept),
    )
