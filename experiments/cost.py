"""Cost and latency (Table 25): calls, tokens, money and seconds by stage, and the price of an index.

The runs are listed in ``configs/cost.toml``; ``--dry-run`` says what they take, ``-h`` lists the flags.
"""

import sys
from pathlib import Path

from pace_dspy.cli.run import execute
from pace_dspy.evaluation.experiment import main
from pace_dspy.evaluation.experiment_extra import cost_table

if __name__ == "__main__":
    sys.exit(main(Path(__file__), print, execute, cost_table))
