"""Configuration as small frozen groups; a variant or ablation is a config, never a copy of the program."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pace_dspy.backends.overrides import flatten
from pace_dspy.errors import ConfigError, shortened

Agent = Literal["model", "off"]
RuledAgent = Literal["model", "rules", "off"]
Graph = Literal["knn", "terms", "hybrid"]
Walk = Literal["bfs", "ppr"]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RetrievalConfig(_Group):
    """Retrieval settings. Defaults: the paper's (design section 3)."""

    top_k_per_view: int = Field(10, ge=1, description="Facts each retriever returns per view.")
    rrf_k: int = Field(60, ge=0, description="Constant of reciprocal rank fusion.")
    weight_original: float = Field(1.0, gt=0, description="Fusion weight of the original view.")
    weight_counter: float = Field(1.2, gt=0, description="Fusion weight of a counter view.")
    fused_top_k: int = Field(20, ge=1, description="Length of the fused list.")
    graph_k: int = Field(10, ge=0, description="Neighbours kept per fact in the kNN graph.")
    max_hops: int = Field(5, ge=0, description="Hops of the breadth-first walk; 0 switches the walk off.")
    neighbors_per_hop: int = Field(3, ge=0, description="Neighbours followed per fact and hop.")
    time_channel: float = Field(0.0, ge=0, description="Ours: fusion weight of facts whose time touches the request's.")
    people_channel: float = Field(0.0, ge=0, description="Ours: fusion weight of facts about people it describes.")
    graph: Graph = Field("knn", description="Ours: terms and hybrid link facts that share rare terms, people or days.")
    walk: Walk = Field("bfs", description="Ours: ppr is personalised PageRank from weighted seeds.")
    pool: int = Field(50, ge=1, description="Ours: facts a ppr walk hands on.")
    damping: float = Field(0.5, ge=0, lt=1, description="Ours: chance to go on walking instead of restarting.")
    knn_share: float = Field(0.2, ge=0, le=1, description="Ours: chance of a neighbour step in the hybrid graph.")
    second_walk: float = Field(0.0, ge=0, lt=1, description="Ours: share of a ppr walk that starts from what it found.")
    seed_prior: float = Field(0.0, ge=0, description="Ours: how much binding wording raises a seed's weight.")
    pool_prior: float = Field(0.0, ge=0, description="Ours: how much binding wording raises a fact's rank.")

    def without_channels(self) -> RetrievalConfig:
        """Return the settings for a search by views alone."""
        return self.model_copy(update={"time_channel": 0.0, "people_channel": 0.0})


class AgentsConfig(_Group):
    """Which agents run, and their limits. Defaults: the paper's (design section 3)."""

    planner: RuledAgent = Field("model", description="rules: cues from times, people and rare words. off: no cues.")
    cues_max: int = Field(3, ge=1)
    views: RuledAgent = Field("model", description="rules: templates around the cues. off: the original view only.")
    counter_views_max: int = Field(3, ge=1)
    pre_filter: RuledAgent = Field("model", description="off: the first `seeds` facts of the fused list.")
    seeds: int = Field(10, ge=1, description="Seeds of the walk.")
    rounds: int = Field(0, ge=0, le=5, description="Ours: rounds of the second look; 0 is the paper.")
    look_reads: int = Field(20, ge=1, description="Ours: facts of the pool that the second look reads.")
    follow_ups_max: int = Field(3, ge=1, description="Ours: follow-up queries a round.")
    post_hop_prefilter: int = Field(0, ge=0, description="Ours: facts of the pool that are kept for it; 0 keeps all.")
    post_filter: RuledAgent = Field("model", description="off: the first `evidence` facts of the pool.")
    evidence: int = Field(10, ge=1, description="Facts handed to the answerer.")
    answerer: Agent = Field("model", description="off: evidence only, no decision.")

    spread: float = Field(0.8, gt=0, le=1, description="Ours: what a second fact about the same thing still counts.")
    restart_discount: float = Field(0.5, ge=0, le=1, description="Ours: part of a seed's own mass that is taken off.")
    wording: float = Field(0.4, ge=0, description="Ours: how much binding wording raises a fact in the rule filter.")
    clash_notes: bool = Field(False, description="Ours: show the answerer what follows from times and durations.")
    annotate_dates: bool = Field(False, description="Ours: write the weekday behind explicit dates in prompts.")

    @property
    def model_stages(self) -> tuple[str, ...]:
        """Stages that ask a language model."""
        stages = ("planner", "views", "pre_filter", "post_filter", "answerer")
        asked = [stage for stage in stages if getattr(self, stage) == "model"]
        if self.rounds:
            asked.insert(len(asked) - 1, "second_look")
        return tuple(asked)


