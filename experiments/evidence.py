"""Retrieval without a model on PACE-mini, by split: every part of `lite` taken out, and the plain ways beside it. Ours.

python experiments/evidence.py [--data mini] [--json FILE]

Rows are configs of the one program. Recall@k and Gold@10 are of the evidence; pool@n of the first n facts that the
last filter would read (the whole pool where it is breadth first, whose mean size is given). Micro over requests;
intervals are paired cluster bootstraps over personas, against the first row.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_mini_split, load_pace, load_split, select_split
from pace_dspy.evaluation.runner import to_row
from pace_dspy.evaluation.samples import sample_of
from pace_dspy.evaluation.statistics import compare
from pace_dspy.knowledge import open_cases
from pace_dspy.methods import make_check, make_program
from pace_dspy.retrieval import make_embedder

COLUMNS = ("recall@5", "recall@10", "recall@20", "gold@10", "pool@50", "pool@100", "pool", "pool size")
QUIET = {"planner": "off", "views": "off", "pre_filter": "off", "post_filter": "off", "answerer": "off", "evidence": 20}
LITE = PaceMakerConfig.load("lite")


def plain(retrieval: dict[str, Any]) -> PaceMakerConfig:
    """Return the paper's retrieval without any model, with changes."""
    return PaceMakerConfig.parse({"name": "plain", "retrieval": retrieval, "agents": QUIET})


def lite(retrieval: dict[str, Any] | None = None, agents: dict[str, Any] | None = None) -> PaceMakerConfig:
    """Return `lite` without its answer, with changes."""
    raw = LITE.model_dump()
    raw["retrieval"] |= retrieval or {}
    raw["agents"] |= {"answerer": "off", "clash_notes": False, "evidence": 20} | (agents or {})
    return PaceMakerConfig.parse(raw)


ROWS: dict[str, PaceMakerConfig] = {
    "request alone, fused": plain({"max_hops": 0, "fused_top_k": 100}),
    "paper's walk from it (bfs)": plain({}),
    "+ time and people channels, bfs": plain({"time_channel": 1.0, "people_channel": 1.0}),
    "lite": lite(),
    "lite without time channel": lite({"time_channel": 0.0}),
    "lite without people channel": lite({"people_channel": 0.0}),
    "lite without term links (kNN only)": lite({"graph": "knn"}),
    "lite without kNN (terms only)": lite({"graph": "terms"}),
    "lite with bfs for PageRank": lite({"walk": "bfs"}),
    "lite without second walk": lite({"second_walk": 0.0}),
    "lite without binding wording": lite({"seed_prior": 0.0, "pool_prior": 0.0}, {"wording": 0.0}),
    "lite without restart discount": lite(agents={"restart_discount": 0.0}),
    "lite with spread": lite(agents={"spread": 0.8}),
    "lite with template views": lite(agents={"views": "rules"}),
}


def measure(dataset: Any, config: PaceMakerConfig, kb_ids: dict[str, str]) -> list[dict[str, Any]]:
    """Return one row a request, with the pool's recalls beside the evidence."""
    check = make_check(make_program("pacemaker", config))
    rows = []
    for case in dataset.cases:
        for request in case.requests:
            prediction = check(request, kb_ids[case.case_id], case.persona)
            row = to_row(request, prediction, None)
            trace = prediction.trace
            pool = (
                [fact.doc_id for fact in trace.pool] if config.retrieval.max_hops else [h.doc_id for h in trace.fused]
            )
            if config.retrieval.max_hops == 0:
                row["evidence"] = pool[:20]
            cut = len(pool) if config.retrieval.walk == "bfs" and config.retrieval.max_hops else 50
            row["pools"] = {"pool@50": pool[:50], "pool@100": pool[:100], "pool": pool[:cut]}
            rows.append(row)
    return rows


def scores(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the micro means of every column."""
    totals = dict.fromkeys(COLUMNS, 0.0)
    for row in rows:
        gold = set(row["gold_doc_ids"])
        for k in (5, 10, 20):
            totals[f"recall@{k}"] += len(gold & set(row["evidence"][:k])) / len(gold)
        totals["gold@10"] += float(gold <= set(row["evidence"][:10]))
        for name, pool in row["pools"].items():
            totals[name] += len(gold & set(pool)) / len(gold)
        totals["pool size"] += len(row["pools"]["pool"])
    return {name: round(total / len(rows), 3) for name, total in totals.items()}


def gain(rows: list[dict[str, Any]], base: list[dict[str, Any]]) -> str:
    """Return the paired difference in Recall@10 with its 95% interval over personas."""
    found = compare(sample_of(rows, "recall@10", "row"), sample_of(base, "recall@10", "base"))
    return f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mini")
    parser.add_argument("--split-file", type=Path)
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    dataset = load_pace(arguments.data)
    split = load_split(arguments.split_file, dataset) if arguments.split_file else load_mini_split(dataset)
    kb_ids = open_cases(dataset.cases, make_embedder(arguments.embedder))
    out = []
    for part in ("train", "dev", "test"):
        cases = select_split(dataset, split, part)
        base: list[dict[str, Any]] = []
        print(f"\n{part}: {len(cases.requests)} requests\n{'':36}" + "".join(f"{name:>10}" for name in COLUMNS))
        for label, config in ROWS.items():
            rows = measure(cases, config, kb_ids)
            base = base or rows
            found = scores(rows)
            types = {
                kind: scores([row for row in rows if row["situation_type"] == kind])["recall@10"]
                for kind in ("temporal", "personal", "state")
            }
            out.append({"part": part, "row": label, **found, "recall@10 by type": types, "gain": gain(rows, base)})
            cells = "".join(f"{found[name]:10.3f}" for name in COLUMNS)
            print(f"{label:36}{cells}   {out[-1]['gain']}  {' '.join(f'{k[:4]} {v:.2f}' for k, v in types.items())}")
    if arguments.json:
        arguments.json.write_text(json.dumps(out, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
