"""Compare two runs request by request: decision, evidence, cited facts. Exit status 1 when they differ.

Do two roads to the same model, such as a live server and a batch, give the same answers?
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pace_dspy.errors import PaceError
from pace_dspy.evaluation.scores import Key, key_of
from pace_dspy.evaluation.store import RunStore

FIELDS = ("decision", "evidence", "cited", "response")


def main() -> int:
    """Print one line a difference and a count of each; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN", help="a run folder")
    given = parser.parse_args()
    try:
        left, right = (_rows(folder) for folder in given.runs)
    except PaceError as exc:
        sys.stderr.write(f"error: {exc}\n")
        return exc.exit_code
    shared = [key for key in left if key in right]
    differing = {field: [key for key in shared if left[key][field] != right[key][field]] for field in FIELDS}
    for key in differing["decision"]:
        print(f"{'/'.join(key)}: {left[key]['decision']} and {right[key]['decision']}")
    print(f"{len(shared)} requests finished in both, {len(left)} in the first, {len(right)} in the second")
    for field, keys in differing.items():
        print(f"{field}: the same in {len(shared) - len(keys)} of {len(shared)}")
    return 0 if shared and len(left) == len(right) == len(shared) and not any(differing.values()) else 1


def _rows(folder: Path) -> dict[Key, dict[str, Any]]:
    return {key_of(row): row for row in RunStore(folder).rows() if row["error"] is None}


if __name__ == "__main__":
    sys.exit(main())
