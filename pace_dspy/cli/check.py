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
    ModelBackend,
    ProgramFile,
    a_path,
    parse_day,
)
from pace_dspy.cli.output import emit_json, fail, say
from pace_dspy.cli.render import print_row, row_as_dict
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_kb
from pace_dspy.errors import NoFactsError
from pace_dspy.evaluation.runner import to_row
from pace_dspy.knowledge import open_kb
from pace_dspy.program import make_task
from pace_dspy.retrieval import make_embedder
from pace_dspy.types import Request


def check(
    kb: Annotated[
        Path, typer.Option("--kb", parser=a_path, metavar="FILE", help="Your facts: .jsonl, .csv or .txt, one a line.")
    ],
    request: Annotated[str, typer.Option("--request", help="What you would ask the assistant to do.")],
    date: Annotated[str, typer.Option("--date", help="The day the request is made, YYYY-MM-DD.")],
    persona: Annotated[str | None, typer.Option("--persona", help="The user's name.")] = None,
    backend: ModelBackend = "local",
    answer_backend: AnswerBackend = None,
    backend_settings: BackendSettings = None,
    config: Config = "paper",
    embedder: EmbedderSpec = "minilm",
    program: ProgramFile = None,
    as_json: AsJson = False,
) -> None:
    """Check one request against your own facts and print the decision with its evidence."""
    task = make_task(request, parse_day(date), "own", persona)
    chosen = PaceMakerConfig.load(config)
    changes = {**chosen.backend, **parse_settings(backend_settings or ())}
    checker = load_program(program, chosen, backend=backend, warn=say)
    facts = load_kb(kb)
    if not facts:
        raise NoFactsError(f"{kb} has no facts, so no decision is made. Add facts and ask again")
    asked = Request("own", "q000", task.request, task.reference_date)
    with with_weights():
        lm, answer_lm = make_role_lms(make_lm, backend, answer_backend, changes)
        attach_answer_lm(checker, answer_lm)
        made = make_embedder(embedder)
        preflight(lm, checker)
        index = open_kb("own", facts, made, graph_k=checker.config.retrieval.graph_k)
        with use_backend(lm), stage_status("checking"):
            prediction = checker(
                request=request, reference_date=task.reference_date, kb_id=index.kb_id, persona=persona
            )
    row = to_row(asked, prediction, None)
    if as_json:
        emit_json(row_as_dict(row, asked, index))
    else:
        print_row(row, asked, index)
    if row["decision"] is None and checker.config.agents.answerer != "off":
        fail("no decision: the model gave no usable answer. Ask again, or use another --backend", 1)
