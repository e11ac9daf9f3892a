"""``pace-dspy kb``: change and list stored knowledge bases while programs use them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.cli.live import with_weights
from pace_dspy.cli.options import AsJson, EmbedderSpec, IndexDir, a_path, parse_day
from pace_dspy.cli.output import emit_json, say, show_line
from pace_dspy.data import load_kb
from pace_dspy.errors import ConfigError
from pace_dspy.knowledge import cached, default_index_dir, find_stored, new_fact
from pace_dspy.retrieval import (
    KbChange,
    KbIndex,
    LiveKb,
    RecordedEmbedder,
    index_dir,
    load_or_build,
    make_embedder,
    stored_kb_ids,
)
from pace_dspy.types import Fact

app = typer.Typer(help="Add, remove and list facts of stored knowledge bases.", no_args_is_help=True)

Kb = Annotated[str, typer.Argument(help="A kb_id, an index's folder, or the file of facts it was made from.")]


@app.command("add")
def add_command(
    kb: Kb,
    facts: Annotated[
        Path | None, typer.Option("--facts", parser=a_path, metavar="PATH", help="File of facts: .jsonl, .csv or .txt.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="One fact.")] = None,
    date: Annotated[str | None, typer.Option("--date", help="Day of --text, YYYY-MM-DD.")] = None,
    doc_id: Annotated[str | None, typer.Option("--doc-id", help="Id of --text; made from it by default.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace facts whose id is known.")] = False,
    index: IndexDir = None,
    embedder: EmbedderSpec = "minilm",
    as_json: AsJson = False,
) -> None:
    """Add facts; a knowledge base that is not stored yet is made."""
    if (facts is None) == (text is None):
        raise ConfigError("give either --facts FILE or --text TEXT")
    if text is None and (date or doc_id):
        raise ConfigError("--date and --doc-id belong to --text")
    new = load_kb(facts) if facts else (new_fact(text or "", parse_day(date) if date else None, doc_id),)
    root, kb_id = find_stored(kb, index)
    with with_weights():
        made = cached(make_embedder(embedder))
    try:
        live = LiveKb(root, kb_id, made, on_wait=say)
    except FileNotFoundError:
        if Path(kb).is_file() and (facts is None or not facts.samefile(kb)):
            remedy = f"First: pace-dspy kb add {kb} --facts {kb}"
            raise ConfigError(f"{kb} is a file whose facts are not stored yet. {remedy}") from None
        _report(kb_id, load_or_build(root, kb_id, new, made), [fact.doc_id for fact in new], [], as_json)
        return
    change = live.put(new) if replace else live.add(new)
    _report_change(live, change, as_json)


@app.command("remove")
def remove_command(
    kb: Kb,
    doc_ids: Annotated[list[str] | None, typer.Argument(help="Ids of the facts.")] = None,
    before: Annotated[str | None, typer.Option("--before", help="Remove facts dated before it, YYYY-MM-DD.")] = None,
    index: IndexDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove facts by id, or those that are too old."""
    if bool(doc_ids) == (before is not None):
        raise ConfigError("give either the ids of facts or --before DATE")
    live = _open(kb, index)
    _report_change(live, live.expire(parse_day(before, "--before")) if before else live.remove(doc_ids or []), as_json)


@app.command("list")
def list_command(
    kb: Annotated[str | None, typer.Argument(help="As for add; all knowledge bases without it.")] = None,
    index: IndexDir = None,
    as_json: AsJson = False,
) -> None:
    """List the facts of a knowledge base, or all knowledge bases."""
    if kb is None:
        root = index or default_index_dir()
        rows = [_summary(_open(kb_id, root).snapshot) for kb_id in stored_kb_ids(root)]
        if as_json:
            emit_json({"index": str(root), "kbs": rows})
            return
        for row in rows:
            show_line(f"{row['kb_id']}: {row['facts']} facts, version {row['version']}")
        show_line(f"{len(rows)} knowledge base{'s' * (len(rows) != 1)} in {root}")
        return
    shown = _open(kb, index).snapshot
    if as_json:
        emit_json({**_summary(shown), "items": [_item(fact) for fact in shown.facts.facts()]})
        return
    for fact in shown.facts.facts():
        show_line(f"{fact.doc_id}  {fact.date or '-'}  {fact.text}")
    show_line(f"{len(shown)} facts in {shown.kb_id}, version {shown.version}")


@app.command("compact")
def compact_command(kb: Kb, index: IndexDir = None, as_json: AsJson = False) -> None:
    """Fold the log of changes into the index; it happens by itself from time to time."""
    live = _open(kb, index)
    live.compact()
    _report(live.kb_id, live.snapshot, [], [], as_json)


def _open(kb: str, index: Path | None) -> LiveKb:
    root, kb_id = find_stored(kb, index)
    try:
        return LiveKb(root, kb_id, RecordedEmbedder.of(index_dir(root, kb_id), kb_id), on_wait=say)
    except FileNotFoundError as exc:
        raise ConfigError(
            f"no index of KB {kb_id!r} in {root}; make it with `pace-dspy kb add {kb_id} --facts FILE`"
        ) from exc


def _report_change(live: LiveKb, change: KbChange | None, as_json: bool) -> None:
    added, removed = (list(change.added), list(change.removed)) if change else ([], [])
    _report(live.kb_id, live.snapshot, added, removed, as_json)


def _report(kb_id: str, index: KbIndex, added: list[str], removed: list[str], as_json: bool) -> None:
    if as_json:
        emit_json({**_summary(index), "added": added, "removed": removed})
        return
    replaced = len(set(added) & set(removed))
    show_line(
        f"{kb_id}: {len(added) - replaced} added, {replaced} replaced, {len(removed) - replaced} removed; "
        f"{len(index)} facts, version {index.version}"
    )


def _summary(index: KbIndex) -> dict[str, object]:
    return {
        "kb_id": index.kb_id,
        "facts": len(index),
        "version": index.version,
        "embedder": index.embedder.id,
        "content_hash": index.content_hash,
    }


def _item(fact: Fact) -> dict[str, object]:
    return {"doc_id": fact.doc_id, "text": fact.text, "date": fact.date.isoformat() if fact.date else None}
