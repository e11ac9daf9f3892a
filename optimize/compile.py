"""Compile the program with a DSPy optimizer: ``python optimize/compile.py --help`` (as ``pace-dspy compile``)."""

from __future__ import annotations

import sys

from pace_dspy.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "compile")
    main()
