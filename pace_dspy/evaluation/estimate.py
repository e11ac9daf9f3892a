"""What a run will take before it is started: calls, tokens, price, time. Ours; every assumption is a constant here.

Tokens are characters / 4 (English text). A stage's fixed part was measured on the prompts of PACE-mini; candidates
cost what the facts of the data at hand cost. ``measured`` means take the place of all of it where a run has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pace_dspy.backends.overrides import answer_settings, own_settings, parse_settings
from pace_dspy.backends.profiles import BackendProfile, get_profile
from pace_dspy.config import PaceMakerConfig
from pace_dspy.evaluation.entries import BackendEntry
from pace_dspy.evaluation.grid import Cell
from pace_dspy.evaluation.plan import NO_BACKEND
from pace_dspy.evaluation.scores import Row
from pace_dspy.types import Dataset, Request

CHARS_PER_TOKEN = 4.0
NUMBER_TOKENS = 3
"""Tokens of the ``[12]`` before a candidate and of its line end."""
FIXED_TOKENS = {
    "planner": 265,
    "views": 250,
    "pre_filter": 235,
    "second_look": 295,
    "post_filter": 240,
    "answerer": 330,
    "judge": 600,
    "searcher": 1200,
}
"""Prompt without candidates (instructions, fields, request, calendar), measured on 12 requests of PACE-mini; judge
and searcher (the ReAct agent's mean turn) are assumed."""
REPLY_TOKENS = {
    "planner": 120,
    "views": 70,
    "pre_filter": 40,
    "second_look": 60,
    "post_filter": 40,
    "answerer": 110,
    "judge": 60,
    "searcher": 80,
}
"""Written tokens a call. Assumed."""
SEARCHER_TURNS = 5
POOL_OF_THE_PAPER = 85
"""Median pool of the paper, with 5 hops and 3 neighbours; scaled by hops x neighbours for other settings."""
LOCAL_READ_PER_S, LOCAL_WRITE_PER_S = 87.0, 35.0
"""Embedded model on 2 cores (`pace_dspy.backends.local_server`)."""
HOSTED_LATENCY_S, HOSTED_WRITE_PER_S = 0.8, 80.0
"""A hosted model. Assumed."""


@dataclass(frozen=True)
class StageEstimate:
    """One stage of one request: calls, tokens of all its calls, and seconds when a run has measured them."""

    calls: float
    prompt_tokens: float
    completion_tokens: float
    seconds: float | None = None


@dataclass(frozen=True)
class Estimate:
    """A whole run.

    Attributes:
        n_requests: Requests to run.
        calls: Model calls.
        prompt_tokens: Tokens read, none from a prefix cache.
        completion_tokens: Tokens written.
        cost_usd: Price by the profile's table, ``None`` when it has none.
        seconds: Wall time with the profile's slots in use.
        basis: ``measured`` or ``assumed``, by stage.
    """

    n_requests: int
    calls: float
    prompt_tokens: float
    completion_tokens: float
    cost_usd: float | None
    seconds: float
    basis: Mapping[str, str]


Measured = Mapping[str, StageEstimate]


def estimate(
    cell: Cell,
    requests: Sequence[Request],
    data: Dataset,
    measured: Measured | None = None,
    *,
    judges: Sequence[BackendEntry] = (),
) -> Estimate:
    """Estimate one cell.

    Args:
        cell: The run.
        requests: Its requests.
        data: Where the facts are.
        measured: Means a stage, from `measure`; without it, the constants above.
        judges: Who judges every answer.
    """
    if cell.settings.backend == NO_BACKEND or not requests:
        return Estimate(len(requests), 0, 0, 0, 0.0, 0.0, {})
    profile, answer = cell_profiles(cell)
    asked = {"answerer": answer} | {f"judge {judge.label}": judge.profile() for judge in judges}
    stages = _stages(cell, requests, data, answer)
    stages |= {f"judge {judge.label}": _one("judge", 0.0, cell) for judge in judges}
    known, n = measured or {}, len(requests)
    calls = read = wrote = seconds = 0.0
    prices: list[float | None] = []
    for stage, assumed in stages.items():
        one, its = known.get(stage, assumed), asked.get(stage, profile)
        calls, read, wrote = calls + one.calls * n, read + one.prompt_tokens * n, wrote + one.completion_tokens * n
        prices.append(its.cost_usd(round(one.prompt_tokens * n), 0, round(one.completion_tokens * n)))
        seconds += _seconds(one, its) * n / its.slots
    cost = None if any(price is None for price in prices) else sum(price or 0.0 for price in prices)
    basis = {stage: "measured" if stage in known else "assumed" for stage in stages}
    return Estimate(n, calls, read, wrote, cost, seconds, basis)


def cell_profiles(cell: Cell) -> tuple[BackendProfile, BackendProfile]:
    """Return the profile of all agents and that of the answerer, with the settings of the run.

    Raises:
        ConfigError: Unknown backend or setting.
    """
    backend, answerer = cell.settings.backend, cell.settings.answer_backend
    settings = parse_settings(cell.settings.backend_settings)
    profile = get_profile(backend, own_settings(settings))
    its_own = answer_settings(settings, other_backend=answerer is not None)
    return profile, get_profile(answerer or backend, its_own) if answerer or its_own else profile


def measure(rows: Iterable[Row]) -> dict[str, StageEstimate]:
    """Return the means a request of every stage in finished rows that really asked a model."""
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for usage in (row["trace"] or {}).get("usage", []) if row["error"] is None else ():
            if usage["calls"] and not usage["cached_calls"]:
                stages.setdefault(usage["stage"], []).append(usage)
    return {stage: _mean(usages) for stage, usages in stages.items()}


def pool_size(config: PaceMakerConfig, n_facts: float) -> float:
    """Return how many facts the last filter is expected to read."""
    settings, seeds = config.retrieval, config.agents.seeds
    most = min(n_facts, config.agents.post_hop_prefilter or n_facts)
    if settings.walk == "ppr":
        return min(settings.pool, most)
    grown = (POOL_OF_THE_PAPER - 10) * settings.max_hops * settings.neighbors_per_hop / 15
    return min(seeds + grown, most)


def _mean(usages: Sequence[Mapping[str, Any]]) -> StageEstimate:
    def mean(field: str) -> float:
        return float(sum(usage[field] for usage in usages)) / len(usages)

    tokens = mean("prompt_tokens"), mean("completion_tokens")
    return StageEstimate(mean("calls"), *tokens, seconds=mean("latency_ms") / 1000)


def _stages(cell: Cell, requests: Sequence[Request], data: Dataset, answer: BackendProfile) -> dict[str, StageEstimate]:
    config, method = cell.config, cell.settings.method
    n_facts, fact = _facts(requests, data)
    read = min(config.agents.evidence, n_facts)
    candidates: dict[str, float] = {}
    if method == "pacemaker":
        offered = {
            "pre_filter": min(config.retrieval.fused_top_k, n_facts),
            "second_look": min(config.agents.look_reads, n_facts),
            "post_filter": pool_size(config, n_facts),
        }
        kept = {"pre_filter": config.agents.seeds, "post_filter": config.agents.evidence}
        for stage in config.agents.model_stages:
            if offered.get(stage, 1.0) > kept.get(stage, 0):  # a list that is short enough is not shown to a model
                candidates[stage] = offered.get(stage, 0.0)
    elif method == "react":
        candidates["searcher"] = 0.0
    if method == "full-kb":
        room = (answer.window or 8192) - FIXED_TOKENS["answerer"] - REPLY_TOKENS["answerer"]
        read = min(n_facts, room / fact)
    elif method == "oracle":
        read = sum(len(request.gold_doc_ids) for request in requests) / len(requests)
    if config.agents.answerer == "model":
        candidates["answerer"] = read
    return {stage: _one(stage, shown * fact, cell) for stage, shown in candidates.items()}


def _one(stage: str, candidate_tokens: float, cell: Cell) -> StageEstimate:
    calls = {"second_look": cell.config.agents.rounds, "searcher": SEARCHER_TURNS}.get(stage, 1)
    return StageEstimate(calls, calls * (FIXED_TOKENS[stage] + candidate_tokens), calls * REPLY_TOKENS[stage])


def _facts(requests: Sequence[Request], data: Dataset) -> tuple[float, float]:
    """Return facts a knowledge base and tokens a fact, weighted by the requests that ask it."""
    sizes = {case.case_id: (len(case.facts), sum(len(fact.text) for fact in case.facts)) for case in data.cases}
    n_facts = sum(sizes[request.case_id][0] for request in requests)
    n_chars = sum(sizes[request.case_id][1] for request in requests)
    return n_facts / len(requests), n_chars / max(n_facts, 1) / CHARS_PER_TOKEN + NUMBER_TOKENS


def _seconds(one: StageEstimate, profile: BackendProfile) -> float:
    if one.seconds is not None:
        return one.seconds
    if profile.provider == "local":
        return one.prompt_tokens / LOCAL_READ_PER_S + one.completion_tokens / LOCAL_WRITE_PER_S
    return one.calls * HOSTED_LATENCY_S + one.completion_tokens / HOSTED_WRITE_PER_S
