"""What a run tells a tracking server: parameters, tags, metrics and a table, all from its manifest and rows. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pace_dspy.evaluation.answers import verdict_metrics
from pace_dspy.evaluation.funnel_report import funnel_metrics
from pace_dspy.evaluation.metrics import score_request
from pace_dspy.evaluation.provenance import RunManifest
from pace_dspy.evaluation.scores import Row, finished
from pace_dspy.evaluation.summary import RunSummary, summarise

MAX_PARAM = 6000
"""Longest parameter value that MLflow takes, in characters."""

PERSONA_METRICS = {
    "recall_at_5": "retrieval/recall_at_5",
    "recall_at_10": "retrieval/recall_at_10",
    "gold_at_10": "retrieval/gold_at_10",
    "mrr": "retrieval/mrr",
    "n": "retrieval/n",
    "failed": "requests/failed",
    "accuracy": "decision/accuracy",
    "n_decided": "decision/n",
    "judge_pass": "judge/pass",
    "tokens_read": "tokens/read",
    "cost_usd": "cost/usd",
    "seconds_per_request": "time/seconds_per_request",
}
"""Metrics logged a persona, as ``persona/NAME`` with the persona's position as step."""


@dataclass(frozen=True)
class RunCard:
    """What is known of a run before its first request.

    Attributes:
        name: Shown in lists: method, config, backend, seed.
        params: Short values by name; fixed once logged.
        long_params: Values too long for a parameter.
        tags: Data, split, program, commit, method, backend.
    """

    name: str
    params: Mapping[str, str]
    long_params: Mapping[str, str]
    tags: Mapping[str, str]


def run_card(manifest: RunManifest, called: str | None = None) -> RunCard:
    """Describe a run. Nothing but the manifest is read, so no key, address or path can be in it.

    Args:
        manifest: Of the run.
        called: How its backend is called in the name of the run; its profile's name by default.
    """
    backend, answerer = (_profile(manifest.backends.get(role)) for role in ("agents", "answerer"))
    config = str(manifest.config.get("name", "paper"))
    values = {
        "method": manifest.method,
        "config": config,
        "backend": backend,
        "answer_backend": answerer,
        "model": manifest.backends.get("agents") or "none",
        "embedder": manifest.embedder,
        "seed": str(manifest.seed),
        # "setting." sorts behind method and config: the UI compares by the first parameters that differ
        **_flat({key: value for key, value in manifest.config.items() if key != "name"}, "setting."),
    }
    what = manifest.method if manifest.method != "pacemaker" else f"pacemaker {config}"
    tags = {
        "data": manifest.dataset,
        "data_hash": manifest.dataset_hash,
        "part": manifest.part,
        "split": manifest.split or "none",
        "program": manifest.program or "uncompiled",
        "commit": manifest.git_commit or "unknown",
        "method": manifest.method,
        "backend": backend,
    }
    return RunCard(
        name=f"{what}, {'no model' if backend == 'none' else called or backend}, seed {manifest.seed}",
        params={key: value for key, value in values.items() if len(value) <= MAX_PARAM},
        long_params={key: value for key, value in values.items() if len(value) > MAX_PARAM},
        tags=tags,
    )


def overall_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Return every number of a run by name; a score that cannot be computed is left out, its ``n`` is 0.

    Names: ``retrieval/recall_at_5`` (macro), ``retrieval_micro/...``, ``decision/accuracy``, ``funnel/recall_pool``,
    ``funnel_lost/no_view`` (share of gold facts), ``judge/pass``, ``fallbacks/planner``, ``tokens/read``,
    ``cost/usd``, ``time/seconds_per_request``, ``requests/n``, ``requests/failed``.
    """
    summary = summarise(rows)
    macro = {f"retrieval/{_key(name)}": value for name, value in summary.retrieval.macro.items()}
    values: dict[str, float | None] = {
        "retrieval/recall_at_10": macro["retrieval/recall_at_10"],  # the UI compares by the first one
        **macro,
        "requests/n": summary.n_requests,
        "requests/failed": summary.retrieval.n_failed,
        **{f"retrieval_micro/{_key(name)}": value for name, value in summary.retrieval.micro.items()},
        "retrieval/n": summary.retrieval.n,
        "retrieval/n_no_gold": summary.retrieval.n_no_gold,
        **_decision(summary),
        **_funnel(rows),
        **_judge(rows),
        **{f"fallbacks/{stage}": count for stage, count in summary.fallbacks.items()},
        "fallbacks/all": sum(summary.fallbacks.values()),
        **{f"trims/{stage}": count for stage, count in summary.trims.items()},
        "time/seconds_per_request": summary.seconds_per_request,
        "time/retrieval_ms_per_request": summary.retrieval_ms_per_request,
        **_cost(summary),
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def persona_metrics(rows: Sequence[Row]) -> list[tuple[str, dict[str, float]]]:
    """Return ``(case_id, metrics)`` in data order: the step of a metric is the position in this list."""
    cases: dict[str, list[Row]] = {}
    for row in rows:
        cases.setdefault(str(row["case_id"]), []).append(row)
    return [(case_id, _persona(overall_metrics(group))) for case_id, group in cases.items()]


def request_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one flat record a request: outcome, scores, tokens, seconds. Texts and traces stay in results.jsonl."""
    return [_record(row) for row in rows]


