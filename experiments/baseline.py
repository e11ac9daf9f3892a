"""The training-free main table (Tables 1 and 2): every baseline and PaceMaker on the same requests.

The runs are listed in ``configs/baseline.toml``; ``--dry-run`` says what they take, ``-h`` lists the flags.
"""

import sys
from pathlib import Path

from pace_dspy.cli.run import execute
from pace_dspy.evaluation.experiment import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__), print, execute))
