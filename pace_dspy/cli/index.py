"""``pace-dspy index``: build and store the index of every persona (or of one file of facts)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.cli.live import with_weights
from pace_dspy.cli.options import AsJson, EmbedderSpec, a_path, a_text
from pace_dspy.cli.output import counting, emit_json, show_line
from pace_dspy.data import load_kb, load_pace
from pace_dspy.data.user_kb import KB_SUFFIXES
from pace_dspy.knowledge import kb_id_of, open_kb
from pace_dspy.paths import writable_folder
from pace_dspy.retrieval import make_embedder
from pace_dspy.types import Fact


def index(
    data: Annotated[
        str,
        typer.Option(
            "--data", parser=a_text, metavar="TEXT", help="mini, a PACE folder, the hub's name, or a file of facts."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", parser=a_path, metavar="PATH", help="Folder for the indexes, one a knowledge base.")
    ],
    embedder: EmbedderSpec = "minilm",
    graph_k: Annotated[int, typer.Option("--graph-k", min=0, help="Neighbours kept per fact.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Build the on-disk indexes; one that is already there and fits is kept."""
    sources = _sources(data)
    writable_folder(out)
    rows = []
    with with_weights():
        made = make_embedder(embedder)
    with counting("indexing facts", sum(len(facts) for facts in sources.values())) as bar:
        for kb_id, facts in sources.items():
            started = time.perf_counter()
            built = open_kb(kb_id, facts, made, folder=out, graph_k=graph_k)
            bar.advance(bar.task_ids[0], len(facts))
            rows.append({"kb_id": kb_id, "facts": len(built), "seconds": round(time.perf_counter() - started, 3)})
    if as_json:
        emit_json({"out": str(out), "embedder": made.id, "indexes": rows})
        return
    for row in rows:
        show_line(f"{row['kb_id']}: {row['facts']} facts in {row['seconds']} s")
    show_line(f"{len(rows)} indexes in {out}, embedder {made.id}")


def _sources(data: str) -> dict[str, tuple[Fact, ...]]:
    path = Path(data)
    if path.is_file() and path.suffix.lower() in KB_SUFFIXES:
        return {kb_id_of(path): load_kb(path)}
    return {case.case_id: case.facts for case in load_pace(data).cases}
