"""The command tree, and how errors end: one line on stderr, exit 1 (the work failed) or 2 (wrong use or bad data)."""

from __future__ import annotations

import logging
import os
import sys

import typer

from pace_dspy.cli import backends, check, compile, data, demo, evaluate, index, kb, program, report, run, weights
from pace_dspy.cli.output import fail
from pace_dspy.errors import PaceError

DEBUG_ENV = "PACE_DEBUG"

app = typer.Typer(
    name="pace-dspy",
    help="Find the few facts that make a request a bad idea, and decide. Results on stdout, progress on stderr.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("check")(check.check)
app.command("index")(index.index)
app.command("run")(run.run)
app.command("report")(report.report)
app.command("evaluate")(evaluate.evaluate)
app.command("compile")(compile.compile_)
app.add_typer(data.app, name="data")
app.add_typer(kb.app, name="kb")
app.add_typer(program.app, name="program")
app.add_typer(weights.app, name="weights")
app.add_typer(backends.app, name="backends")


def main() -> None:
    """Run the command line and exit."""
    logging.getLogger("dspy").setLevel(logging.ERROR)
    try:
        app()
    except PaceError as exc:
        fail(str(exc), exc.exit_code)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as exc:
        if os.environ.get(DEBUG_ENV):
            raise
        fail(f"unexpected {type(exc).__name__}: {exc} (set {DEBUG_ENV}=1 to see where)", 1)
