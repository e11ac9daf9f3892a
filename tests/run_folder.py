"""A run folder with hand-written rows, for tests of judging."""

from pace_dspy.evaluation.provenance import RunManifest
from pace_dspy.evaluation.store import RunStore


def answered(n, label="conflict", *, case="p1", response="No: Maya is vegan.", decision="conflict", **more):
    """One finished, answered row."""
    return {
        "case_id": case,
        "query_id": f"q{n:03}",
        "query": f"Book table {n} at the grill",
        "reference_date": "2026-03-18",
        "label": label,
        "situation_type": "personal",
        "gold_doc_ids": ["f1"],
        "judgment": "Maya is vegan and the grill serves meat only.",
        "evidence": ["f1"],
        "cited": ["f1"],
        "decision": decision,
        "response": response,
        "trace": None,
        "error": None,
        **more,
    }


FAILED = {"decision": None, "response": None, "error": {"kind": "ServerError", "message": "down", "fatal": False}}
UNDECIDED = {"decision": None, "response": None}


def make_run(folder, rows):
    """A run folder that holds these rows."""
    manifest = RunManifest(
        method="hybrid", config={}, dataset="d", dataset_hash="h", backends={}, embedder="hash", seed=0
    )
    store = RunStore.open(folder, manifest)
    for position, row in enumerate(rows):
        store.put(row, position)
    return store