def description(rows: Sequence[Row]) -> str:
    """Return the summary of a run as Markdown, shown on top of its page."""
    lines = [f"| {name} | {value} |" for name, value in summarise(rows).to_text().items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def rows_digest(rows: Sequence[Row]) -> str:
    """Return a hash of the rows, to see whether there is anything new to log."""
    return hashlib.sha256(json.dumps(list(rows), sort_keys=True).encode()).hexdigest()


def sampled(case_id: str, query_id: str, share: float) -> bool:
    """Say whether the trace of a request is kept: the same requests on every run, method and machine.

    Args:
        case_id: Of the request.
        query_id: Of the request.
        share: In [0, 1].
    """
    digest = hashlib.sha256(f"{case_id}/{query_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def _record(row: Row) -> dict[str, Any]:
    trace, error = row.get("trace") or {}, row.get("error")
    usage = trace.get("usage") or []
    scores = {} if error else score_request(row["evidence"], row["gold_doc_ids"])
    return {
        "case_id": row["case_id"],
        "query_id": row["query_id"],
        "label": row.get("label"),
        "situation_type": row.get("situation_type"),
        "decision": row.get("decision"),
        "verdict": row.get("verdict"),
        "error": error["kind"] if error else None,
        "n_gold": len(row["gold_doc_ids"]),
        "n_evidence": len(row["evidence"]),
        "n_cited": len(row["cited"]),
        **{_key(name): scores.get(name) for name in score_request((), ())},
        "fallbacks": ", ".join(item["stage"] for item in trace.get("fallbacks") or []),
        "calls": sum(stage["calls"] for stage in usage),
        "tokens_read": sum(stage["prompt_tokens"] for stage in usage),
        "tokens_written": sum(stage["completion_tokens"] for stage in usage),
        "cost_usd": sum(stage["cost_usd"] or 0.0 for stage in usage),
        "seconds": trace.get("total_ms", 0.0) / 1000 if trace else None,
    }


def _decision(summary: RunSummary) -> dict[str, float | None]:
    scores = summary.decision
    undecided = scores.n_undecided if scores.n or summary.stages else None  # without a model nothing was to decide
    counts = {"n": scores.n, "failed": scores.n_failed, "undecided": undecided}
    return {f"decision/{name}": value for name, value in {**vars(scores.rates), **counts}.items()}


def _funnel(rows: Sequence[Row]) -> dict[str, float | None]:
    funnel = funnel_metrics(rows)
    values: dict[str, float | None] = {"funnel/n_gold": funnel.n_gold, "funnel/n_failed": funnel.n_failed}
    values |= {f"funnel/recall_{count.stage}": count.recall for count in funnel.stages}
    pools = [len(row["trace"]["pool"]) for row in finished(rows).rows if row.get("trace") and row["trace"]["pool"]]
    values["funnel/pool_size"] = sum(pools) / len(pools) if pools else None
    return values | {f"funnel_lost/{fate}": share for fate, share in funnel.shares.items()}


def _judge(rows: Sequence[Row]) -> dict[str, float | None]:
    scores = verdict_metrics(rows)
    if not scores.n and not scores.n_judge_errors:
        return {}
    rates = {f"judge/{name.lower()}": value for name, value in scores.rates.items()}
    return {**rates, "judge/n": scores.n, "judge/errors": scores.n_judge_errors, "judge/failed": scores.n_failed}


def _cost(summary: RunSummary) -> dict[str, float]:
    stages = summary.stages
    if not stages:
        return {}
    totals = {
        "calls/all": sum(stage.calls for stage in stages.values()),
        "calls/repairs": sum(stage.repairs for stage in stages.values()),
        "calls/reused": sum(stage.cached_calls for stage in stages.values()),
        "tokens/read": sum(stage.prompt_tokens for stage in stages.values()),
        "tokens/read_cached": sum(stage.prompt_cached_tokens for stage in stages.values()),
        "tokens/written": sum(stage.completion_tokens for stage in stages.values()),
        "cost/usd": sum(stage.cost_usd for stage in stages.values()),
    }
    return {**totals, **{f"time/{name}_seconds": stage.latency_ms / 1000 for name, stage in stages.items()}}


def _persona(values: Mapping[str, float]) -> dict[str, float]:
    return {f"persona/{short}": values[name] for short, name in PERSONA_METRICS.items() if name in values}


def _profile(identity: str | None) -> str:
    return "none" if identity is None else identity.partition(": ")[0]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return flat


def _key(name: str) -> str:
    return name.replace("@", "_at_")
