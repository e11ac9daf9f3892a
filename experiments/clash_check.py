"""The clash check on PACE-mini: clashes found and false ones, by part, from gold facts and from whole knowledge bases.

python experiments/clash_check.py [--data mini]
"""

from __future__ import annotations

import argparse

from pace_dspy.data import PARTS, load_mini_split, load_pace, select_split
from pace_dspy.temporal import derive_notes
from pace_dspy.types import Case, Request


def clashes(case: Case, request: Request, whole_kb: bool) -> int:
    """Return the number of clashes derived for one request."""
    facts = [f for f in case.facts if whole_kb or f.doc_id in request.gold_doc_ids]
    found = derive_notes(
        request.query, request.reference_date, [(f.doc_id, f.text, f.date) for f in facts], persona=case.persona
    )
    return sum(finding.clash for finding in found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mini")
    dataset = load_pace(parser.parse_args().data)
    split = load_mini_split(dataset)
    for part in PARTS:
        pairs = [(case, request) for case in select_split(dataset, split, part).cases for request in case.requests]
        for whole, facts in ((False, "gold facts"), (True, "whole KB")):
            temporal = [(c, r) for c, r in pairs if r.situation_type == "temporal" and r.label == "conflict"]
            innocent = [(c, r) for c, r in pairs if r.label == "non_conflict"]
            hit = sum(clashes(c, r, whole) > 0 for c, r in temporal)
            false = [(r.case_id, r.query_id) for c, r in innocent if clashes(c, r, whole)]
            of_type = sum(r.situation_type == "temporal" for _, r in innocent)
            print(
                f"{part:5} {facts:10} found {hit} of {len(temporal)} temporal conflicts; false on {len(false)} of "
                f"{len(innocent)} non_conflict requests ({of_type} temporal) {false or ''}"
            )


if __name__ == "__main__":
    main()
