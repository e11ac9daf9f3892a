"""Answer a round of the batch backend through any chat-completions server, or through the embedded model.

The third road beside ``pace-dspy batch submit`` and ``vllm run-batch``: prompts of ``DIR/round-N.requests.jsonl`` are
sent one by one, replies land in ``DIR/round-N.responses.jsonl``. A stopped start continues. Exit status 3 when no round
is open, so that a shell loop knows when to end; 1 when no prompt was answered, or a start stopped early.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pace_dspy.backends.lm import make_lm
from pace_dspy.backends.overrides import own_settings, parse_settings
from pace_dspy.backends.preflight import check_server
from pace_dspy.batch.answering import answer_round
from pace_dspy.batch.files import last_round, read_lines
from pace_dspy.cli.live import with_weights
from pace_dspy.cli.output import abandon, counting, fail, say
from pace_dspy.errors import PaceError
from pace_dspy.evaluation.flight import Limits, Outcome

NOTHING_OPEN = 3


def main() -> int:
    """Answer the last round of a folder; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="folder of the rounds, or the run folder")
    add("--backend", required=True, help="profile of the server; local is the embedded model")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="as for pace-dspy run")
    add("--concurrency", type=int, help="requests in flight (default: the backend's slots)")
    add("--max-usd", type=float, help="stop after this much money")
    given = parser.parse_args()
    if given.concurrency is not None and given.concurrency < 1:
        parser.error(f"--concurrency must be at least 1, received {given.concurrency}")
    try:
        limits = Limits(given.max_usd)
        its = last_round(given.folder)
        if read_lines(its.responses):
            say(f"no round is open in {its.requests.parent}: round {its.number} has its replies")
            return NOTHING_OPEN
        with with_weights():
            lm = make_lm(given.backend, own_settings(parse_settings(given.settings)))
            check_server(lm)
            lm.warm_up()
        with counting(f"round {its.number}", its.prompts) as bar:

            def on_row(row: dict[str, Any] | None, outcome: Outcome) -> None:
                note = f"round {its.number}, failed {outcome.failed}, ${outcome.cost_usd:.2f}"
                bar.update(bar.task_ids[0], completed=outcome.ended, description=note)

            outcome = answer_round(its, lm, concurrency=given.concurrency, limits=limits, on_row=on_row)
    except PaceError as exc:
        fail(str(exc), exc.exit_code)
    except KeyboardInterrupt:
        abandon()
    if outcome.stopped:
        say(f"stopped early: {outcome.stopped}{'' if outcome.interrupted else '; start again to continue'}")
        return 130 if outcome.interrupted else 1
    answered = outcome.planned - outcome.failed
    kinds = ", ".join(f"{count} {kind}" for kind, count in outcome.failures.items())
    failed = f"; failed: {kinds}" if kinds else ""
    say(f"round {its.number}: {answered} of {outcome.planned} answered in {its.responses}{failed}")
    return 0 if answered else 1


if __name__ == "__main__":
    sys.exit(main())
