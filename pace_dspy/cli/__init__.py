"""The ``pace-dspy`` command: parsing and printing only."""

from pace_dspy.cli.app import main

__all__ = ["main"]
