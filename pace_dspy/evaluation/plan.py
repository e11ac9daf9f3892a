"""From run settings to jobs: everything that can be wrong is found here, before the first request is spent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from pace_dspy.artifacts import fingerprint, load_program
from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import BackendLM, make_lm
from pace_dspy.backends.overrides import parse_settings
from pace_dspy.backends.preflight import preflight
from pace_dspy.backends.roles import attach_answer_lm, make_role_lms
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import PARTS, load_mini_split, load_pace, load_split, select_split
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.provenance import RunManifest, git_commit, versions
from pace_dspy.evaluation.runner import Job, Limits, Outcome, run_jobs
from pace_dspy.evaluation.sample import spread
from pace_dspy.evaluation.store import RunStore
from pace_dspy.knowledge import open_cases
from pace_dspy.methods import CheckRequest, Program, make_check, make_program, without_model
from pace_dspy.retrieval import make_embedder
from pace_dspy.types import Dataset

NO_BACKEND = "none"
ALL = "all"


@dataclass(frozen=True)
class RunSettings:
    """What a user asked for; see ``pace-dspy run --help`` for each field."""

    data: str
    method: str = "pacemaker"
    backend: str = "local"
    answer_backend: str | None = None
    backend_settings: tuple[str, ...] = ()
    config: str = "paper"
    cases: tuple[str, ...] = ()
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    split_file: Path | None = None
    part: str = "all"
    concurrency: int | None = None
    embedder: str = "minilm"
    index: Path | None = None
    program: Path | None = None
    cache: bool = True


@dataclass(frozen=True)
class Plan:
    """A run that is ready to start (or to be continued)."""

    config: PaceMakerConfig
    dataset: Dataset
    jobs: tuple[Job, ...]
    store: RunStore
    program: Program
    lm: BackendLM | None
    concurrency: int

    def run(
        self,
        limits: Limits,
        on_row: Callable[[dict[str, Any], Outcome], None] | None = None,
        wrap: Callable[[CheckRequest], CheckRequest] | None = None,
    ) -> Outcome:
        """Run what is not finished.

        Args:
            limits: Money and time.
            on_row: Called after each committed row.
            wrap: Put around the method, for example to record traces; must not change its results.
        """
        check = make_check(self.program)
        with ExitStack() as stack:
            if self.lm is not None:
                stack.enter_context(dspy.context(lm=self.lm))
            return run_jobs(
                check if wrap is None else wrap(check),
                self.jobs,
                self.store,
                concurrency=self.concurrency,
                limits=limits,
                on_row=on_row,
            )


def prepare(settings: RunSettings, out: Path, *, on_note: Callable[[str], None] | None = None) -> Plan:
    """Load data, program and models, open the indexes and the run folder.

    Args:
        settings: What to run.
        out: The run folder.
        on_note: Called with short messages (a program compiled on another backend).

    Raises:
        ConfigError: Any setting that does not fit; DataError for bad data; MissingKeyError without a needed key.
    """
    config = PaceMakerConfig.load(settings.config)
    if settings.backend == NO_BACKEND:
        config = without_model(settings.method, config)
    dataset, split_hash = select_data(settings)
    program = _program(settings, config, on_note)
    lm, answer_lm = _models(settings, config)
    attach_answer_lm(program, answer_lm)
    embedder = make_embedder(settings.embedder)
    preflight(lm, program)
    jobs = chosen_jobs(settings, dataset)
    manifest = RunManifest(
        method=settings.method,
        config=config.model_dump(mode="json"),
        dataset=dataset.name,
        dataset_hash=dataset.content_hash,
        split=split_hash,
        part=settings.part,
        backends={"agents": _identity(lm), "answerer": _identity(answer_lm or lm)},
        embedder=embedder.id,
        program=None if settings.program is None else fingerprint(settings.program),
        seed=settings.seed,
        arguments={
            "cases": list(settings.cases),
            "limit": settings.limit,
            "sample": settings.sample,
            "concurrency": settings.concurrency,
            "set": list(settings.backend_settings),
        },
        git_commit=git_commit(),
        versions=versions(),
    )
    store = RunStore.open(out, manifest)
    wanted = {job.request.case_id for job in jobs}
    kb_ids = open_cases(
        [case for case in dataset.cases if case.case_id in wanted],
        embedder,
        folder=settings.index,
        graph_k=config.retrieval.graph_k,
    )
    jobs = tuple(Job(job.request, kb_ids[job.request.case_id], job.persona, job.position) for job in jobs)
    slots = lm.profile.slots if lm is not None else 1
    return Plan(config, dataset, jobs, store, program, lm, settings.concurrency or slots)


def select_data(settings: RunSettings) -> tuple[Dataset, str | None]:
    """Return the dataset, restricted to the split part asked for, and the split's hash.

    Raises:
        ConfigError: Unknown part, or a part without a split.
    """
    dataset = load_pace(settings.data)
    if settings.part == ALL:
        if settings.split_file is not None:
            raise ConfigError(f"--split-file needs --part; parts: {', '.join(PARTS)}")
        return dataset, None
    part = next((part for part in PARTS if part == settings.part), None)
    if part is None:
        raise ConfigError(f"unknown part {settings.part!r}; parts: {', '.join((ALL, *PARTS))}")
    if settings.split_file is not None:
        split = load_split(settings.split_file, dataset)
    elif settings.data == "mini":
        split = load_mini_split(dataset)
    else:
        raise ConfigError(f"--part {settings.part} needs --split-file; make one with `pace-dspy data split`")
    return select_split(dataset, split, part), _text_hash(repr(split))


def _program(settings: RunSettings, config: PaceMakerConfig, on_note: Callable[[str], None] | None) -> Program:
    if settings.program is None:
        return make_program(settings.method, config)
    if settings.method != "pacemaker":
        raise ConfigError(f"--program is a compiled PaceMaker; --method {settings.method} cannot use it")
    return load_program(settings.program, config, backend=settings.backend, warn=on_note)


def _models(settings: RunSettings, config: PaceMakerConfig) -> tuple[BackendLM | None, BackendLM | None]:
    changes = {**config.backend, **parse_settings(settings.backend_settings)}
    if settings.backend == NO_BACKEND:
        if settings.answer_backend:
            raise ConfigError("--answer-backend needs a --backend other than none")
        if settings.backend_settings:
            raise ConfigError("--set changes a backend's profile; it needs a --backend other than none")
        return None, None
    cache = ReplyCache() if settings.cache else None
    make = partial(make_lm, reply_cache=cache, seed=settings.seed)
    return make_role_lms(make, settings.backend, settings.answer_backend, changes)


def chosen_jobs(settings: RunSettings, dataset: Dataset) -> tuple[Job, ...]:
    """Return the requests that the settings ask for, in data order.

    Raises:
        ConfigError: An unknown persona, both a limit and a sample, or nothing to run.
    """
    known = [case.case_id for case in dataset.cases]
    unknown = [case_id for case_id in settings.cases if case_id not in known]
    if unknown:
        raise ConfigError(f"no case {', '.join(unknown)} in {settings.data}; cases: {', '.join(known)}")
    pairs = [(case, request) for case in dataset.cases for request in case.requests]
    jobs = [
        Job(request, case.case_id, case.persona, position)
        for position, (case, request) in enumerate(pairs)
        if not settings.cases or case.case_id in settings.cases
    ]
    if not jobs:
        raise ConfigError(f"{settings.data} holds no request to run")
    if settings.sample is None:
        return tuple(jobs[: settings.limit])
    if settings.limit is not None:
        raise ConfigError("--limit takes the first requests, --sample spreads them over personas; give one of them")
    return spread(jobs, settings.sample)


def _identity(lm: BackendLM | None) -> str | None:
    return None if lm is None else lm.label


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
