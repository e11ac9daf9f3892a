"""Prompt tokens a request by stage, without running a model, beside prompts with ``(doc_id=...)`` labels. Ours.

python experiments/tokens.py [--data mini] [--part all] [--configs paper,plus] [--json FILE]

A scripted model plays the agents (`tokens_play`): rules plan and write views, a filter keeps the gold facts it is
offered and then those that share most words with the request. Tokens are those of the embedded model: its vocabulary,
read from its GGUF file, with its chat template; without the file an estimate, which is said.

Three ways to label the facts in the same prompts (same instructions, same facts, same order, same inputs):

  ours        ``[7] text``
  ids         ``(doc_id=f0097) text``, as the reference labels its candidates
  provenance  ``(doc_id=f0097, score=0.0312, views=0;2, sources=dense;sparse) text``: what the reference records about a
              fact; whether its prompts show all of it we do not know

Only the labels differ, so the ratio says what short numbers save, and nothing about anyone's instructions. Nothing is
trimmed. The last table sets whole configs against the first one with ids: there the facts differ too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokens_play import Play, Prompt, Style, WatchedProgram, ask
from tokens_vocab import chatml, counter

from pace_dspy.backends import weights
from pace_dspy.backends.budget import estimate_tokens
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_mini_split, load_pace, load_split, select_split
from pace_dspy.knowledge import open_cases
from pace_dspy.program import make_task
from pace_dspy.retrieval import make_embedder
from pace_dspy.types import Candidate, Dataset, Trace

STAGES = ("planner", "views", "pre_filter", "second_look", "post_filter", "answerer")
PARTS = ("total", "fixed", "inputs", "labels", "facts", "n_facts")
Count = Callable[[str], int]
Row = dict[str, Any]


def ids(candidate: Candidate, reached: Trace | None) -> str:
    """Return the label of the reference."""
    return f"(doc_id={candidate.doc_id})"


def provenance(candidate: Candidate, reached: Trace | None) -> str:
    """Return a label with all that the reference records about a fact; facts of the walk alone have source graph."""
    hit = next((hit for hit in reached.fused if hit.doc_id == candidate.doc_id), None) if reached else None
    views, sources = (hit.views, hit.sources) if hit else ((), ("graph",))
    score = hit.score if hit else 0.0
    joined = ";".join(str(view) for view in views)
    return f"(doc_id={candidate.doc_id}, score={score:.4f}, views={joined}, sources={';'.join(sources)})"


STYLES: Mapping[str, Style | None] = {"ours": None, "ids": ids, "provenance": provenance}


def measure(dataset: Dataset, kb_ids: Mapping[str, str], config: PaceMakerConfig, style: str, count: Count) -> Row:
    """Return mean tokens a request by stage, what they go to, and the recall of the gold facts."""
    print(f"{config.name}, {style} ...", file=sys.stderr)
    play = Play(WatchedProgram(config), STYLES[style])
    requests = [(case, request) for case in dataset.cases for request in case.requests]
    stages: dict[str, dict[str, float]] = {stage: dict.fromkeys(PARTS, 0.0) for stage in (*STAGES, "all")}
    evidence = offered = 0.0
    for case, request in requests:
        task = make_task(request.query, request.reference_date, kb_ids[case.case_id], case.persona)
        prediction, prompts = ask(play, task, request.gold_doc_ids)
        for prompt in prompts:
            for name, tokens in split(prompt, count).items():
                stages[prompt.stage][name] += tokens / len(requests)
                stages["all"][name] += tokens / len(requests)
        gold = set(request.gold_doc_ids)
        evidence += len(gold & set(prediction.evidence)) / len(gold) / len(requests)
        read = {fact.doc_id for fact in prediction.trace.offered}
        offered += len(gold & read) / len(gold) / len(requests)
    return {
        "config": config.name,
        "style": style,
        "n": len(requests),
        "tokens": stages["all"]["total"],
        "evidence_recall": evidence,
        "offered_recall": offered,
        "stages": {stage: parts for stage, parts in stages.items() if parts["total"]},
    }


def split(prompt: Prompt, count: Count) -> dict[str, float]:
    """Return the tokens of one prompt: in total, fixed part and template, inputs, labels and texts of its facts."""
    texts = {label: " ".join(candidate.text.split()) for label, candidate in prompt.listed.items()}
    total, fixed = count(chatml(prompt.system, prompt.user)), count(chatml(prompt.system, ""))
    facts = sum(count(text) for text in texts.values())
    labels = sum(count(f"{label} {text}\n") for label, text in texts.items()) - facts
    inputs = total - fixed - facts - labels
    return {"total": total, "fixed": fixed, "inputs": inputs, "labels": labels, "facts": facts, "n_facts": len(texts)}


def vocabulary() -> tuple[Count, str]:
    """Return the token counter and what it is: exact when the embedded model's weights are in the cache folder."""
    path = weights.local_path("lm_default")
    if path.is_file():
        return counter(path), f"exact, vocabulary of {path.name}"
    return estimate_tokens, "estimated from characters: `pace-dspy weights pull lm_default` gives the exact ones"


