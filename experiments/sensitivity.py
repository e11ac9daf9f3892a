"""Sensitivity (Tables 14 and 15): hops, neighbours, fused list, evidence, RRF constant and weights, one at a time.

The runs are listed in ``configs/sensitivity.toml``; ``--dry-run`` says what they take, ``-h`` lists the flags.
"""

import sys
from pathlib import Path

from pace_dspy.cli.run import execute
from pace_dspy.evaluation.experiment import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__), print, execute))
