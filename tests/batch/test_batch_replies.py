"""Replies that are no good: told in one line, asked again in the next round, and given up in the end."""

import json
import re
from collections import Counter

import pytest
from rounds import (
    MODEL,
    answer,
    answered,
    completion,
    finish,
    line_of,
    requests_of,
    rows_of,
    said_rounds,
    stages,
    texts,
    what_counts,
)
from servers import stage_of


def test_bad_lines_are_told_and_asked_again(run, direct, tmp_path):
    folder = tmp_path / "r" / "batch"
    run()

    def damage(lines):
        server, expired, wrong, gone = lines[0], lines[1], lines[2], lines[3]
        server["response"] = {"status_code": 500, "request_id": "r", "body": {"error": {"message": "boom"}}}
        expired |= {"response": None, "error": {"code": "batch_expired", "message": "too late"}}
        wrong["response"]["body"] = {"object": "list", "data": []}
        kept = [line for line in lines[:9] if line is not gone]
        stranger = {**lines[4], "custom_id": "somebody-else"}
        return texts([*kept, kept[-1], stranger]) + "not json\n" + json.dumps(lines[9])[:-40]

    first = answer(folder, change=damage)
    code, out, err = run()
    assert code == 0, err
    assert (
        "round 1: 5 of 10 prompts answered; failed: 1 HTTP 500, 1 batch_expired, 1 no chat completion, 2 missing; "
        "asked again: 5; lines ignored: 1 repeated, 1 with an unknown custom_id, 1 unreadable, 1 cut at the end"
    ) in out
    second = requests_of(folder)
    assert Counter(stages(second)) == {"planner": 5, "views": 5}
    again = {first[n]["custom_id"] for n in (0, 1, 2, 3, 9)}
    assert {request["custom_id"] for request in second if stage_of(request["body"]) == "planner"} == again
    rounds, _ = finish(run, folder)
    assert rounds == 5
    assert {name: what_counts(row) for name, row in rows_of(tmp_path / "r").items()} == {
        name: what_counts(row) for name, row in direct.items()
    }


def test_a_reply_that_does_not_parse_gets_the_repair_prompt_in_the_next_round(run, tmp_path):
    folder = tmp_path / "r" / "batch"
    run(limit=2)

    def prose(lines):
        lines[0]["response"]["body"] = completion("Let me think. There might be a conflict.")
        return texts(lines)

    first = answer(folder, change=prose)
    run(limit=2)
    repair, views = requests_of(folder)
    assert stages([repair, views]) == ["planner", "views"]
    messages = repair["body"]["messages"]
    assert messages[: len(first[0]["body"]["messages"])] == first[0]["body"]["messages"]
    assert messages[-2] == {"role": "assistant", "content": "Let me think. There might be a conflict."}
    assert "That reply cannot be used: the reply holds no complete JSON object" in messages[-1]["content"]
    for _ in range(6):
        answer(folder)
        code, out, err = run(limit=2)
        if not said_rounds(out):
            break
    assert code == 0, err
    row = rows_of(tmp_path / "r")["q000"]
    planner = row["trace"]["usage"][0]
    assert (planner["stage"], planner["calls"], planner["repairs"]) == ("planner", 2, 1)
    assert row["trace"]["fallbacks"] == []


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        (completion('{"cues": [', finish="length"), "max_completion_tokens", None),
        (completion("<think>maybe"), None, "only thinking"),
        (completion(None, reasoning_content="hm"), None, "empty|only thinking"),
        (completion('{"cues": "many"}'), None, "field 'cues'"),
    ],
)
def test_replies_pass_the_checks_of_every_backend(run, tmp_path, body, field, told):
    folder = tmp_path / "r" / "batch"
    run(limit=1)
    [first] = requests_of(folder)
    answer(folder, change=lambda lines: texts([line_of(first, body)]))
    run(limit=1)
    [again] = requests_of(folder)
    assert stage_of(again["body"]) == "planner"
    if field is not None:
        assert again["body"][field] > first["body"][field]
        assert again["body"]["messages"] == first["body"]["messages"]
    else:
        assert re.search(told, again["body"]["messages"][-1]["content"])


def test_unusable_twice_is_the_stages_fallback_not_a_failure(run, tmp_path):
    folder = tmp_path / "r" / "batch"
    _, out = finish(lambda: run(limit=1), folder, {**MODEL, "planner": lambda _: "prose"})
    [row] = rows_of(tmp_path / "r").values()
    assert row["error"] is None
    assert [item["stage"] for item in row["trace"]["fallbacks"]] == ["planner"]
    assert "planner 1" in out


