"""From compile settings to a run: everything that can be wrong is found here, before the first paid call."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dspy

from pace_dspy.artifacts import load_program
from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import BackendLM, make_lm
from pace_dspy.backends.overrides import own_settings, parse_settings
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_mini_split, load_pace, load_split
from pace_dspy.data.splits import Split
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.store import RunStore, write_atomic
from pace_dspy.knowledge import open_cases
from pace_dspy.optimization.cost import NOTHING, Cost, check_backend_price
from pace_dspy.optimization.examples import Key, Sets, check_personas, request_sets
from pace_dspy.optimization.forecast import Forecast, forecast, material_of
from pace_dspy.optimization.groups import Group, groups_of, recorded_traces
from pace_dspy.optimization.metrics import Metric, check_metric
from pace_dspy.optimization.optimizers import check_installed, needs_prompt_model
from pace_dspy.optimization.settings import CompileSettings
from pace_dspy.paths import writable_folder
from pace_dspy.program import PaceMakerProgram, as_pool
from pace_dspy.retrieval import Embedder, make_embedder
from pace_dspy.types import Dataset, Trace

SETTINGS_NAME = "compile.json"


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
        forecasts: What will be done in each group of stages, and its cost.
        metric: Replaces the scores of the stages; ``None`` for ours.
        dataset: The whole dataset.
        embedder: A ready embedder, ``None`` for that of the settings.
        recorded: Traces of a finished run, if given.
    """

    settings: CompileSettings
    program: PaceMakerProgram
    sets: Sets
    split: Split
    data_hash: str
    lm: BackendLM
    prompt_lm: BackendLM | None
    forecasts: tuple[Forecast, ...]
    metric: Metric | None
    dataset: Dataset
    embedder: Embedder | None = None
    recorded: Mapping[Key, Trace] | None = None

    @property
    def cost(self) -> Cost:
        """Estimate for all of it."""
        return sum((one.cost + one.calibration for one in self.forecasts), NOTHING)

    def describe(self) -> dict[str, str]:
        """Return label -> line: what will be done and what it costs, for the dry run."""
        settings = self.settings
        shown = {
            one.group.name: f"{one.plan.expected} metric calls expected, at most {one.plan.metric_calls}; up to "
            f"{one.plan.proposals} proposals; {one.cost.minutes:.0f} minutes"
            for one in self.forecasts
            if one.plan.metric_calls
        }
        sizes = f"{len(self.sets.train)} train and {len(self.sets.dev)} dev requests"
        calibrated = {"calibration": f"on {len(self.sets.dev)} dev requests"} if settings.calibrate else {}
        return {"optimizer": f"{settings.optimizer} on {sizes}", **shown, **calibrated, "cost": self.cost.to_text()}


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
    prompt_profile = None if prompt_lm is None else prompt_lm.profile
    check_backend_price(settings.budget, lm.profile, *([prompt_profile] if prompt_profile else []))
    recorded = recorded_traces(settings.recorded, sets, data) if settings.recorded is not None else None
    material = material_of(data, sets, recorded)
    forecasts = forecast(groups, program, settings, material, lm.profile, prompt_profile)
    return Compilation(
        settings, program, sets, split, data.content_hash, lm, prompt_lm, forecasts, metric, data, embedder, recorded
    )


def open_work(compilation: Compilation) -> Compilation:
    """Open the indexes of train and dev, and the work folder: new, or made by the same settings. Nothing is paid.

    Returns:
        The run with its models on the reply cache of the folder.

    Raises:
        ConfigError: The folder belongs to another compile run (names what differs).
    """
    settings, sets = compilation.settings, compilation.sets
    wanted = {example.case_id for example in (*sets.train, *sets.dev)}
    open_cases(
        [case for case in compilation.dataset.cases if case.case_id in wanted],
        compilation.embedder or make_embedder(settings.embedder),
        folder=settings.index,
        graph_k=compilation.program.config.retrieval.graph_k,
    )
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
    """Try the metric on made-up answers: none at all, and a right one."""
    if settings.weights.judge_pass and metric is None:
        raise ConfigError("weight judge_pass needs a judge: pass a metric that asks it, or set the weight to 0")
    example = sets.train[0]
    trace, gold = Trace(example.kb_id, example.reference_date), tuple(example.gold_doc_ids)
    empty = dspy.Prediction(decision=None, response=None, evidence=(), cited=(), trace=trace, p_conflict=None)
    right = empty.copy(
        decision=example.label,
        response=example.judgment or "It can be done.",
        evidence=gold,
        cited=gold,
        trace=dataclasses.replace(trace, pool=as_pool(gold), evidence=gold),
    )
    for group in groups:
        for prediction in (empty, right):
            check_metric(metric or group.metric(settings.weights), example, prediction)
