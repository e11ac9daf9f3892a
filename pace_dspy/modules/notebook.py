"""What one search agent may do and has seen: tools over one knowledge base, notes numbered in the order seen. Ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from pace_dspy.retrieval import KbIndex
from pace_dspy.types import Hit, PoolFact, View, ViewHits

NOTES_PER_CALL = 5
NOTE_CHARS = 300
QUERY_CHARS = 400
NOTHING = "no note was found"


class Notebook:
    """The notes of one request, from one knowledge base only; the agent names notes by number, never by id.

    Args:
        kb: The knowledge base.
    """

    def __init__(self, kb: KbIndex) -> None:
        self.kb = kb
        self.views: list[View] = []
        self.hits: list[ViewHits] = []
        self._hops: dict[str, int] = {}

    @property
    def seen(self) -> tuple[PoolFact, ...]:
        """Facts in the order seen; hop 0 was found by a search, hop n + 1 is a neighbour of a fact of hop n."""
        return tuple(PoolFact(doc_id, hop) for doc_id, hop in self._hops.items())

    def dense(self, query: str) -> str:
        """Search by meaning and return the notes found, as prompt lines."""
        return self._search(query, dense=True)

    def sparse(self, query: str) -> str:
        """Search by words and return the notes found, as prompt lines."""
        return self._search(query, dense=False)

    def near(self, note: int) -> str:
        """Return the neighbours of a note as prompt lines.

        Raises:
            ValueError: No such note; says which there are.
        """
        ids = list(self._hops)
        if not 1 <= note <= len(ids):
            raise ValueError(f"there is no note {note}; notes seen: {f'1 to {len(ids)}' if ids else 'none yet'}")
        source = ids[note - 1]
        found = [doc_id for doc_id, _ in self.kb.graph.neighbors(source)][:NOTES_PER_CALL]
        return self._lines(found, self._hops[source] + 1)

    def _search(self, query: str, *, dense: bool) -> str:
        text = " ".join(query.split())[:QUERY_CHARS]
        if not text:
            raise ValueError("the query is empty")
        view = View("counter", text)
        if dense:
            hits = self.kb.search([view], NOTES_PER_CALL)[0].dense
        else:
            hits = tuple(Hit(*pair) for pair in self.kb.sparse.search_many([text], NOTES_PER_CALL)[0])
        self.views.append(view)
        self.hits.append(ViewHits(hits, ()) if dense else ViewHits((), hits))
        return self._lines([hit.doc_id for hit in hits], 0)

    def _lines(self, doc_ids: Sequence[str], hop: int) -> str:
        lines = []
        for doc_id in doc_ids:
            self._hops.setdefault(doc_id, hop)
            text = " ".join(self.kb.text(doc_id).split())
            shown = text if len(text) <= NOTE_CHARS else f"{text[:NOTE_CHARS]}..."
            lines.append(f"[{list(self._hops).index(doc_id) + 1}] {shown}")
        return "\n".join(lines) or NOTHING


_open: ContextVar[Notebook] = ContextVar("pace_dspy_notebook")


@contextmanager
def opened(notebook: Notebook) -> Iterator[Notebook]:
    """Let the tools below work on this notebook, in this thread."""
    token = _open.set(notebook)
    try:
        yield notebook
    finally:
        _open.reset(token)


def search_dense(query: str) -> str:
    """Find the notes closest in meaning to a short query."""
    return _open.get().dense(query)


def search_sparse(query: str) -> str:
    """Find the notes that share the most telling words with a short query, such as names and places."""
    return _open.get().sparse(query)


def neighbours(note: int) -> str:
    """Show the notes most similar to a note already seen, by its number."""
    return _open.get().near(note)