def cut_of(config: PaceMakerConfig, keep: int) -> PaceMakerConfig:
    """Return a config whose last filter reads at most ``keep`` facts."""
    agents = config.agents.model_copy(update={"post_hop_prefilter": keep})
    return config.model_copy(update={"name": f"{config.name}, prefilter {keep}", "agents": agents})


def print_stages(sides: Mapping[str, Row]) -> None:
    """Print tokens a request by stage in the three styles, and where ours go."""
    print(f"\n{sides['ours']['config']}: prompt tokens a request, mean of {sides['ours']['n']}")
    heads = "".join(f"{name:>9}" for name in PARTS[1:])
    print(f"{'':12}{'ours':>9}{'ids':>9}{'ratio':>8}{'provenance':>12}{'ratio':>8}   ours: {heads}")
    for stage, parts in sides["ours"]["stages"].items():
        ours, by_id, full = (side["stages"][stage]["total"] for side in sides.values())
        cells = "".join(f"{parts[name]:9.0f}" for name in PARTS[1:])
        print(f"{stage:12}{ours:9.0f}{by_id:9.0f}{ours / by_id:8.3f}{full:12.0f}{ours / full:8.3f}         {cells}")
    recalls = ", ".join(f"{style} {sides[style]['evidence_recall']:.3f}" for style in sides)
    print(f"evidence recall: {recalls}")


def print_configs(rows: Sequence[Row], base: Row) -> None:
    """Print whole configs beside the base."""
    heads = f"{'tokens':>9}{'of base':>9}{'last filter reads':>20}{'its recall':>12}{'evidence':>10}"
    print(f"\n{'config, our labels':28}{heads}")
    for row in [base, *rows]:
        name = row["config"] if row["style"] == "ours" else f"{row['config']}, {row['style']} (base)"
        read = row["stages"].get("post_filter", {}).get("n_facts")
        shown = "rules" if read is None else f"{read:.0f} facts"
        print(
            f"{name:28}{row['tokens']:9.0f}{row['tokens'] / base['tokens']:9.3f}{shown:>20}"
            f"{row['offered_recall']:12.3f}{row['evidence_recall']:10.3f}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mini")
    parser.add_argument("--split-file", type=Path)
    parser.add_argument("--part", default="all", help="all, train, dev or test")
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--configs", default="paper,lite,plus", help="by commas; the first one is taken apart")
    parser.add_argument("--cuts", default="60,40,20", help="post_hop_prefilter of the first config, by commas")
    parser.add_argument("--json", type=Path, help="write all rows here")
    arguments = parser.parse_args()
    dataset = load_pace(arguments.data)
    if arguments.part != "all":
        split_ = load_split(arguments.split_file, dataset) if arguments.split_file else load_mini_split(dataset)
        dataset = select_split(dataset, split_, arguments.part)
    kb_ids = open_cases(dataset.cases, make_embedder(arguments.embedder))
    count, how = vocabulary()
    print(f"{arguments.data}, part {arguments.part}: {len(dataset.requests)} requests; tokens {how}")
    first, *others = (PaceMakerConfig.load(name) for name in arguments.configs.split(","))
    sides = {style: measure(dataset, kb_ids, first, style, count) for style in STYLES}
    print_stages(sides)
    cuts = [cut_of(first, int(keep)) for keep in arguments.cuts.split(",") if keep]
    rows = [measure(dataset, kb_ids, config, "ours", count) for config in (*cuts, *others)]
    print_configs([sides["ours"], *rows], sides["ids"])
    if arguments.json:
        found = {"tokens": how, "rows": [*sides.values(), *rows]}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
