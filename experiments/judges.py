"""Judges (Table 8): verdicts of two judges on the same answers, and their agreement.

The runs are listed in ``configs/judges.toml``; ``--dry-run`` says what they take, ``-h`` lists the flags.
"""

import sys
from pathlib import Path

from pace_dspy.cli.run import execute
from pace_dspy.evaluation.experiment import main
from pace_dspy.evaluation.experiment_extra import judge_tables

if __name__ == "__main__":
    sys.exit(main(Path(__file__), print, execute, judge_tables))