class PaceMakerConfig(_Group):
    """Configuration of one `PaceMakerProgram`.

    Named configs are listed by `names()`; ``paper`` is the default of every command and never changes.
    """

    name: str = "paper"
    retrieval: RetrievalConfig = RetrievalConfig()
    agents: AgentsConfig = AgentsConfig()
    backend: dict[str, str] = Field(
        {}, exclude=True, description="Changed fields of the backend's profile; recorded with the backend, not here."
    )

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names that `load` accepts."""
        return tuple(NAMED_CONFIGS)

    @classmethod
    def load(cls, name_or_file: str) -> PaceMakerConfig:
        """Return a named config, or one read from a JSON or TOML file.

        Args:
            name_or_file: One of `names()`, or a path to a ``.json`` / ``.toml`` file.

        Raises:
            ConfigError: Unknown name, unreadable file, unknown field or value out of range; says what is allowed.
        """
        if name_or_file in NAMED_CONFIGS:
            return cls.parse({"name": name_or_file, **NAMED_CONFIGS[name_or_file]}, source=name_or_file)
        path = Path(name_or_file)
        if path.suffix not in {".json", ".toml"} or not path.is_file():
            raise ConfigError(
                f"unknown config {name_or_file!r}: use one of {', '.join(NAMED_CONFIGS)}, "
                "or an existing .json/.toml file"
            )
        try:
            text = path.read_text(encoding="utf-8")
            raw: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        except (ValueError, OSError) as exc:
            raise ConfigError(f"config file {path} cannot be read: {exc}") from exc
        except RecursionError as exc:
            raise ConfigError(
                f"config file {path} cannot be read: it is nested too deeply; groups hold plain values"
            ) from exc
        if not isinstance(raw, dict):
            raise ConfigError(f"config file {path} must hold an object with groups retrieval, agents and backend")
        return cls.parse({"name": path.stem, **raw}, source=str(path))

    @classmethod
    def parse(cls, raw: dict[str, Any], *, source: str = "config") -> PaceMakerConfig:
        """Validate a plain dictionary.

        Raises:
            ConfigError: With the dotted field, the value received and what is allowed.
        """
        if "backend" in raw:  # first, because the general message below repeats values, and these may be secrets
            raw = {**raw, "backend": flatten(raw["backend"], source)}
        try:
            return cls.model_validate(raw)
        except ValidationError as exc:
            first = exc.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            hint = f"; fields: {', '.join(_fields_at(cls, first['loc']))}" if first["type"] == "extra_forbidden" else ""
            raise ConfigError(
                f"{source}: {field}: {first['msg']} (received {shortened(first['input'])}){hint}"
            ) from exc


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    for part in loc[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return list(model.model_fields)


STRUCTURE: dict[str, Any] = {
    "top_k_per_view": 20,
    "time_channel": 1.0,
    "people_channel": 1.0,
    "graph": "hybrid",
    "walk": "ppr",
    "second_walk": 0.5,
    "pool_prior": 0.4,
}
"""Structure first (ours): channels, term links and PageRank. Chosen on the train and dev personas of PACE-mini, each
number from the middle of a range that does as well (`experiments/evidence_lab.py`)."""

NAMED_CONFIGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "lite": {
        "retrieval": {**STRUCTURE, "pool": 100},
        "agents": {
            "planner": "rules",
            "views": "off",
            "pre_filter": "off",
            "post_filter": "rules",
            "spread": 1.0,
            "restart_discount": 1.0,
            "clash_notes": True,
            "annotate_dates": True,
        },
    },
    "plus": {
        "retrieval": STRUCTURE,
        "agents": {"pre_filter": "off", "rounds": 1, "clash_notes": True, "annotate_dates": True},
    },
    "no-planning": {"agents": {"planner": "off"}},
    "no-counter-views": {"agents": {"views": "off"}},
    "no-pre-filter": {"agents": {"pre_filter": "off"}},
    "no-multi-hop": {"retrieval": {"max_hops": 0}},
    "no-post-filter": {"agents": {"post_filter": "off"}},
    "no-selection": {"agents": {"pre_filter": "off", "post_filter": "off"}},
}
"""Named configs as differences from the paper's defaults.

``lite`` asks the model once a request, for the answer; ``plus`` as often as the paper (planner, views, second look,
last filter, answer) with half its tokens. Both are ours. The ``no-*`` ones are the paper's ablations.
"""
