"""``pace-dspy batch submit | status | fetch`` on a scripted service, a whole run through it, and no key anywhere."""

import json
from pathlib import Path

import pytest
from batch_server import CANARY, BatchServer
from rounds import requests_of, rows_of, said_rounds

from pace_dspy.cli import batch as batch_command


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)


def holds_canary(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def test_a_run_through_the_service_leaves_the_key_nowhere(run, cli, tmp_path):
    said = []
    with BatchServer(refused={1}) as server:
        for number in range(1, 7):
            code, out, err = run(limit=3)
            said += [out, err]
            assert code == (0 if number < 6 else 1), err
            if not said_rounds(out):
                break
            sent = requests_of(tmp_path / "r")
            for command in (("submit", "--base-url", server.url), ("status",), ("fetch",)):
                code, out, err = cli("batch", command[0], tmp_path / "r", *command[1:])
                said += [out, err]
                assert code == 0, err
            assert f"round {number}, {len(sent)} prompts; batch batch_{number - 1}: completed" in out
            assert f"replies written to {tmp_path / 'r' / 'batch'}" in out
            server.refused = set()
        assert server.keys == {f"Bearer {CANARY}"}
    assert (number, len(server.batches)) == (6, 5)
    rows = rows_of(tmp_path / "r")
    assert sorted(row["decision"] is not None for row in rows.values()) == [False, True, True]
    [error] = [row["error"] for row in rows.values() if row["error"]]
    assert (error["kind"], "HTTP 400: please no" in error["message"]) == ("BadRequestError", True)
    assert holds_canary(tmp_path) == []
    assert CANARY not in "".join(said)


def test_what_is_handed_in_is_the_rounds_file(run, cli, tmp_path):
    run(limit=2)
    with BatchServer() as server:
        cli("batch", "submit", tmp_path / "r" / "batch", "--base-url", server.url)
        [batch] = server.batches.values()
        assert server.files[batch["input_file_id"]] == (tmp_path / "r/batch/round-1.requests.jsonl").read_bytes()
        assert (batch["endpoint"], batch["completion_window"]) == ("/v1/chat/completions", "24h")
        code, _, err = cli("batch", "submit", tmp_path / "r", "--base-url", server.url)
        assert code == 2
        assert "round 1 was handed in as batch_0" in err
        code, _, err = cli("batch", "submit", tmp_path / "r", "--base-url", server.url, "--again")
        assert code == 0, err
        assert len(server.batches) == 2
    receipt = json.loads((tmp_path / "r/batch/round-1.batch.json").read_text())
    assert receipt == {"batch_id": "batch_1", "base_url": server.url}


def test_fetch_waits_and_writes_nothing_before_the_end(run, cli, tmp_path, monkeypatch):
    run(limit=2)
    naps = []
    monkeypatch.setattr(batch_command, "sleep", naps.append)
    responses = tmp_path / "r" / "batch" / "round-1.responses.jsonl"
    with BatchServer(["in_progress", "in_progress", "finalizing", "completed"]) as server:
        cli("batch", "submit", tmp_path / "r", "--base-url", server.url)
        code, out, _ = cli("batch", "fetch", tmp_path / "r")
        assert (code, responses.exists()) == (0, False)
        assert "in_progress; not ended yet, nothing written" in out
        code, out, err = cli("batch", "fetch", tmp_path / "r", "--wait", "--json")
        assert code == 0, err
        assert naps == [batch_command.POLL_S] * 2
        assert json.loads(out)["batch"]["completed"] == 2
    assert len(responses.read_text().splitlines()) == 2
    for command in ("fetch", "status"):
        code, out, _ = cli("batch", command, tmp_path / "r")
        assert (code, f"its replies are in {responses}" in out) == (0, True)
    code, _, err = cli("batch", "submit", tmp_path / "r")
    assert (code, "round 1 is answered" in err) == (2, True)


def test_a_refused_file_says_why(run, cli, tmp_path):
    run(limit=2)
    with BatchServer(["failed"]) as server:
        cli("batch", "submit", tmp_path / "r", "--base-url", server.url)
        code, _, err = cli("batch", "fetch", tmp_path / "r")
    assert code == 1
    assert "the service refused batch batch_0: failed; line 3: no such model (key ***). Submit it with --again" in err


def test_an_expired_batch_gives_what_it_has(run, cli, tmp_path):
    run(limit=2)
    with BatchServer(["expired"]) as server:
        server.refused = {0}
        cli("batch", "submit", tmp_path / "r", "--base-url", server.url)
        code, out, _ = cli("batch", "fetch", tmp_path / "r")
    assert code == 0
    assert "expired, 1 of 2 answered, 1 failed; replies written" in out


@pytest.mark.parametrize(
    ("fail", "exit_code", "told"),
    [
        ({"POST /files": (401, "bad key")}, 1, "HTTP 401: bad key (key ***). Check the key and its permissions"),
        ({"POST /batches": (404, "no")}, 1, "HTTP 404: no (key ***). Check --base-url: it ends in /v1"),
        ({"POST /batches": (500, "down")}, 1, "HTTP 500: down (key ***). Try again later"),
    ],
)
def test_refusals_of_the_service_are_one_line(run, cli, tmp_path, fail, exit_code, told):
    run(limit=1)
    with BatchServer(fail=fail) as server:
        code, out, err = cli("batch", "submit", tmp_path / "r", "--base-url", server.url)
        assert [call for call in server.calls if call == ("POST", "/batches")] in ([], [("POST", "/batches")])
    assert (code, out) == (exit_code, "")
    assert told in err
    assert CANARY not in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "r/batch/round-1.batch.json").exists()


