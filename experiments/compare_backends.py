r"""Which model should I use, what does it cost, and is it the model or the plumbing? Backends beside each other.

Backends and methods are listed in ``configs/compare_backends.toml``; ``--backend`` takes the place of the former::

    python experiments/compare_backends.py --part test --sample 12 --dry-run \
        --backend local --backend local:model=lm_small --backend vllm:base_url=http://127.0.0.1:8011/v1,model=small

A backend that cannot be asked is listed with its reason; the exit status is then 1. ``-h`` lists the flags.
"""

import sys
from pathlib import Path

from pace_dspy.cli.run import execute
from pace_dspy.evaluation.backend_comparison import comparison_page, comparison_tables
from pace_dspy.evaluation.experiment import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__), print, execute, comparison_tables, page=comparison_page))
