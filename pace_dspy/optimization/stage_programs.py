"""Programs of one stage: the same agent and predictor names as in `PaceMakerProgram`, on frozen inputs.

A stage program returns what the whole program does, a prediction with a (partial) typed trace, so that scores and
feedback are the same functions for both.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import attrgetter

import dspy

from pace_dspy.backends.usage import RequestLog, request_log
from pace_dspy.config import PaceMakerConfig
from pace_dspy.modules.off import KeepFirst, NoAnswerer
from pace_dspy.program import PaceMakerProgram, as_pool, candidates
from pace_dspy.retrieval import KbIndex, get_kb
from pace_dspy.steps import clash_notes
from pace_dspy.types import Candidate, FusedHit, Task, Trace


class StageProgram(dspy.Module):
    """One agent on frozen facts.

    Args:
        name: Attribute of the agent in `PaceMakerProgram`, kept here so that predictor names agree.
        agent: The agent.
        config: Config of the whole program.
    """

    def __init__(self, name: str, agent: dspy.Module, config: PaceMakerConfig) -> None:
        super().__init__()
        self.name = name
        self.config = config
        setattr(self, name, agent)

    def shown(self, task: Task, kb: KbIndex, offered: Sequence[str]) -> tuple[Candidate, ...]:
        """Return the offered facts as the agent sees them."""
        dated = task.reference_date if self.config.agents.annotate_dates else None
        return candidates(kb, (), as_pool(offered), dated)


class FilterProgram(StageProgram):
    """A filter on a frozen candidate list: the fused list (``pre_filter``) or the pool (``post_filter``)."""

    def forward(
        self, request: str, reference_date: dt.date, kb_id: str, persona: str | None, offered: Sequence[str]
    ) -> dspy.Prediction:
        """Return a prediction whose trace holds what was offered and what was kept."""
        task, kb = Task(request, reference_date, kb_id, persona), get_kb(kb_id)
        with request_log() as log:
            kept = getattr(self, self.name)(task, self.shown(task, kb, offered))
        trace = noted(Trace(kb_id, reference_date), log)
        if self.name == "pre_filter":
            fused = tuple(FusedHit(doc_id, 0.0) for doc_id in offered)
            trace = replace(trace, fused=fused, seeds=tuple(kept))
        else:
            trace = replace(trace, pool=as_pool(offered), evidence=tuple(kept))
        return dspy.Prediction(decision=None, response=None, evidence=trace.evidence, cited=(), trace=trace)


class AnswerProgram(StageProgram):
    """The answerer on frozen evidence."""

    def forward(
        self, request: str, reference_date: dt.date, kb_id: str, persona: str | None, offered: Sequence[str]
    ) -> dspy.Prediction:
        """Return a prediction with decision, response, cited facts and, where measured, ``p_conflict``."""
        task, kb = Task(request, reference_date, kb_id, persona), get_kb(kb_id)
        with request_log() as log:
            notes = clash_notes(task, kb, offered) if self.config.agents.clash_notes else ()
            answer = getattr(self, self.name)(task, self.shown(task, kb, offered), notes)
        trace = noted(Trace(kb_id, reference_date, evidence=tuple(offered), notes=tuple(notes)), log)
        return dspy.Prediction(
            decision=answer.decision,
            response=answer.response,
            evidence=trace.evidence,
            cited=answer.cited,
            trace=trace,
            p_conflict=answer.p_conflict,
        )


def noted(trace: Trace, log: RequestLog) -> Trace:
    """Return a trace with what a request's log holds."""
    return replace(trace, usage=log.usage(), fallbacks=tuple(log.fallbacks), trims=tuple(log.trims))


def stage_of(program: dspy.Module, predictor_name: str) -> str:
    """Return the stage of a predictor: that of the agent around it."""
    agent = attrgetter(predictor_name.rpartition(".")[0])(program)
    return str(agent.stage)


def predictor_stages(program: dspy.Module) -> dict[str, str]:
    """Return predictor name -> stage for every predictor that is not frozen."""
    return {name: stage_of(program, name) for name, _ in program.named_predictors()}


def freeze(program: dspy.Module, keep: Collection[str]) -> dspy.Module:
    """Freeze in place every agent whose predictor is not in ``keep``: optimizers then leave it alone.

    DSPy passes over modules marked as compiled; `thaw` undoes it.
    """
    for name, _ in program.named_predictors():
        if name not in keep:
            attrgetter(name.rpartition(".")[0])(program)._compiled = True
    return program


def thaw(program: dspy.Module) -> dspy.Module:
    """Unfreeze in place every agent, and the program itself (optimizers mark what they return)."""
    for _, module in program.named_sub_modules(dspy.Module):
        module._compiled = False
    return program


def up_to(program: PaceMakerProgram, stage: str) -> PaceMakerProgram:
    """Return a copy whose agents after ``stage`` are switched off, so that a sample costs only what it needs.

    Args:
        program: The whole program.
        stage: The last stage that still asks the model.
    """
    part: PaceMakerProgram = program.deepcopy()
    agents = part.config.agents
    order = ("planner", "views", "pre_filter", "second_look", "post_filter", "answerer")
    later = order[order.index(stage) + 1 :]
    if "pre_filter" in later:
        part.pre_filter = KeepFirst(agents.seeds)
    if "second_look" in later:
        part.second_look = None
    if "post_filter" in later:
        part.post_filter = KeepFirst(agents.evidence)
    part.answerer = NoAnswerer()
    return part


def alone(program: PaceMakerProgram, stage: str) -> StageProgram:
    """Return a copy of one agent as a program on frozen inputs."""
    kind = AnswerProgram if stage == "answerer" else FilterProgram
    return kind(stage, getattr(program, stage).deepcopy(), program.config)
