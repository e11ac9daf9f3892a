"""The method ``react``: a ``dspy.ReAct`` agent with our retrieval as tools, then our answerer. A baseline of ours."""

from __future__ import annotations

import datetime as dt
import time

import dspy

from pace_dspy.backends.usage import request_log
from pace_dspy.config import PaceMakerConfig
from pace_dspy.modules.choice import make_answerer
from pace_dspy.modules.notebook import Notebook
from pace_dspy.modules.searcher import NoteSearcher
from pace_dspy.program import candidates, config_of, facts_of, make_task, to_prediction
from pace_dspy.types import Trace, View, ViewHits

REACT = "react"


class ReactProgram(dspy.Module):
    """What people would build without PaceMaker: an agent that searches the notes itself, and the same answerer.

    The evidence is the notes in the order the agent saw them, cut to the config's ``evidence``; the trace's views are
    the request (not searched by itself) and the agent's queries, its pool all notes seen.

    Args:
        config: Limits; planner, views, filters and walk are not used.
    """

    def __init__(self, config: PaceMakerConfig | str | None = None) -> None:
        super().__init__()
        self.config = config_of(config)
        self.searcher = NoteSearcher()
        self.answerer = make_answerer(self.config.agents)

    def forward(self, request: str, reference_date: dt.date, kb_id: str, persona: str | None = None) -> dspy.Prediction:
        """Check one request; same arguments, result fields and errors as `PaceMakerProgram.forward`."""
        task, kb = make_task(request, reference_date, kb_id, persona), facts_of(kb_id)
        started = time.perf_counter()
        with request_log() as log:
            notebook = self.searcher(task, Notebook(kb))
            pool = notebook.seen
            kept = pool[: self.config.agents.evidence]
            answer = self.answerer(task, candidates(kb, (), kept))
        shown = next((trim.shown for trim in log.trims if trim.stage == "answerer"), len(kept))
        trace = Trace(
            kb.kb_id,
            reference_date,
            views=(View("original", request), *notebook.views),
            hits=(ViewHits((), ()), *notebook.hits),
            pool=pool,
            evidence=tuple(fact.doc_id for fact in kept[:shown]),
        )
        return to_prediction(answer, trace, log, started)
