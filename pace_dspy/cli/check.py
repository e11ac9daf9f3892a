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
    Backend,
    BackendSettings,
    Config,
    EmbedderSpec,
    ProgramFile,
    parse_day,
)
from pace_dspy.cli.output import emit_json, say
from pace_dspy.cli.render import print_row, row_as_dict
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_kb
from pace_dspy.errors import NoFactsError
from pace_dspy.evaluation.runner import to_row
from pace_dspy.knowledge import open_kb
from pace_dspy.program import checked
from pace_dspy.retrieval import make_embedder
from pace_dspy.types import Request


def check(
    kb: Annotated[Path, typer.Option("--kb", help="Your facts: .jsonl, .csv or .txt, one a line.")],
    request: Annotated[str, typer.Option("--request", help="What you would ask the assistant to do.")],
    date: Annotated[str, typer.Option("--date", help="The day the request is made, YYYY-MM-DD.")],
    persona: Annotated[str | None, typer.Option("--persona", help="The user's name.")] = None,
    backend: Backend = "local",
    answer_backend: AnswerBackend = None,
    backend_settings: BackendSettings = None,
    config: Config = "paper",
    embedder: EmbedderSpec = "minilm",
    program: ProgramFile = None,
    as_json: AsJson = False,
) -> None:
    """Check one request against your own facts and print the decision with its evidence."""
    day = parse_day(date)
    chosen = PaceMakerConfig.load(config)
    changes = {**chosen.backend, **parse_settings(backend_settings or ())}
    checker = load_program(program, chosen, backend=backend, warn=say)
    facts = load_kb(kb)
    if not facts:
        raise NoFactsError(f"{kb} has no facts, so no decision is made. Add facts and ask again")
    asked = Request("own", "q000", checked(request), day)
    with with_weights():
        lm, answer_lm = make_role_lms(make_lm, backend, answer_backend, changes)
        attach_answer_lm(checker, answer_lm)
        preflight(lm, checker)
        index = open_kb("own", facts, make_embedder(embedder), graph_k=checker.config.retrieval.graph_k)
        with use_backend(lm), stage_status("checking"):
            prediction = checker(request=request, reference_date=day, kb_id=index.kb_id, persona=persona)
    row = to_row(asked, prediction, None)
    if as_json:
        emit_json(row_as_dict(row, asked, index))
    else:
        print_row(row, asked, index)
