"""The ablations: one agent or the walk switched off at a time, and evidence selection as a whole.

The runs are listed in ``configs/ablations.toml``; ``--dry-run`` says what they take, ``-h`` lists the flags.
"""

import sys
from pathlib import Path

from pace_dspy.cli.run import execute
from pace_dspy.evaluation.experiment import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__), print, execute))
