"""``pace-dspy evaluate``: judge the answers of a run; resumable, judge errors apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import BackendLM, make_lm
from pace_dspy.backends.overrides import parse_own_settings
from pace_dspy.backends.preflight import preflight
from pace_dspy.batch.files import FOLDER_NAME
from pace_dspy.batch.rounds import judge_role, open_rounds, require_batch
from pace_dspy.cli.live import with_weights
from pace_dspy.cli.options import AsJson, BatchDir, a_path
from pace_dspy.cli.output import abandon, counting, emit_json, say
from pace_dspy.cli.render import print_summary
from pace_dspy.cli.rounds import show_rounds
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.flight import Limits, Outcome
from pace_dspy.evaluation.judge_report import judge_report, read_human, require_match
from pace_dspy.evaluation.judging import JudgeJob, judge_identity, judge_run, judgeable
from pace_dspy.evaluation.scores import key_of
from pace_dspy.evaluation.store import RunStore
from pace_dspy.modules.judge import Judge


def evaluate(
    run: Annotated[Path, typer.Argument(help="The run folder, made by `pace-dspy run`.", metavar="RUN")],
    judge_backend: Annotated[str, typer.Option("--judge-backend", help="Backend profile of the judge.")],
    second_judge: Annotated[
        str | None, typer.Option("--second-judge", help="Another backend that judges too, for the agreement.")
    ] = None,
    judge_set: Annotated[
        list[str] | None,
        typer.Option(
            "--judge-set",
            "--set",
            metavar="KEY=VALUE",
            help="Change a field of the judge's profile (model, base_url, temperature, ...); may be repeated.",
        ),
    ] = None,
    second_judge_set: Annotated[
        list[str] | None,
        typer.Option("--second-judge-set", metavar="KEY=VALUE", help="The same for the second judge."),
    ] = None,
    human: Annotated[
        Path | None,
        typer.Option(
            "--human",
            parser=a_path,
            metavar="PATH",
            help="CSV with case_id, query_id, verdict: human verdicts, or human labels to check the gold.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N answered requests.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="In flight; the backend's slots by default.")
    ] = None,
    max_usd: Annotated[float | None, typer.Option("--max-usd", min=0, help="Stop after this much money.")] = None,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Reuse validated replies.")] = True,
    batch: BatchDir = None,
    as_json: AsJson = False,
) -> None:
    """Judge the answers of a run as PASS, WRONG_RATIONALE or FAIL; start it again to continue after any stop."""
    store = RunStore(run)
    rows = store.rows()
    found = judgeable(rows, limit)
    labels = read_human(human) if human else None
    if human and labels:
        judged = limit or labels.kind == "verdict"
        require_match(labels, [job.key for job in found.jobs] if judged else map(key_of, rows), human)
    with with_weights():
        judges = _judges((judge_backend, judge_set or []), (second_judge, second_judge_set or []), cache)
        require_batch(open_rounds(batch or run / FOLDER_NAME, [(judge_role(lm), lm) for lm in judges]), batch)
        for lm in judges:
            preflight(lm, Judge())
    names = [judge_identity(lm) for lm in judges]
    store.verdicts(names[0]).choose()
    outcomes = []
    for lm in judges:
        outcomes.append(execute(store, found.jobs, lm, concurrency, Limits(max_usd), batch))
        if outcomes[-1].stopped:
            break
    store.export()
    keys = [job.key for job in found.jobs] if limit else None
    second = (names[1], store.rows(keys, judge=names[1])) if len(outcomes) > 1 else None
    report = judge_report(store.rows(keys, judge=names[0]), names[0], second, labels)
    if as_json:
        emit_json({"run": str(run), "outcomes": [vars(outcome) for outcome in outcomes], **report.to_dict()})
    else:
        print_summary(f"Judged {run}", report.to_text())
        for outcome in outcomes:
            show_rounds(outcome)
    _finish(outcomes)


def execute(
    store: RunStore,
    jobs: tuple[JudgeJob, ...],
    lm: BackendLM,
    concurrency: int | None,
    limits: Limits,
    batch: Path | None = None,
) -> Outcome:
    """Judge with a live bar on stderr."""
    with counting(f"judging ({lm.profile.name})", len(jobs)) as bar:
        task = bar.task_ids[0]

        def on_row(row: dict[str, Any] | None, outcome: Outcome) -> None:
            note = f"judge errors {outcome.failed}, ${outcome.cost_usd:.2f}"
            bar.update(task, completed=outcome.ended, description=note)

        try:
            outcome = judge_run(store, jobs, lm, concurrency=concurrency, limits=limits, on_row=on_row, batch=batch)
        except KeyboardInterrupt:
            abandon()
        bar.update(task, completed=outcome.ended)
    return outcome


def _judges(
    first: tuple[str, Sequence[str]], second: tuple[str | None, Sequence[str]], use_cache: bool
) -> list[BackendLM]:
    cache = ReplyCache() if use_cache else None
    judges = [make_lm(first[0], parse_own_settings(first[1], "--judge-set"), reply_cache=cache)]
    name, settings = second
    if name is None and settings:
        raise ConfigError("--second-judge-set needs --second-judge")
    if name is not None:
        judges.append(make_lm(name, parse_own_settings(settings, "--second-judge-set"), reply_cache=cache))
        if judge_identity(judges[0]) == judge_identity(judges[1]):
            raise ConfigError(
                f"--second-judge {name} is the first judge again; give a backend with another model, or another one "
                "with --second-judge-set model=NAME"
            )
    return judges


def _finish(outcomes: list[Outcome]) -> None:
    failed = sum(outcome.failed for outcome in outcomes)
    stopped = next((outcome for outcome in outcomes if outcome.stopped), None)
    if stopped is not None:
        say(f"stopped early: {stopped.stopped}")
    if failed:
        say(f"{failed} judge errors; the same command asks them again and repeats no verdict")
    open_now = any(outcome.rounds for outcome in outcomes)
    if stopped is not None or (failed and not open_now):
        raise typer.Exit(130 if stopped is not None and stopped.interrupted else 1)
