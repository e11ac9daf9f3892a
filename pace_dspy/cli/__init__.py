"""The ``pace-dspy`` command: parsing and printing only."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit; a Ctrl-C while the commands are being imported ends in one line too."""
    try:
        from pace_dspy.cli.app import main as run_commands

        run_commands()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
