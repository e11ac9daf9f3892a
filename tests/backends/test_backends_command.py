"""``pace-dspy backends`` and ``backends test``."""

import json
import os
import subprocess
import sys

import pytest
from misbehaving import CANARY, MODEL, MisbehavingServer, chat, error

from pace_dspy.backends.profiles import PROFILES

REPLY = {"summary": "A lunch with four people.", "numbers": [4, 12], "topic": "meal"}


def well(stage):
    return chat(json.dumps(REPLY))


def test_the_list_names_key_window_price_and_schema(cli, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    code, out, _ = cli("backends")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in out.split("\n\n")[0].splitlines()[1:]}
    assert code == 0
    assert rows["openai"] == "OPENAI_API_KEY yes 272,000 0.75 / 4.5 json_schema"
    assert rows["gemini"] == "GEMINI_API_KEY NO 1,048,576 0.25 / 1.5 json_schema"
    assert rows["vllm"] == "VLLM_API_KEY no the server's unknown json_schema"
    assert rows["local"] == "- - 8,192 free json_schema"
    assert "openai: OpenAI; OPENAI_API_KEY" in out
    assert CANARY not in out


def test_the_list_as_json(cli, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", CANARY)
    code, out, _ = cli("backends", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert list(rows) == list(PROFILES)
    assert (rows["gemini"]["key_set"], rows["openai"]["key_set"]) == (True, False)
    assert rows["openai"]["window"] == 272_000
    assert CANARY not in out


@pytest.fixture
def server():
    with MisbehavingServer(models=({"id": MODEL, "max_model_len": 4096},), well=well, delay_s=0.05) as server:
        yield server


def test_one_call_reports_everything(cli, served_by, server):
    served_by(server)
    settings = ("--set", "price_prompt=1", "--set", "price_completion=2")
    code, out, err = cli("backends", "test", "openai-compatible", *settings)
    assert code == 0, err
    assert server.posts == 1
    said = {line[:17].strip(): line[17:].strip() for line in out.splitlines()[1:]}
    assert said["model"] == MODEL
    assert said["address"] == server.base_url
    assert said["served"] == MODEL
    assert said["window"] == "4,096 tokens (from the server)"
    assert said["structured reply"] == "json_schema, valid at the first try"
    assert "(100 read, 10 written in " in said["speed"]
    assert said["price"] == "$ 1 / 2 per M tokens read / written; this call $0.000120"
    assert CANARY not in out + err


def test_one_call_as_json_counts_repairs_and_retries(cli, served_by, naps):
    acts = {"other": [error(500, "oops"), chat("prose")]}
    with MisbehavingServer(acts, well=well) as server:
        served_by(server)
        code, out, _ = cli("backends", "test", "openai-compatible", "--json", "--set", "schema_form=json_object")
    report = json.loads(out)
    assert code == 0
    assert (report["structured"], report["retries"], report["schema_form"]) == ("after a repair", 1, "json_object")
    assert (report["window"], report["window_source"], report["cost_usd"]) == (None, None, None)
    assert 0 < report["tokens_per_second"] < 10_000


def one_line(err):
    [line] = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in err
    return line


def test_a_failed_test_is_one_line_and_exit_1(cli, served_by, naps, monkeypatch):
    with MisbehavingServer({"other": chat("prose")}, well=well) as server:
        served_by(server)
        code, out, err = cli("backends", "test", "openai-compatible")
        assert (code, out) == (1, "")
        assert "reply unusable twice: the reply holds no complete JSON object" in one_line(err)
    code, _, err = cli("backends", "test", "openai-compatible")
    assert code == 1
    assert "cannot be reached" in one_line(err)
    code, _, err = cli("backends", "test", "openai")
    assert code == 2
    assert "OPENAI_API_KEY is not set" in one_line(err)
    code, _, err = cli("backends", "test", "claude")
    assert code == 2
    assert "unknown backend 'claude'; known: local, openai-compatible" in one_line(err)


def test_a_real_process_keeps_the_key_to_itself(tmp_path):
    with MisbehavingServer({"other": error(401, f"Incorrect API key provided: {CANARY}")}, well=well) as server:
        own = {"PACE_BASE_URL": server.base_url, "PACE_MODEL": MODEL, "PACE_API_KEY": CANARY, "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "pace_dspy", "backends", "test", "openai-compatible"],
            env={**os.environ, **own},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert "HTTP 401: Incorrect API key provided: ***" in one_line(done.stderr)
    assert len([line for line in done.stderr.splitlines() if line.strip()]) == 1
    assert CANARY not in done.stdout + done.stderr
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()
