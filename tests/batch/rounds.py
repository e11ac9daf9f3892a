"""Helpers of the batch tests: a scripted model that depends on its prompt, and the files of a round answered by it."""

import hashlib
import json
import re

from servers import stage_of

from pace_dspy.batch.files import last_round
from pace_dspy.evaluation.store import RunStore

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 40},
}


def _draw(prompt, n):
    """``n`` numbers from 1 to 20 that follow from the prompt alone."""
    digest = hashlib.sha256(prompt.strip().encode()).digest()
    return list(dict.fromkeys(byte % 20 + 1 for byte in digest))[:n]


def _decide(prompt):
    numbers = _draw(prompt, 3)
    decision = "conflict" if numbers[0] % 2 else "non_conflict"
    return {"response": f"It {decision}s, says {numbers}.", "cited": numbers, "decision": decision}


MODEL = {
    "planner": lambda p: {"cues": [{"direction": f"direction {_draw(p, 1)}", "why": "another plan", "anchors": []}]},
    "views": lambda p: {"queries": [f"plans for {_draw(p, 2)}", "who cannot come"]},
    "pre_filter": lambda p: {"keep": _draw(p, 8)},
    "post_filter": lambda p: {"selected": _draw(p, 9)},
    "answerer": _decide,
    "judge": lambda p: {"reason": "as told", "verdict": ("PASS", "WRONG_RATIONALE", "FAIL")[_draw(p, 1)[0] % 3]},
}
"""Replies that differ from prompt to prompt, and are the same for the same prompt."""


def prompt_text(body):
    """The prompt as `scripted.prompt_of` shows it to a script."""
    return "\n".join(str(message["content"]) for message in body["messages"])


def completion(content, finish="stop", **message):
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE}


def line_of(request, reply, status=200):
    """A line of a responses file; ``reply`` is a model's reply, or the whole body."""
    body = reply if isinstance(reply, dict) and "choices" in reply else completion(json.dumps(reply))
    response = {"status_code": status, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}


def requests_of(folder):
    """The prompts of the open round, in order."""
    return [json.loads(line) for line in last_round(folder).requests.read_text().splitlines()]


def answered(request, script=MODEL):
    body = request["body"]
    return line_of(request, script[stage_of(body)](prompt_text(body)))


def answer(folder, script=MODEL, change=None):
    """Write the replies of the open round; ``change`` gets the lines (a list of dictionaries) and returns the text."""
    its = last_round(folder)
    assert not its.responses.exists()
    requests = requests_of(folder)
    lines = [answered(request, script) for request in requests]
    text = "".join(json.dumps(line) + "\n" for line in lines) if change is None else change(lines)
    its.responses.write_text(text)
    return requests


def texts(lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


def rows_of(folder):
    store = RunStore(folder)
    rows = {row["query_id"]: row for row in store.rows()}
    store.close()
    return rows


def what_counts(row):
    """A row without times and usage."""
    fields = ("decision", "evidence", "cited", "response", "error")
    return {name: row[name] for name in fields}


def said_rounds(out):
    """Numbers of the rounds that a command asks to have answered."""
    return [int(number) for number in re.findall(r"^Round (\d+):", out, re.MULTILINE)]


STAGES = ["planner", "views", "pre_filter", "post_filter", "answerer"]


def stages(requests):
    return [stage_of(request["body"]) for request in requests]


def finish(run, folder, script=MODEL, most=12):
    """Answer and start again until nothing is open; returns the number of rounds answered, and the last output."""
    for number in range(most):
        code, out, err = run()
        assert code in {0, 1}, err
        if not said_rounds(out):
            return number, out
        answer(folder, script)
    raise AssertionError("the run does not end")
