"""The command tree, and how errors end: one line on stderr, exit 1 (the work failed) or 2 (wrong use or bad data)."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import typer

from pace_dspy.cli import (
    backends,
    batch,
    check,
    compare,
    compile,
    data,
    demo,
    evaluate,
    index,
    kb,
    program,
    report,
    run,
    weights,
)
from pace_dspy.cli.output import fail, say
from pace_dspy.data.schema import DataWarning
from pace_dspy.errors import PaceError

DEBUG_ENV = "PACE_DEBUG"
_NO_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)

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
app.command("compare")(compare.compare)
app.command("evaluate")(evaluate.evaluate)
app.command("compile")(compile.compile_)
app.add_typer(data.app, name="data")
app.add_typer(kb.app, name="kb")
app.add_typer(program.app, name="program")
app.add_typer(weights.app, name="weights")
app.add_typer(backends.app, name="backends")
app.add_typer(batch.app, name="batch")


def main() -> None:
    """Run the command line and exit."""
    logging.getLogger("dspy").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _plain_notes():
            code = app(standalone_mode=False)
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except PaceError as exc:
        fail(str(exc), exc.exit_code)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:
        _drop_stdout()
        sys.exit(1)
    except Exception as exc:
        if isinstance(exc, OSError) and exc.errno in _NO_OUTPUT:
            _drop_stdout()
            fail(f"cannot write: {exc.strerror}; free some space, or write elsewhere", 1)
        if _is_usage(exc):
            _refuse(exc)
        if os.environ.get(DEBUG_ENV):
            raise
        fail(f"unexpected {type(exc).__name__}: {exc} (set {DEBUG_ENV}=1 to see where)", 1)


@contextlib.contextmanager
def _plain_notes() -> Iterator[None]:
    """Show each `DataWarning` once, as one line without a source line."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, DataWarning):
                say(f"note: {message}")
            else:
                shown(message, category, *place, **more)

        warnings.showwarning = show
        warnings.simplefilter("once", DataWarning)
        yield


def _is_usage(exc: Exception) -> bool:
    """Tell whether typer refused the command line; the class has another home in each version of typer."""
    return hasattr(exc, "format_message") and hasattr(exc, "exit_code")


def _refuse(exc: Any) -> NoReturn:
    """End with typer's refusal in one line, or with the help text where that is what it says."""
    if type(exc).__name__ == "NoArgsIsHelpError":
        exc.show()
        sys.exit(exc.exit_code)
    context = getattr(exc, "ctx", None)
    command = context.command_path if context is not None else "pace-dspy"
    fail(f"{exc.format_message().rstrip('.')}; see `{command} -h`", exc.exit_code)


def _drop_stdout() -> None:
    """Send what is still to be written nowhere, so that Python's last flush stays silent."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
