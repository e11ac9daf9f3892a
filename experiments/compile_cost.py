r"""What does it cost to compile PaceMaker on PACE? Calls, tokens and price by stages, optimizer and backend. Ours.

    python experiments/compile_cost.py [--limit 300] [--proposals 10] [--config paper] [--backend openai ...]

Nothing is asked and no data is needed: PACE's sizes are the paper's (3,249 requests of 185 personas, 40% of them train
and 20% dev), prompts are rendered, tokens are means measured on PACE-mini (``pace_dspy/optimization/cost.py``), prices
those of the profiles (``pace-dspy backends``), without any discount for cached prompts and without hidden thinking.
``--limit all`` takes the whole train and dev sides. A model of your own: ``--backend vllm:price_prompt=0.1,...``.
``pace-dspy compile --dry-run`` says the same of a run on real data.
"""

from __future__ import annotations

import argparse
import sys

from pace_dspy.errors import PaceError
from pace_dspy.evaluation.entries import parse_entry
from pace_dspy.optimization.price_table import pace_material, price_rows, table_lines
from pace_dspy.optimization.settings import OPTIMIZERS

BACKENDS = ("openai", "gemini", "vllm")


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", default="300", help="requests of train and of dev, or all")
    parser.add_argument("--proposals", type=int, default=10, help="candidates a search scores, a group of stages")
    parser.add_argument("--config", default="paper", help="named config, or a .json/.toml file")
    parser.add_argument("--max-demos", type=int, default=3, help="most demos a predictor gets")
    parser.add_argument("--backend", action="append", help=f"may be repeated; {', '.join(BACKENDS)} by default")
    parser.add_argument("--optimizer", action="append", choices=OPTIMIZERS, help="may be repeated; all by default")
    given = parser.parse_args()
    if given.limit != "all" and not (given.limit.isdecimal() and int(given.limit) > 0):
        parser.error(f"--limit {given.limit!r} is not a number above 0, nor all")
    if given.proposals < 1 or given.max_demos < 1:
        parser.error("--proposals and --max-demos must be at least 1")
    try:
        material = pace_material(None if given.limit == "all" else int(given.limit))
        rows = price_rows(
            material,
            [parse_entry(text) for text in given.backend or BACKENDS],
            given.optimizer or OPTIMIZERS,
            proposals=given.proposals,
            config=given.config,
            max_demos=given.max_demos,
        )
    except PaceError as exc:
        sys.stderr.write(f"error: {exc}\n")
        return exc.exit_code
    print(f"PACE, {material.n_train} train and {material.n_dev} dev requests, config {given.config}\n")
    print("\n".join(table_lines(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
