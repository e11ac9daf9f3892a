"""A whole run in rounds: the same as a direct run, each prompt once, each request once."""

import json

import pytest
from rounds import STAGES, answer, requests_of, rows_of, said_rounds, stages, texts, what_counts


@pytest.mark.parametrize("data", ["mini"])
def test_a_batch_run_of_ten_mini_requests_is_the_direct_run(run, direct, tmp_path):
    folder = tmp_path / "r" / "batch"
    for number, stage in enumerate(STAGES, start=1):
        code, out, err = run()
        assert code == 0, err
        assert said_rounds(out) == [number]
        assert "10 of 10 requests are paused until a round is answered" in out
        requests = answer(folder)
        assert stages(requests) == [stage] * 10
        assert len({request["custom_id"] for request in requests}) == 10
    code, out, err = run()
    assert code == 0, err
    assert said_rounds(out) == []
    assert "round 5: 10 of 10 prompts answered" in out
    rows = rows_of(tmp_path / "r")
    assert {name: what_counts(row) for name, row in rows.items()} == {
        name: what_counts(row) for name, row in direct.items()
    }
    assert {row["decision"] for row in rows.values()} == {"conflict", "non_conflict"}
    for row in rows.values():
        usage = row["trace"]["usage"]
        assert [(stage["stage"], stage["calls"], stage["cached_calls"]) for stage in usage] == [
            (s, 1, 0) for s in STAGES
        ]
        assert {
            (stage["prompt_tokens"], stage["prompt_cached_tokens"], stage["completion_tokens"]) for stage in usage
        } == {(100, 40, 10)}
    code, out, _ = run()
    assert (code, said_rounds(out)) == (0, [])
    assert not (folder / "round-6.requests.jsonl").exists()


def test_the_lines_have_the_form_of_the_batch_api(run, tmp_path):
    run("--set", "like=vllm", "--set", "model=Qwen/some")
    requests = requests_of(tmp_path / "r" / "batch")
    for request in requests:
        assert list(request) == ["custom_id", "method", "url", "body"]
        assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
        assert request["body"]["model"] == "Qwen/some"
        assert request["body"]["temperature"] == 0
        assert request["body"]["max_tokens"] > 0
        schema = request["body"]["response_format"]["json_schema"]
        assert schema["strict"] is True
        assert schema["schema"]["required"] == ["cues"]


def test_identical_prompts_appear_once_and_serve_all_who_asked(cli, tmp_path):
    facts = [{"doc_id": f"f{n}", "text": f"Guest {n} comes on Friday."} for n in range(30)]
    one = {"query": "Book dinner for two on Friday", "label": "conflict", "gold_doc_ids": ["f1"], "judgment": "Why."}
    asked = [{"query_id": f"q{n}", **one} for n in range(3)]
    timeline = {"window_start": "2026-01-01", "ref_date": "2026-03-18", "window_end": "2026-06-30"}
    folder, profile = tmp_path / "data" / "kb" / "p1", tmp_path / "data" / "profile"
    folder.mkdir(parents=True)
    profile.mkdir()
    (profile / "p1.json").write_text(json.dumps({"spec": {"demographic": {"full_name": "Ines"}}}))
    (folder / "corpus.json").write_text(json.dumps({"timeline": timeline, "corpus": facts}))
    (folder / "queries.json").write_text(json.dumps({"timeline": timeline, "queries": asked}))

    def start():
        return cli("run", "--data", tmp_path / "data", "--backend", "batch", "--out", tmp_path / "r")

    sent = 0
    for _ in STAGES:
        code, _, err = start()
        assert code == 0, err
        sent += len(answer(tmp_path / "r"))
    code, _, err = start()
    assert code == 0, err
    assert sent == len(STAGES)
    rows = rows_of(tmp_path / "r")
    assert len(rows) == 3
    assert len({json.dumps(what_counts(row)) for row in rows.values()}) == 1


def test_an_open_round_is_waited_for(run, tmp_path):
    run()
    before = (tmp_path / "r" / "batch" / "round-1.requests.jsonl").read_bytes()
    code, out, _ = run()
    assert code == 0
    assert "round 1 waits for its replies" in out
    assert said_rounds(out) == [1]
    assert (tmp_path / "r" / "batch" / "round-1.requests.jsonl").read_bytes() == before
    (tmp_path / "r" / "batch" / "round-1.responses.jsonl").write_text("")
    code, out, _ = run()
    assert (code, said_rounds(out)) == (0, [1])


def test_a_finished_request_is_not_asked_again(run, tmp_path):
    folder = tmp_path / "r" / "batch"
    for stage in STAGES:
        run()
        last = answer(folder, change=lambda lines, stage=stage: texts(lines[1:] if stage == "answerer" else lines))
    code, out, _ = run()
    assert (code, said_rounds(out)) == (0, [6])
    done = rows_of(tmp_path / "r")
    assert len(done) == 9
    assert requests_of(folder) == last[:1]
    answer(folder)
    code, out, _ = run()
    assert (code, said_rounds(out)) == (0, [])
    rows = rows_of(tmp_path / "r")
    assert len(rows) == 10
    assert {name: rows[name] for name in done} == done
