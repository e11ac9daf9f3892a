"""Embedders (Tables 16 and 17): the same methods over different embedding models.

The runs are listed in ``configs/embedders.toml``; ``--dry-run`` says what they take, ``-h`` lists the flags.
"""

import sys
from pathlib import Path

from pace_dspy.cli.run import execute
from pace_dspy.evaluation.experiment import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__), print, execute))