@pytest.mark.parametrize("reply", [b"<html>sign in</html>", b"[]", b"{}", b"null", b'{"id": 7}'])
@pytest.mark.parametrize("place", ["POST /files", "POST /batches"])
def test_a_server_that_is_no_batch_service_is_one_line(run, cli, tmp_path, place, reply):
    run(limit=1)
    with BatchServer(raw={place: reply}) as server:
        code, out, err = cli("batch", "submit", tmp_path / "r", "--base-url", server.url)
        assert (code, out, "unexpected" in err) == (1, "", False), err
        assert "answers, but not as a Batch service does. Check --base-url: it ends in /v1" in err
        receipt = tmp_path / "r/batch/round-1.batch.json"
        assert not receipt.exists()
        receipt.write_text(json.dumps({"batch_id": "b", "base_url": server.url}))
        server.raw = {"GET /batches/b": reply}
        for command in ("status", "fetch"):
            code, out, err = cli("batch", command, tmp_path / "r")
            assert (code, out, "answers, but not as a Batch service does" in err) == (1, "", True), err


def test_a_key_that_no_header_can_hold_is_refused(run, cli, tmp_path, monkeypatch):
    run(limit=1)
    for key in ("sk-caf\xe9", "sk-two\nlines"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        code, _, err = cli("batch", "submit", tmp_path / "r", "--base-url", "http://127.0.0.1:9/v1")
        assert (code, "the key in OPENAI_API_KEY holds a space, line break" in err, "sk-" in err) == (2, True, False), (
            err
        )


def test_what_is_missing_is_said_before_anything_is_sent(run, cli, tmp_path, monkeypatch):
    code, _, err = cli("batch", "submit", tmp_path)
    assert (code, "holds no round" in err) == (2, True)
    run(limit=1)
    code, out, _ = cli("batch", "status", tmp_path / "r")
    assert (code, out.strip()) == (0, "round 1, 1 prompts; not handed in")
    code, _, err = cli("batch", "fetch", tmp_path / "r")
    assert (code, "round 1 was not handed in" in err) == (2, True)
    code, _, err = cli("batch", "submit", tmp_path / "r", "--base-url", "http://user:pw@host/v1")
    assert (code, "pw" in err) == (2, False)
    monkeypatch.delenv("OPENAI_API_KEY")
    code, _, err = cli("batch", "submit", tmp_path / "r")
    assert (code, "no key: OPENAI_API_KEY is not set" in err) == (2, True)
    code, _, err = cli("batch", "submit", tmp_path / "r", "--base-url", "http://127.0.0.1:9/v1", "--key-env", "MINE")
    assert (code, "no key: MINE is not set" in err) == (2, True)
