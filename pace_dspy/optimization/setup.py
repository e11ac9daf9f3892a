"""From compile settings to a run: everything that can be wrong is found here, before the first paid call."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dspy

from pace_dspy.artifacts import load_program
from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import BackendLM, make_lm
from pace_dspy.backends.overrides import own_settings, parse_settings
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_mini_split, load_pace, load_split
from pace_dspy.data.splits import Split
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.store import RunStore, write_atomic
from pace_dspy.knowledge import open_cases
from pace_dspy.optimization.budget import (
    Cost,
    OptimizerPlan,
    Size,
    calls_within,
    check_backend_price,
    demo_like,
    estimate,
    measure_call,
    plan_optimizer,
    prompt_cost,
)
from pace_dspy.optimization.examples import Key, Sets, check_personas, request_sets
from pace_dspy.optimization.groups import Group, groups_of, recorded_traces
from pace_dspy.optimization.metrics import Metric, check_metric
from pace_dspy.optimization.optimizers import check_installed, needs_prompt_model
from pace_dspy.optimization.settings import Budget, CompileSettings
from pace_dspy.optimization.stage_programs import predictor_stages
from pace_dspy.paths import writable_folder
from pace_dspy.program import PaceMakerProgram
from pace_dspy.retrieval import Embedder, make_embedder
from pace_dspy.types import Dataset, Trace

SETTINGS_NAME = "compile.json"
_FRESH_CHARS = {"answerer": 1_100, "pre_filter": 1_900, "second_look": 1_900, "post_filter": 7_600}
"""Typical characters of the facts a stage reads: 12, 20, 20 and 85 facts. Paper: median pool 85."""


@dataclass(frozen=True)
class Compilation:
    """A compile run that is ready to start (or to be continued).

    Attributes:
        settings: What was asked for.
        program: The program to improve.
        sets: Whole requests of train and dev.
        split: Who is on which side.
        data_hash: Content hash of the data.
        lm: Model of the agents, with the run's reply cache.
        prompt_lm: Model that proposes, ``None`` when the optimizer needs none.
        plans: Groups with the plan of each.
        cost: Estimate for all of it.
        metric: Replaces the scores of the stages; ``None`` for ours.
        dataset: The whole dataset.
        embedder: A ready embedder, ``None`` for that of the settings.
        recorded: Traces of a finished run, if given; read by `open_work`.
    """

    settings: CompileSettings
    program: PaceMakerProgram
    sets: Sets
    split: Split
    data_hash: str
    lm: BackendLM
    prompt_lm: BackendLM | None
    plans: tuple[tuple[Group, OptimizerPlan], ...]
    cost: Cost
    metric: Metric | None
    dataset: Dataset
    embedder: Embedder | None = None
    recorded: Mapping[Key, Trace] | None = None

    def describe(self) -> dict[str, str]:
        """Return label -> line: what will be done and what it costs, for the dry run."""
        lines = {
            group.name: f"{plan.expected} metric calls expected, at most {plan.metric_calls}; "
            f"up to {plan.proposals} proposals"
            for group, plan in self.plans
        }
        sizes = f"{len(self.sets.train)} train and {len(self.sets.dev)} dev requests"
        return {"optimizer": f"{self.settings.optimizer} on {sizes}", **lines, "cost": self.cost.to_text()}


def prepare(
    settings: CompileSettings,
    *,
    on_note: Callable[[str], None] | None = None,
    metric: Metric | None = None,
    lm: BackendLM | None = None,
    prompt_lm: BackendLM | None = None,
    dataset: Dataset | None = None,
    embedder: Embedder | None = None,
) -> Compilation:
    """Load data, split, program and models, check everything, and compute the cost. Nothing is paid.

    Args:
        settings: What to do.
        on_note: Called with short messages.
        metric: Your own score instead of the stages' (``metric(example, prediction, trace=None)`` in [0, 1]).
        lm: A ready model instead of the backend's.
        prompt_lm: A ready model instead of the prompt backend's.
        dataset: Loaded data instead of ``settings.data``.
        embedder: A ready embedder instead of ``settings.embedder``.

    Raises:
        ConfigError: Any setting, metric or program that does not fit; DataError for bad data or a split of other data;
            MissingKeyError without a needed key; MissingExtraError for ``mipro`` without Optuna.
    """
    settings.checked()
    _check_places(settings)
    check_installed(settings.optimizer)
    config = PaceMakerConfig.load(settings.config)
    program = load_program(settings.program, config, backend=settings.backend, warn=on_note)
    if getattr(program.answerer, "threshold", None) is not None:
        program.answerer.threshold = None
        if on_note is not None:
            on_note("the calibrated threshold of the loaded program is dropped: it belongs to its prompts")
    groups = groups_of(program, settings)
    data = dataset or load_pace(settings.data)
    split = _split(settings, data)
    sets = request_sets(data, split, settings.limit)
    check_personas(sets, split)
    lm, prompt_lm = _models(settings, config, lm, prompt_lm)
    if settings.calibrate and not lm.profile.supports_logprobs:
        raise ConfigError(f"--calibrate needs token log-probabilities, which backend {lm.profile.name} does not give")
    _check_metrics(groups, sets, settings, metric)
    check_backend_price(settings.budget, lm, *([prompt_lm] if prompt_lm else []))
    plans, cost = _plans(groups, program, sets, settings, lm, prompt_lm)
    return Compilation(
        settings, program, sets, split, data.content_hash, lm, prompt_lm, plans, cost, metric, data, embedder
    )


def open_work(compilation: Compilation) -> Compilation:
    """Open the indexes of train and dev, and the work folder: new, or made by the same settings. Nothing is paid.

    Returns:
        The run with its models on the reply cache of the folder, and the recorded traces.

    Raises:
        ConfigError: The folder belongs to another compile run (names what differs), or the recorded run does not fit.
    """
    settings, sets = compilation.settings, compilation.sets
    wanted = {example.case_id for example in (*sets.train, *sets.dev)}
    open_cases(
        [case for case in compilation.dataset.cases if case.case_id in wanted],
        compilation.embedder or make_embedder(settings.embedder),
        folder=settings.index,
        graph_k=compilation.program.config.retrieval.graph_k,
    )
    recorded = recorded_traces(settings.recorded, sets) if settings.recorded is not None else None
    folder = compilation.settings.work_folder
    folder.mkdir(parents=True, exist_ok=True)
    path, now = folder / SETTINGS_NAME, identity(compilation)
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = [f"{name}: {before.get(name)!r} -> {now[name]!r}" for name in now if before.get(name) != now[name]]
        if changed:
            raise ConfigError(
                f"work folder {folder} belongs to another compile run: {'; '.join(changed)}. Give another --out or "
                "--work, or the same settings to continue it"
            )
    else:
        write_atomic(path, json.dumps(now, ensure_ascii=False, indent=2) + "\n")
    cache = ReplyCache(folder / "replies")
    lm, prompt_lm = compilation.lm, compilation.prompt_lm
    return dataclasses.replace(
        compilation,
        lm=_on_cache(lm, cache),
        prompt_lm=None if prompt_lm is None else _on_cache(prompt_lm, cache),
        recorded=recorded,
    )


def identity(compilation: Compilation) -> dict[str, Any]:
    """Return what makes it the same run: settings without places, threads and budget, data, models. JSON-ready."""
    settings = compilation.settings
    places = {"out", "index", "work", "threads", "budget", "weights", "split_file", "program", "recorded"}
    plain = {name: value for name, value in vars(settings).items() if name not in places}
    plain["backend_settings"] = list(settings.backend_settings)
    return {
        **plain,
        "weights": settings.weights.model_dump(),
        "program": None if settings.program is None else str(settings.program),
        "recorded": None if settings.recorded is None else str(settings.recorded),
        "data_hash": compilation.data_hash,
        "split": {part: list(compilation.split.part(part)) for part in ("train", "dev", "test")},
        "models": [compilation.lm.identity, compilation.prompt_lm.identity if compilation.prompt_lm else None],
    }


def _on_cache(lm: BackendLM, cache: ReplyCache) -> BackendLM:
    copied: BackendLM = lm.copy()
    copied.reply_cache = lm.reply_cache or cache
    return copied


def _check_places(settings: CompileSettings) -> None:
    writable_folder(settings.out, "--out")
    writable_folder(settings.work_folder, "--work")
    if settings.recorded is not None:
        RunStore(settings.recorded).close()


def _split(settings: CompileSettings, data: Dataset) -> Split:
    if settings.split_file is not None:
        return load_split(settings.split_file, data)
    if settings.data == "mini":
        return load_mini_split(data)
    raise ConfigError("compile needs --split-file; make one with `pace-dspy data split`")


def _models(
    settings: CompileSettings, config: PaceMakerConfig, lm: BackendLM | None, prompt_lm: BackendLM | None
) -> tuple[BackendLM, BackendLM | None]:
    changes = own_settings({**config.backend, **parse_settings(settings.backend_settings)})
    lm = lm or make_lm(settings.backend, changes)
    if not needs_prompt_model(settings.optimizer):
        if settings.prompt_backend:
            raise ConfigError(f"--prompt-backend is for mipro, gepa and simba; {settings.optimizer} proposes nothing")
        return lm, None
    if prompt_lm is None:
        prompt_lm = make_lm(settings.prompt_backend) if settings.prompt_backend else lm
    return lm, prompt_lm


def _check_metrics(groups: tuple[Group, ...], sets: Sets, settings: CompileSettings, metric: Metric | None) -> None:
    if settings.weights.judge_pass and metric is None:
        raise ConfigError("weight judge_pass needs a judge: pass a metric that asks it, or set the weight to 0")
    example = sets.train[0]
    trace = Trace(example.kb_id, example.reference_date)
    empty = dspy.Prediction(decision=None, response=None, evidence=(), cited=(), trace=trace, p_conflict=None)
    for group in groups:
        check_metric(metric or group.metric(settings.weights), example, empty)


def _plans(
    groups: tuple[Group, ...],
    program: PaceMakerProgram,
    sets: Sets,
    settings: CompileSettings,
    lm: BackendLM,
    prompt_lm: BackendLM | None,
) -> tuple[tuple[tuple[Group, OptimizerPlan], ...], Cost]:
    adapter, plans, total = PaceAdapter(), [], Cost(0, 0, 0, 0.0, 0.0)
    demos = settings.optimizer != "gepa"
    share = 1 / len(groups)
    for group in groups:
        calls = _call_sizes(group, program, sets, adapter, lm)
        size = Size(len(sets.train), len(sets.dev), len(group.predictors), settings.max_demos)
        whole = settings.budget
        budget = Budget(
            None if whole.metric_calls is None else int(whole.metric_calls * share),
            None if whole.minutes is None else whole.minutes * share,
            None if whole.usd is None else whole.usd * share,
        )

        def each(n: int, calls: Any = calls, n_dev: int = size.n_dev) -> Cost:
            return estimate(lm, calls, n, max(1, n // n_dev), demos=demos)

        plan = plan_optimizer(settings.optimizer, size, calls_within(budget, each))
        plans.append((group, plan))
        total = total + each(plan.expected)
        if group.staged and group.name != "answerer" and settings.recorded is None:
            total = total + each(size.n_train + size.n_dev)
        if settings.calibrate and "answerer" in group.stages:
            total = total + each(size.n_dev)
        if prompt_lm is not None:
            total = total + prompt_cost(prompt_lm, plan.proposal_calls)
    return tuple(plans), total


def _call_sizes(group: Group, program: PaceMakerProgram, sets: Sets, adapter: PaceAdapter, lm: BackendLM) -> list[Any]:
    asked = group.stages if group.staged else tuple(dict.fromkeys(predictor_stages(group.student(program)).values()))
    sizes = []
    for stage in asked:
        agent = getattr(program, stage)
        facts = "x" * _FRESH_CHARS.get(stage, 200)
        inputs = demo_like(sets.train[0], list(agent.predict.signature.input_fields), facts)
        sizes.append(measure_call(lm, adapter, agent, inputs))
    return sizes
