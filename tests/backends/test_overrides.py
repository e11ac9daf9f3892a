"""``--set``, the ``[backend]`` table, and which model gets what."""

import json

import pytest
from misbehaving import CANARY, MODEL, MisbehavingServer

from pace_dspy import PaceMakerConfig
from pace_dspy.backends.overrides import answer_settings, own_settings, parse_settings
from pace_dspy.baselines import BaselineProgram
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.store import read_manifest

ASK = ("--request", "Book dinner on Friday", "--date", "2026-03-18")
TOML = """
[backend]
temperature = 0.7
supports_logprobs = false
answer.model = "other-model"
[retrieval]
max_hops = 2
"""


def test_settings_are_key_value_and_the_last_holds():
    assert parse_settings(["temperature=0.2", "base_url=http://a/v1?", "temperature = 0.3"]) == {
        "temperature": "0.3",
        "base_url": "http://a/v1?",
    }


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("temperature", r"--set takes KEY=VALUE, such as --set temperature=0\.2 \(received 'temperature'\)"),
        ("=1", "--set takes KEY=VALUE"),
        ("temprature=1", r"--set: unknown setting 'temprature'; known: provider, model, .*each also as answer\.KEY"),
        ("judge.model=x", "--set: unknown setting 'judge.model'"),
        (f"api_key={CANARY}", "--set api_key: API keys come from the environment only"),
        (f"answer.api_key={CANARY}", "--set answer.api_key: API keys come from the environment only"),
        (CANARY, "--set takes KEY=VALUE"),
    ],
)
def test_what_is_not_a_setting(item, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_settings([item])
    assert CANARY not in str(caught.value)


def test_who_gets_what():
    settings = {"temperature": "0.7", "answer.model": "m", "answer.temperature": "0"}
    assert own_settings(settings) == {"temperature": "0.7"}
    assert answer_settings(settings, other_backend=False) == {"temperature": "0", "model": "m"}
    assert answer_settings(settings, other_backend=True) == {"temperature": "0", "model": "m"}
    assert answer_settings({"window": "900", "answer.model": "m"}, other_backend=True) == {"model": "m"}
    assert answer_settings({"window": "900"}, other_backend=False) == {}


def test_the_backend_table_of_a_config_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    config = PaceMakerConfig.load(str(path))
    assert config.backend == {"temperature": "0.7", "supports_logprobs": "false", "answer.model": "other-model"}
    assert config.retrieval.max_hops == 2
    assert "backend" not in config.model_dump()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"temprature": 1}, "mine: backend: unknown setting 'temprature'; known: provider, model"),
        ({"window": [CANARY]}, r"mine: backend\.window must be a text, number or truth value"),
        ({"answer": {"nope": CANARY}}, r"mine: backend: unknown setting 'answer\.nope'"),
        ({"api_key": CANARY}, "API keys come from the environment only"),
        ("vllm", "mine: backend must be a table of profile fields"),
    ],
)
def test_a_bad_backend_table(table, message):
    with pytest.raises(ConfigError, match=message) as caught:
        PaceMakerConfig.parse({"backend": table}, source="mine")
    assert CANARY not in str(caught.value)


def by_stage(server, field):
    return {stage: body.get(field) for stage, _, body in server.bodies}


@pytest.fixture
def two_models():
    with MisbehavingServer(models=({"id": MODEL}, {"id": "other-model"})) as server:
        yield server


def test_set_wins_over_the_file_and_reaches_the_right_model(cli, served_by, facts, tmp_path, two_models):
    served_by(two_models)
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    options = (
        "--backend",
        "openai-compatible",
        "--config",
        path,
        "--set",
        "temperature=0.1",
        "--set",
        "answer.temperature=0.9",
    )
    code, _, err = cli("check", "--kb", facts, *ASK, *options)
    assert code == 0, err
    assert by_stage(two_models, "temperature") == {
        "planner": 0.1,
        "views": 0.1,
        "pre_filter": 0.1,
        "post_filter": 0.1,
        "answerer": 0.9,
    }
    assert set(by_stage(two_models, "model").values()) == {MODEL, "other-model"}
    assert by_stage(two_models, "model")["answerer"] == "other-model"


def test_another_backend_answers(cli, served_by, facts, two_models, monkeypatch):
    served_by(two_models)
    monkeypatch.setenv("VLLM_BASE_URL", two_models.base_url)
    options = ("--backend", "openai-compatible", "--answer-backend", "vllm", "--set", "answer.model=other-model")
    code, _, err = cli("check", "--kb", facts, *ASK, *options)
    assert code == 0, err
    assert [headers.get("Authorization") for stage, headers, _ in two_models.bodies if stage == "answerer"] != [
        f"Bearer {CANARY}"
    ]
    assert by_stage(two_models, "model")["answerer"] == "other-model"


def test_a_run_records_what_shapes_replies_and_may_change_the_rest(cli, served_by, tmp_path, two_models):
    served_by(two_models)
    base = ("run", "--data", "mini", "--limit", "1", "--backend", "openai-compatible", "--out", tmp_path / "run")
    code, _, err = cli(*base, "--set", "temperature=0.5", "--set", "timeout_s=5")
    assert code == 0, err
    manifest = read_manifest(tmp_path / "run")
    assert manifest.backends["agents"].endswith(", temperature=0.5")
    assert manifest.arguments["set"] == ["temperature=0.5", "timeout_s=5"]
    code, _, err = cli(*base, "--set", "temperature=0.5", "--set", "timeout_s=60")
    assert code == 0, err
    code, _, err = cli(*base, "--set", "temperature=0.6")
    assert code == 2
    assert "temperature=0.5" in err


def test_no_answerer_no_model_of_its_own(cli, served_by, facts, tmp_path, two_models):
    served_by(two_models)
    path = tmp_path / "quiet.json"
    path.write_text(json.dumps({"agents": {"answerer": "off"}}))
    options = ("--backend", "openai-compatible", "--config", path, "--set", "answer.model=other-model")
    code, _, err = cli("check", "--kb", facts, *ASK, *options)
    assert code == 2
    assert "the answerer cannot have a model of its own (openai-compatible)" in err
    assert BaselineProgram("dense", PaceMakerConfig()).answerer.predict is not None


def test_a_bad_value_names_profile_and_setting(cli, served_by, facts, two_models):
    served_by(two_models)
    code, _, err = cli("check", "--kb", facts, *ASK, "--backend", "openai-compatible", "--set", "window=large")
    assert code == 2
    assert "backend openai-compatible: window: Input should be a valid integer" in err
