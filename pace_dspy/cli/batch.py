"""``pace-dspy batch``: hand rounds of the batch backend to OpenAI's Batch service and bring the replies back."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from pace_dspy.batch.files import OpenRound, last_round, read_lines
from pace_dspy.batch.service import BASE_URL, ENDED, KEY_ENV, BatchService, BatchState, Receipt, read_receipt
from pace_dspy.cli.options import AsJson
from pace_dspy.cli.output import emit_json, printable, say, show_line, stderr
from pace_dspy.errors import ConfigError

app = typer.Typer(help="OpenAI's Batch service for rounds of the batch backend.", no_args_is_help=True)
POLL_S = 30.0
sleep = time.sleep

Folder = Annotated[Path, typer.Argument(help="Folder of the rounds, or the run folder.", metavar="DIR")]
KeyEnv = Annotated[str, typer.Option("--key-env", help="Variable that holds the key.")]


@app.command("submit")
def submit(
    folder: Folder,
    base_url: Annotated[str, typer.Option("--base-url", help="Address of the service.")] = BASE_URL,
    key_env: KeyEnv = KEY_ENV,
    again: Annotated[bool, typer.Option("--again", help="Hand the round in once more; it is paid once more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hand in the open round of DIR."""
    its = last_round(folder)
    if read_lines(its.responses):
        raise ConfigError(f"round {its.number} is answered ({its.responses}); start the run's command to go on")
    receipt = read_receipt(its)
    if receipt is not None and not again:
        raise ConfigError(
            f"round {its.number} was handed in as {receipt.batch_id}; see `pace-dspy batch status`, or give --again"
        )
    service = BatchService(os.environ, base_url=base_url, key_env=key_env)
    with stderr.status(f"handing in {its.prompts} prompts"):
        state = service.submit(its)
    _show(its, state, as_json)


@app.command("status")
def status(folder: Folder, key_env: KeyEnv = KEY_ENV, as_json: AsJson = False) -> None:
    """Say how far the last round of DIR is."""
    its = last_round(folder)
    receipt = read_receipt(its)
    if read_lines(its.responses):
        _show(its, None, as_json, f"its replies are in {its.responses}")
    elif receipt is None:
        _show(its, None, as_json, "not handed in")
    else:
        _show(its, _service(receipt, key_env).state(receipt.batch_id), as_json)


@app.command("fetch")
def fetch(
    folder: Folder,
    key_env: KeyEnv = KEY_ENV,
    wait: Annotated[bool, typer.Option("--wait", help=f"Ask every {POLL_S:.0f} s until the batch has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the replies of the last round of DIR, once its batch has ended."""
    its = last_round(folder)
    if read_lines(its.responses):
        _show(its, None, as_json, f"its replies are in {its.responses}")
        return
    receipt = read_receipt(its)
    if receipt is None:
        raise ConfigError(f"round {its.number} was not handed in; run `pace-dspy batch submit {folder}`")
    service = _service(receipt, key_env)
    state = service.fetch(its, receipt.batch_id)
    while wait and state.status not in ENDED:
        say(f"{state}; asking again in {POLL_S:.0f} s")
        sleep(POLL_S)
        state = service.fetch(its, receipt.batch_id)
    ended = state.status in ENDED
    _show(its, state, as_json, f"replies written to {its.responses}" if ended else "not ended yet, nothing written")


def _service(receipt: Receipt, key_env: str) -> BatchService:
    return BatchService(os.environ, base_url=receipt.base_url, key_env=key_env)


def _show(its: OpenRound, state: BatchState | None, as_json: bool, more: str = "") -> None:
    if as_json:
        emit_json({"round": its.to_dict(), "batch": vars(state) if state else None, "note": more or None})
        return
    parts = [f"round {its.number}, {its.prompts} prompts", str(state) if state else "", more]
    show_line(printable("; ".join(part for part in parts if part)))
