"""Check a model server as this package uses it, and print what passes: a table, or ``--json``.

python experiments/check_server.py vllm --set base_url=http://localhost:8000/v1 --set model=NAME

Takes about twenty-five small calls. Exit code 1 when a check fails, 2 when the server cannot be asked at all.
``?`` marks what cannot be told: the server does not say, or the profile asks for nothing of the kind.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from pace_dspy.backends.checks import Check, run_checks
from pace_dspy.backends.lm import make_lm
from pace_dspy.backends.overrides import own_settings, parse_settings
from pace_dspy.backends.profiles import PROFILES
from pace_dspy.errors import PaceError

SIGNS = {"pass": "ok", "fail": "FAIL", "untold": "?"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Check one backend; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=list(PROFILES), help="backend profile")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--in-flight", type=int, default=8, help="prompts asked at once (default 8)")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="only checks whose name holds PART")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    args = parser.parse_args(arguments)
    try:
        lm = make_lm(args.backend, own_settings(parse_settings(args.settings)))
        show = (lambda check: None) if args.json else lambda check: print(row(check), flush=True)
        checks = run_checks(lm, in_flight=args.in_flight, only=args.only, on_check=show)
    except PaceError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 2
    failed = sum(check.outcome == "fail" for check in checks)
    if args.json:
        print(json.dumps({"backend": lm.label, "checks": [check.to_dict() for check in checks]}, indent=2))
    else:
        print(f"{sum(check.outcome == 'pass' for check in checks)} ok, {failed} failed: {lm.label}")
    return 1 if failed else 0


def row(check: Check) -> str:
    """Return one line of the table."""
    return f"{SIGNS[check.outcome]:5}{check.name:28}{check.seconds:7.1f} s  {' '.join(check.seen.split())}"


if __name__ == "__main__":
    sys.exit(main())
