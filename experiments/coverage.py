"""Coverage (Figure 3): the outcome by how much of the gold the evidence covers.

The runs are listed in ``configs/coverage.toml``; ``--dry-run`` says what they take, ``-h`` lists the flags.
"""

import sys
from pathlib import Path

from pace_dspy.cli.run import execute
from pace_dspy.evaluation.experiment import main
from pace_dspy.evaluation.experiment_extra import coverage_table

if __name__ == "__main__":
    sys.exit(main(Path(__file__), print, execute, coverage_table))