def test_a_prompt_without_a_reply_is_given_up_after_three_rounds_and_counted(run, tmp_path):
    folder = tmp_path / "r" / "batch"
    run(limit=2)
    lost = requests_of(folder)[0]["custom_id"]

    def without(lines):
        kept = [line for line in lines if line["custom_id"] != lost]
        return texts(kept or [{"custom_id": lost, "response": None, "error": None}])

    for number in range(1, 4):
        assert [request["custom_id"] for request in requests_of(folder)].count(lost) == 1
        answer(folder, change=without)
        code, out, err = run(limit=2)
        assert code == 0, err
        assert said_rounds(out) == [number + 1]
    assert "given up after 3 rounds: 1" in out
    assert "1 requests failed" in err
    for _ in range(2):
        answer(folder)
        code, out, err = run(limit=2)
    assert said_rounds(out) == []
    assert code == 1
    rows = rows_of(tmp_path / "r")
    [failed] = [row["error"] for row in rows.values() if row["error"]]
    assert failed["kind"] == "BackendTimeoutError"
    assert "no usable reply in 3 rounds (no reply). Use --set num_retries=4 to ask again" in failed["message"]
    assert [row["decision"] is not None for row in rows.values()].count(True) == 1
    code, out, err = run("--set", "num_retries=4", limit=2)
    assert (code, said_rounds(out)) == (0, [6])
    assert [request["custom_id"] for request in requests_of(folder)] == [lost]


def test_a_refusal_is_never_asked_again(run, tmp_path):
    folder = tmp_path / "r" / "batch"
    run(limit=2)
    error = {"error": {"message": "this prompt is not allowed", "type": "invalid_request_error", "param": None}}

    def refuse(lines):
        lines[0]["response"] = {"status_code": 400, "request_id": "r", "body": error}
        return texts(lines)

    answer(folder, change=refuse)
    code, out, _ = run(limit=2)
    assert code == 0
    assert "round 1: 1 of 2 prompts answered; failed: 1 HTTP 400, not asked again" in out
    assert stages(requests_of(folder)) == ["views"]
    [error] = [row["error"] for row in rows_of(tmp_path / "r").values()]
    assert error["kind"] == "BadRequestError"
    assert "HTTP 400: this prompt is not allowed" in error["message"]


def test_a_refused_setting_ends_the_start_and_writes_no_round(run, tmp_path):
    """vLLM's form of a refusal: a null body, and the error beside it."""
    folder = tmp_path / "r" / "batch"
    run()
    said = {"error": {"message": "max_tokens is not supported", "type": "BadRequestError", "param": None, "code": 400}}

    def refuse(lines):
        return texts(
            {**line, "response": {"status_code": 400, "request_id": "r", "body": None}, "error": said} for line in lines
        )

    answer(folder, change=refuse)
    code, out, err = run()
    assert code == 1
    assert said_rounds(out) == []
    assert "stopped early: backend batch/gpt-5.4-mini: HTTP 400: max_tokens is not supported" in err
    assert "--set provider=openai" in err
    assert "to have a round answered again, delete its round-N.responses.jsonl" in out
    assert not (folder / "round-2.requests.jsonl").exists()


def test_late_replies_of_an_earlier_round_count(run, tmp_path):
    folder = tmp_path / "r" / "batch"
    run(limit=3)
    first = answer(folder, change=lambda lines: texts(lines[:1]))
    run(limit=3)
    assert Counter(stages(requests_of(folder))) == {"planner": 2, "views": 1}
    (folder / "round-1.responses.jsonl").write_text(texts(answered(request) for request in first))
    (folder / "round-2.requests.jsonl").unlink()
    code, _, _ = run(limit=3)
    assert code == 0
    assert stages(requests_of(folder)) == ["views"] * 3


def test_the_wrong_file_is_refused_and_costs_no_try(run, tmp_path):
    folder = tmp_path / "r" / "batch"
    run(limit=2)
    path = folder / "round-1.responses.jsonl"
    path.write_text("<html>\nlogin\n")
    code, _, err = run(limit=2)
    assert code == 2
    assert f"{path} holds no reply to this round (2 unreadable); put the right file there, or delete it" in err
    path.unlink()
    answer(folder)
    code, out, _ = run(limit=2)
    assert (code, said_rounds(out)) == (0, [2])
