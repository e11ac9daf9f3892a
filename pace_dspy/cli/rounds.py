"""What a person does next when a round of the ``batch`` backend is open."""

from __future__ import annotations

import shlex
from typing import Any

from pace_dspy.cli.output import show_line
from pace_dspy.cli.render import print_summary
from pace_dspy.evaluation.flight import Outcome


def show_rounds(outcome: Outcome) -> None:
    """Print what the answered rounds held, and how the open ones can be answered."""
    for note in outcome.notes:
        show_line(note)
    if outcome.paused:
        show_line(f"{outcome.paused} of {outcome.planned} requests are paused until a round is answered")
    for its in outcome.rounds:
        _show(its)
    if outcome.rounds:
        show_line("Then start the same command again.")


def _show(its: dict[str, Any]) -> None:
    requests, responses, model = (shlex.quote(its[name]) for name in ("requests", "responses", "model"))
    folder = shlex.quote(its["requests"].rpartition("/")[0] or ".")
    title = f"Round {its['number']}: {its['prompts']} prompts for {its['model']}. Have them answered, one of:"
    print_summary(
        title,
        {
            "OpenAI Batch": f"pace-dspy batch submit {folder}; later pace-dspy batch fetch {folder}",
            "vLLM": f"vllm run-batch -i {requests} -o {responses} --model {model}",
            "any server": f"python experiments/answer_batch.py {folder} --backend NAME",
            "other": f"for each line of {requests} one in OpenAI's Batch output format, in {responses}",
        },
    )
