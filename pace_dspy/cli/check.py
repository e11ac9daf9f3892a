"""``pace-dspy check``: one request against a user's own facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.artifacts import load_program
from pace_dspy.backends.lm import make_lm, use_backend
from pace_dspy.backends.overrides import parse_settings
from pace_dspy.backends.preflight import preflight
from pace_dspy.backends.roles import attach_answer_lm, make_role_lms
from pace_dspy.cli.live import stage_status, with_weights
from pace_dspy.cli.options import (
    AnswerBackend,
    AsJson,
    BackendSettings,
    Config,
    EmbedderSpec,
    IndexDir,
    ModelBackend,
    ProgramFile,
    a_text,
    parse_day,
)
from pace_dspy.cli.output import emit_json, fail, say
from pace_dspy.cli.render import print_row, row_as_dict
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_kb
from pace_dspy.data.user_kb import KB_SUFFIXES
from pace_dspy.errors import ConfigError, NoFactsError
from pace_dspy.evaluation.runner import to_row
from pace_dspy.knowledge import find_stored, open_kb, open_live_kb
from pace_dspy.program import make_task
from pace_dspy.retrieval import index_dir, make_embedder
from pace_dspy.retrieval.layout import MANIFEST
from pace_dspy.types import Request


def check(
    kb: Annotated[
        str,
        typer.Option(
            "--kb",
            parser=a_text,
            metavar="FILE|KB_ID",
            help="Your facts: .jsonl, .csv or .txt, one a line; or a knowledge base kept with pace-dspy kb.",
        ),
    ],
    request: Annotated[str, typer.Option("--request", help="What you would ask the assistant to do.")],
    date: Annotated[str, typer.Option("--date", help="The day the request is made, YYYY-MM-DD.")],
    persona: Annotated[str | None, typer.Option("--persona", help="The user's name.")] = None,
    backend: ModelBackend = "local",
    answer_backend: AnswerBackend = None,
    backend_settings: BackendSettings = None,
    config: Config = "paper",
    index: IndexDir = None,
    embedder: EmbedderSpec = "minilm",
    program: ProgramFile = None,
    as_json: AsJson = False,
) -> None:
    """Check one request against your own facts and print the decision with its evidence."""
    stored = _stored(kb, index)
    task = make_task(request, parse_day(date), stored[1] if stored else "own", persona)
    chosen = PaceMakerConfig.load(config)
    changes = {**chosen.backend, **parse_settings(backend_settings or ())}
    checker = load_program(program, chosen, backend=backend, warn=say)
    facts = () if stored else load_kb(Path(kb))
    if not stored and not facts:
        raise _no_facts(kb)
    asked = Request(task.kb_id, "q000", task.request, task.reference_date)
    with with_weights():
        lm, answer_lm = make_role_lms(make_lm, backend, answer_backend, changes)
        attach_answer_lm(checker, answer_lm)
        made = make_embedder(embedder)
        preflight(lm, checker)
        if stored:
            shown = open_live_kb(task.kb_id, made, folder=stored[0], on_wait=say).snapshot
        else:
            shown = open_kb(task.kb_id, facts, made, folder=index, graph_k=checker.config.retrieval.graph_k)
        if not len(shown):
            raise _no_facts(kb)
        with use_backend(lm), stage_status("checking"):
            prediction = checker(request=request, reference_date=task.reference_date, kb_id=task.kb_id, persona=persona)
    row = to_row(asked, prediction, None)
    if as_json:
        emit_json(row_as_dict(row, asked, shown))
    else:
        print_row(row, asked, shown)
    if row["decision"] is None and checker.config.agents.answerer != "off":
        fail("no decision: the model gave no usable answer. Ask again, or use another --backend", 1)


def _stored(kb: str, index: Path | None) -> tuple[Path, str] | None:
    """Return root folder and ``kb_id`` of a stored knowledge base, ``None`` for a file of facts."""
    path = Path(kb)
    if path.suffix.lower() in KB_SUFFIXES or (path.exists() and not path.is_dir()):
        return None
    root, kb_id = find_stored(kb, index)
    if not (index_dir(root, kb_id) / MANIFEST).is_file():
        raise ConfigError(
            f"{kb}: no such file and no knowledge base of that name in {root}. "
            "Give a .jsonl, .csv or .txt file, or a name that `pace-dspy kb list` shows"
        )
    return root, kb_id


def _no_facts(kb: str) -> NoFactsError:
    return NoFactsError(f"{kb} has no facts, so no decision is made. Add facts and ask again")
