"""Which requests of a run get their DSPy spans recorded, in this process or in a worker. No tracking library here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import dspy

from pace_dspy.errors import PendingReplyError
from pace_dspy.evaluation.run_card import sampled
from pace_dspy.evaluation.spans import RequestSpans, SpanRecorder
from pace_dspy.methods import CheckRequest
from pace_dspy.types import Request, Trace

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recording:
    """What is recorded of a run, and who gets it.

    Attributes:
        share: Share of the requests, in [0, 1]; chosen by request id.
        keep: Takes the spans of one request; called from any thread.
    """

    share: float
    keep: Callable[[RequestSpans], None]


def recorded(check: CheckRequest, recording: Recording | None) -> CheckRequest:
    """Return ``check`` with the spans of sampled requests recorded; results and errors are the same."""
    if recording is None:
        return check

    def checked(request: Request, kb_id: str, persona: str | None) -> dspy.Prediction:
        if not sampled(request.case_id, request.query_id, recording.share):
            return check(request, kb_id, persona)
        recorder = SpanRecorder()
        trace: Trace | None = None
        paused = False
        try:
            with dspy.context(callbacks=[*dspy.settings.callbacks, recorder]):
                prediction = check(request, kb_id, persona)
            trace = prediction.trace
            return prediction
        except PendingReplyError:  # it goes on in a later start, and is recorded then
            paused = True
            raise
        finally:
            if not paused:
                _keep(recording, recorder, request, trace)

    return checked


def _keep(recording: Recording, recorder: SpanRecorder, request: Request, trace: Trace | None) -> None:
    try:
        recording.keep(recorder.finish(request, trace))
    except Exception:  # whatever is wrong with the spans, the request itself is not touched
        logger.warning("the spans of request %s could not be kept", request.query_id, exc_info=True)
