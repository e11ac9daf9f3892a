"""Small run folders on a hand-made dataset of two personas, and a reader of the page they become."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser

from pace_dspy.data import load_pace
from pace_dspy.evaluation.provenance import RunManifest
from pace_dspy.evaluation.store import RunStore

FAILURE = {"kind": "ServerError", "message": "the server is down", "fatal": False}


TIMELINE = {"window_start": "2026-01-05", "ref_date": "2026-03-18", "window_end": "2026-04-20"}
FACTS = {
    "f1": "Maya has eaten no meat since spring.",
    "f2": "Hearth serves game only until 21 March.",
    "f3": "Ana's café table is by the window.",
    "f4": "The tram stops at midnight.",
    "f5": "Rui owes Ana a lunch.",
}
QUERIES = [
    {
        "query_id": "q000",
        "query": "Book Hearth for Maya and me on Friday.",
        "label": "conflict",
        "situation_type": "personal",
        "gold_doc_ids": ["f2", "f1"],
        "judgment": "Maya eats no meat. Hearth serves only meat.",
    },
    {
        "query_id": "q001",
        "query": "Ask Rui for lunch.",
        "label": "non_conflict",
        "situation_type": "state",
        "gold_doc_ids": ["f5"],
        "judgment": "He owes her one. Nothing is against it.",
    },
]


def write_data(folder, **texts):
    """Two personas with two requests each, as a JSON release; ``texts`` replaces facts of the first by id."""
    for case_id, name, facts in (("tiny_a", "Ana Reis", {**FACTS, **texts}), ("tiny_b", "Bo Lind", FACTS)):
        place = folder / "tiny" / "kb" / case_id
        place.mkdir(parents=True)
        corpus = [{"doc_id": doc_id, "text": text} for doc_id, text in facts.items()]
        _dump(place / "corpus.json", {"timeline": TIMELINE, "corpus": corpus})
        _dump(place / "queries.json", {"timeline": TIMELINE, "queries": QUERIES})
        profile = folder / "tiny" / "profile" / f"{case_id}.json"
        profile.parent.mkdir(exist_ok=True)
        _dump(profile, {"spec": {"demographic": {"full_name": name}}})
    return folder / "tiny"


def _dump(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def hit(doc_id, score=1.0):
    return {"doc_id": doc_id, "score": score}


def trace(evidence, **more):
    """A trace in which view 1 finds f1 f3 (dense) and f2 (sparse), fusion keeps all, and the walk reaches f5."""
    usage = {
        "stage": "answerer",
        "calls": 1,
        "cached_calls": 0,
        "repairs": 0,
        "prompt_tokens": 200,
        "prompt_cached_tokens": 50,
        "completion_tokens": 20,
        "latency_ms": 1500.0,
        "cost_usd": 0.002,
    }
    return {
        "kb_id": "kb",
        "reference_date": "2026-03-18",
        "cues": [{"direction": "diet", "why": "a guest may not eat it", "anchors": ["Maya"]}],
        "views": [{"kind": "original", "text": "Book Hearth"}, {"kind": "counter", "text": "who eats no meat"}],
        "hits": [
            {"dense": [hit("f1", 0.9), hit("f3", 0.5)], "sparse": [hit("f2", 7.25)]},
            {"dense": [hit("f1", 0.8)], "sparse": []},
        ],
        "fused": [
            {"doc_id": "f1", "score": 0.03, "views": [0, 1], "sources": ["dense"]},
            {"doc_id": "f2", "score": 0.02, "views": [0], "sources": ["sparse"]},
            {"doc_id": "f3", "score": 0.01, "views": [0], "sources": ["dense"]},
        ],
        "seeds": ["f1", "f3"],
        "pool": [{"doc_id": "f1", "hop": 0}, {"doc_id": "f3", "hop": 0}, {"doc_id": "f5", "hop": 1}],
        "evidence": evidence,
        "fallbacks": [],
        "trims": [],
        "usage": [usage],
        "retrieval_ms": 4.0,
        "total_ms": 1600.0,
        **more,
    }


def row(case_id, query_id, *, evidence=(), decision=None, cited=(), error=None, **more):
    """One row of the hand-made data; q000 is a conflict on f2 and f1, q001 a non-conflict on f5."""
    first = query_id == "q000"
    return {
        "case_id": case_id,
        "query_id": query_id,
        "label": "conflict" if first else "non_conflict",
        "situation_type": "personal" if first else "state",
        "gold_doc_ids": ["f2", "f1"] if first else ["f5"],
        "evidence": list(evidence),
        "cited": list(cited),
        "decision": decision,
        "response": f"The answer is {decision}." if decision else None,
        "trace": None if error else trace(list(evidence)),
        "error": error,
        **more,
    }


GOOD_ROWS = (
    row("tiny_a", "q000", evidence=["f2", "f1"], decision="conflict", cited=["f1"]),
    row("tiny_a", "q001", evidence=["f5", "f3"], decision="non_conflict", cited=["f5"]),
    row("tiny_b", "q000", evidence=["f1", "f3"], decision="conflict", cited=["f1"]),
    row("tiny_b", "q001", evidence=["f5"], decision="conflict", cited=["f5"]),
)
POOR_ROWS = (
    row("tiny_a", "q000", evidence=["f3", "f1"], decision="non_conflict"),
    row("tiny_a", "q001", evidence=["f3"], decision="non_conflict"),
    row("tiny_b", "q000", evidence=["f3"], decision="non_conflict"),
    row("tiny_b", "q001", error=FAILURE),
)


def write_run(folder, rows, data, *, method="pacemaker", verdicts=None, **manifest):
    """A run folder with these rows on the data in a folder."""
    dataset = load_pace(data)
    fields = {
        "method": method,
        "config": {"name": "paper"},
        "dataset": dataset.name,
        "dataset_hash": dataset.content_hash,
        "backends": {"agents": "openai: model@https://host", "answerer": "openai: model@https://host"},
        "embedder": "hash",
        "seed": 0,
        **manifest,
    }
    store = RunStore.open(folder, RunManifest(**fields))
    for position, one in enumerate(rows):
        store.put(one, position)
    if verdicts is not None:
        judge = store.verdicts("judge@test")
        judge.choose()
        for position, (one, verdict) in enumerate(zip(rows, verdicts, strict=True)):
            found = {"verdict": verdict, "reason": f"because {verdict}", "error": None}
            judge.put({"case_id": one["case_id"], "query_id": one["query_id"], "usage": None, **found}, position)
    store.close()
    return folder


@dataclass
class Page(HTMLParser):
    """A parsed page: every tag with its attributes, tables as rows of cell texts, and all text."""

    source: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def __post_init__(self):
        super().__init__(convert_charrefs=True)
        self._open, self._table = [], None
        self.feed(self.source)
        self.bad += [f"{tag} is never closed" for tag in self._open]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "source", "br"}:
            self._open.append(tag)
        if tag == "table":
            self._table = self.tables.setdefault(dict(attrs)["id"].removeprefix("table-"), [])
        elif tag == "tr":
            self._table.append([])
        elif tag in {"td", "th"}:
            self._table[-1].append("")

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.bad.append(f"{tag} is closed out of order")
        if tag == "table":
            self._table = None

    def handle_data(self, data):
        self.texts.append(data)
        if {"td", "th"} & set(self._open) and self._table:
            self._table[-1][-1] += data if "small" not in self._open else f"|{data}"

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def cell(self, table, row_name, column):
        """Main text and smaller lines of one cell."""
        header = [title.partition("|")[0] for title in self.tables[table][0]]
        found = next(one for one in self.tables[table] if one[0].partition("|")[0] == row_name)
        main, _, small = found[header.index(column)].partition("|")
        return main, small

    def attributes(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]
