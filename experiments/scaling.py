"""Measure what one user costs: disk, building, opening, memory, requests without model calls. Ours.

python experiments/scaling.py --facts 2000 --open 40 --json scaling.json

The facts are those of the shipped persona mini_xl; nothing of it is asked of a model. Times are medians on the stated
threads; memory is that of a fresh process, by /proc (Linux). `SCALING.md` says what follows from the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--facts", type=int, default=2000, help="facts of the KB (default: 2000)")
    parser.add_argument("--open", type=int, default=40, help="KBs that are open at once for memory (default: 40)")
    parser.add_argument("--contexts", type=int, default=8, help="contexts of lite and plus at once (default: 8)")
    parser.add_argument("--threads", type=int, default=1, help="of embedder and FAISS (default: 1)")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    arguments = parser.parse_args()
    if not 100 <= arguments.facts <= 2062 or min(arguments.open, arguments.contexts, arguments.threads) < 1:
        parser.error("--facts must be 100 to 2062 (all of mini_xl), --open, --contexts and --threads 1 or more")
    if not Path("/proc/self/status").is_file():
        parser.error("memory is read from /proc, which this system lacks; run it on Linux")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # read when numpy and FAISS load
        os.environ[name] = str(arguments.threads)
    from scaling_parts import measure

    numbers = {}
    for name, value, unit in measure(arguments.facts, arguments.open, arguments.contexts, arguments.threads):
        numbers[name] = {"value": value, "unit": unit}
        print(f"{name:44} {value:>14,.3f} {unit}", flush=True)
    if arguments.json:
        settings = {name: getattr(arguments, name) for name in ("facts", "open", "contexts", "threads")}
        arguments.json.write_text(json.dumps({"settings": settings, "numbers": numbers}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
