"""From run settings to jobs: everything that can be wrong is found here, before the first request is spent."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import dspy

from pace_dspy.artifacts import fingerprint, load_program
from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import BackendLM, make_lm
from pace_dspy.backends.overrides import parse_settings
from pace_dspy.backends.preflight import preflight
from pace_dspy.backends.roles import attach_answer_lm, make_role_lms
from pace_dspy.batch.files import FOLDER_NAME
from pace_dspy.batch.rounds import AGENTS, Rounds, open_rounds, require_batch
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import PARTS, load_mini_split, load_pace, load_split, select_split
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.flight import OnRow
from pace_dspy.evaluation.provenance import RunManifest, git_commit, versions
from pace_dspy.evaluation.recording import Recording, recorded
from pace_dspy.evaluation.runner import Job, Limits, Outcome, run_jobs
from pace_dspy.evaluation.sample import spread
from pace_dspy.evaluation.store import MANIFEST_NAME, RunStore
from pace_dspy.knowledge import open_cases
from pace_dspy.methods import Program, make_check, make_program, without_model
from pace_dspy.retrieval import make_embedder
from pace_dspy.types import Dataset

logger = logging.getLogger(__name__)

NO_BACKEND = "none"
ALL = "all"
BATCH = "batch"
THREADS, RAY = "threads", "ray"
EXECUTORS = (THREADS, RAY)
"""Where requests run: threads of this process, or workers of a Ray cluster."""


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
    executor: str = THREADS
    workers: int | None = None
    batch: Path | None = None


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
    settings: RunSettings
    on_note: Callable[[str], None] | None = None
    rounds: Rounds = field(default_factory=Rounds)

    def run(
        self,
        limits: Limits,
        on_row: OnRow | None = None,
        recording: Recording | None = None,
    ) -> Outcome:
        """Run what is not finished.

        Args:
            limits: Money and time.
            on_row: See `pace_dspy.evaluation.flight.run_work`.
            recording: Which requests get their spans recorded, and who takes them.
        """
        work = partial(self._run, on_row=on_row, recording=recording)
        return self.rounds.run(work, [job.key for job in self.jobs], self.store.finished, limits)

    def _run(self, limits: Limits, *, on_row: OnRow | None, recording: Recording | None) -> Outcome:
        if self.settings.executor == RAY and not {job.key for job in self.jobs} <= self.store.finished():
            return self._spread(limits, on_row, recording)
        with ExitStack() as stack:
            if self.lm is not None:
                stack.enter_context(dspy.context(lm=self.lm))
            return run_jobs(
                recorded(make_check(self.program), recording),
                self.jobs,
                self.store,
                concurrency=self.concurrency,
                limits=limits,
                on_row=on_row,
            )

    def _spread(
        self,
        limits: Limits,
        on_row: OnRow | None,
        recording: Recording | None,
    ) -> Outcome:
        from pace_dspy.evaluation.spread import run_spread
        from pace_dspy.evaluation.worker import WorkerSpec

        compiled = self.settings.program is not None
        index = self.settings.index
        spec = WorkerSpec(
            settings=replace(self.settings, index=None if index is None else index.absolute()),
            config=self.config.model_dump(mode="json"),
            state=self.program.dump_state() if compiled else None,
            threshold=getattr(self.program.answerer, "threshold", None) if compiled else None,
            trace_share=0.0 if recording is None else recording.share,
        )
        return run_spread(
            spec,
            {case.case_id: case for case in self.dataset.cases},
            self.jobs,
            self.store,
            n_workers=self.settings.workers,
            concurrency=self.settings.concurrency,
            slots=self.concurrency,
            limits=limits,
            on_row=on_row,
            recording=recording,
            on_note=self.on_note or logger.info,
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
    check_executor(settings)
    config = PaceMakerConfig.load(settings.config)
    if settings.backend == NO_BACKEND:
        config = without_model(settings.method, config)
    dataset, split_hash = select_data(settings)
    program = _program(settings, config, on_note)
    lm, answer_lm = make_models(settings, config)
    attach_answer_lm(program, answer_lm)
    rounds = open_rounds(settings.batch or out / FOLDER_NAME, [(AGENTS, lm), ("answer", answer_lm)])
    require_batch(rounds, settings.batch)
    embedder = make_embedder(settings.embedder)
    jobs = chosen_jobs(settings, dataset)
    if unfinished(out, jobs):
        preflight(lm, program)
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
            "executor": settings.executor,
        },
        git_commit=git_commit(),
        versions=versions(),
    )
    store = RunStore.open(out, manifest)
    if settings.executor == THREADS:
        wanted = {job.request.case_id for job in jobs}
        open_cases(
            [case for case in dataset.cases if case.case_id in wanted],
            embedder,
            folder=settings.index,
            graph_k=config.retrieval.graph_k,
        )
    slots = lm.profile.slots if lm is not None else 1
    return Plan(config, dataset, jobs, store, program, lm, settings.concurrency or slots, settings, on_note, rounds)


def check_executor(settings: RunSettings) -> None:
    """Refuse an executor that cannot be had.

    Raises:
        ConfigError: Unknown executor, or workers without Ray.
        MissingExtraError: Ray is not installed.
    """
    if settings.executor not in EXECUTORS:
        raise ConfigError(f"unknown executor {settings.executor!r}; executors: {', '.join(EXECUTORS)}")
    if settings.workers is not None and settings.executor != RAY:
        raise ConfigError(f"--workers needs --executor {RAY}; threads take --concurrency")
    if settings.executor == RAY:
        if BATCH in (settings.backend, settings.answer_backend):
            raise ConfigError(f"--executor {RAY} cannot use backend {BATCH}, whose rounds are files of one machine")
        from pace_dspy.evaluation.spread import require_ray

        require_ray()


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


def make_models(settings: RunSettings, config: PaceMakerConfig) -> tuple[BackendLM | None, BackendLM | None]:
    """Return the model of all agents, and the answerer's where it differs; ``None`` for a run without a model.

    Raises:
        ConfigError: Unknown backend or setting.
        MissingKeyError: A needed key or address is not set.
    """
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


def unfinished(folder: Path, jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return the requests that a run folder, which need not exist yet, has no answer to."""
    if not (folder / MANIFEST_NAME).is_file():
        return tuple(jobs)
    store = RunStore(folder)
    try:
        done = store.finished()
    finally:
        store.close()
    return tuple(job for job in jobs if job.key not in done)


def _identity(lm: BackendLM | None) -> str | None:
    return None if lm is None else lm.label


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
