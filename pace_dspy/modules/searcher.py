"""The search agent: ``dspy.ReAct`` over our retrieval, on our model boundary. A baseline of ours, not of the paper.

DSPy 3.4.1's own loop cannot be used as it is: it turns every exception of a tool, a failed embedding server included,
into text for the model, ends quietly on any ``ValueError`` (our `ConfigError` is one), shows our source lines to the
model, and asks once more for an answer that our answerer gives. Signature, prompt, tools and trajectory are DSPy's.
"""

from __future__ import annotations

from typing import Any

import dspy

from pace_dspy.backends.budget import prompt_limit, prompt_tokens
from pace_dspy.backends.lm import require_lm
from pace_dspy.backends.usage import record_fallback, record_trim, stage_scope
from pace_dspy.calendar import today_line
from pace_dspy.errors import PaceError, ReplyError, WindowError
from pace_dspy.modules.base import current_adapter
from pace_dspy.modules.notebook import Notebook, neighbours, opened, search_dense, search_sparse
from pace_dspy.signatures import SearchNotes
from pace_dspy.types import Stage, Task

STAGE: Stage = "react"
REPLY_TOKENS = 240
MAX_ITERS = 5
FINISH = "finish"
_ERROR_CHARS = 200
_KEYS_A_TURN = 4


class NoteSearcher(dspy.ReAct):
    """Fills a notebook, one tool call a turn, until the agent finishes or the turns are used up.

    A reply that stays unusable ends the search with what was seen (the dense hits of the request itself when nothing
    was); the fallback is recorded. A backend that fails, the embedder's included, is an error of the request.

    Args:
        max_iters: Most turns, each one model call.
    """

    react: dspy.Predict

    def __init__(self, max_iters: int = MAX_ITERS) -> None:
        super().__init__(SearchNotes, tools=[search_dense, search_sparse, neighbours], max_iters=max_iters)
        self.react = dspy.Predict(self.react.signature, max_tokens=REPLY_TOKENS)
        del self.extract

    def forward(self, task: Task, notebook: Notebook) -> Notebook:
        """Search and return the notebook.

        Raises:
            BackendError: The model's or the embedder's backend failed.
            ConfigError: No language model is set.
        """
        require_lm(self.react.lm or dspy.settings.lm)
        inputs = {"request": task.request, "today": today_line(task.reference_date)}
        trajectory: dict[str, Any] = {}
        with stage_scope(STAGE), dspy.context(adapter=current_adapter()), opened(notebook):
            for turn in range(self.max_iters):
                try:
                    step = self.react(**inputs, trajectory=self._fitting(trajectory, inputs))
                except ReplyError as exc:
                    record_fallback(STAGE, exc.problem)
                    if not notebook.seen:
                        notebook.dense(task.request)
                    break
                if step.next_tool_name == FINISH:
                    break
                trajectory |= {
                    f"thought_{turn}": step.next_thought,
                    f"tool_name_{turn}": step.next_tool_name,
                    f"tool_args_{turn}": step.next_tool_args,
                    f"observation_{turn}": self._observe(step.next_tool_name, step.next_tool_args),
                }
        return notebook

    def _observe(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool; only what the agent did wrong is told to the agent."""
        try:
            return str(self.tools[tool](**arguments))
        except PaceError:
            raise
        except (TypeError, ValueError) as exc:
            return f"the call failed: {' '.join(str(exc).split())[:_ERROR_CHARS]}"

    def _fitting(self, trajectory: dict[str, Any], inputs: dict[str, str]) -> str:
        """Return the trajectory as text, without its oldest turns where the window has no room; recorded as a trim.

        Raises:
            WindowError: Not even the last turn fits.
        """
        lm = self.react.lm or dspy.settings.lm
        limit, turns = prompt_limit(lm, REPLY_TOKENS), len(trajectory) // _KEYS_A_TURN
        for dropped in range(max(turns, 1)):
            kept = dict(list(trajectory.items())[dropped * _KEYS_A_TURN :])
            text = str(self._format_trajectory(kept))
            messages = current_adapter().format(self.react.signature, self.react.demos, {**inputs, "trajectory": text})
            if limit is None or prompt_tokens(lm, messages) <= limit:
                if dropped:
                    record_trim(STAGE, turns, turns - dropped)
                return text
        raise WindowError(
            f"the window has no room for one turn of the search and {REPLY_TOKENS} reply tokens",
            remedy="Use a backend or setting with a larger window.",
        )
