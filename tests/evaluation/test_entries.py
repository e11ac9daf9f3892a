"""Backends with settings of their own: how they are written, called, and refused."""

import pytest

from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.entries import BackendEntry, distinct, parse_entry
from pace_dspy.evaluation.experiment_options import parse_options
from pace_dspy.evaluation.grid import Grid, make_cells
from pace_dspy.evaluation.plan import RunSettings

CELLS = [{"method": "hybrid"}]


def grid(*backends):
    return Grid.model_validate({"name": "x", "title": "X", "cells": CELLS, "backends": list(backends)})


@pytest.mark.parametrize(
    ("text", "backend", "settings", "label"),
    [
        ("local", "local", (), "local"),
        ("none", "none", (), "none"),
        ("local:model=lm_small", "local", ("model=lm_small",), "local lm_small"),
        (
            "vllm:base_url=http://127.0.0.1:8011/v1, model=Qwen/Qwen3-4B",
            "vllm",
            ("base_url=http://127.0.0.1:8011/v1", "model=Qwen/Qwen3-4B"),
            "vllm 127.0.0.1:8011 Qwen3-4B",
        ),
        ("local:temperature=0.7", "local", ("temperature=0.7",), "local temperature=0.7"),
        ("local:name=the small one,model=lm_small", "local", ("model=lm_small",), "the small one"),
        ("local:answer.model=lm_small", "local", ("answer.model=lm_small",), "local answer.model=lm_small"),
    ],
)
def test_what_a_text_means(text, backend, settings, label):
    entry = parse_entry(text)
    assert (entry.backend, entry.settings, entry.label) == (backend, settings, label)


def test_the_profile_has_the_settings_of_its_own_model():
    entry = parse_entry("local:model=lm_small,window=4096,answer.window=2048")
    assert (entry.profile().model, entry.profile().window) == ("lm_small", 4096)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt", r"unknown backend 'gpt'; known: local, "),
        ("local:modle=x", r"--backend local: unknown setting 'modle'; known: provider, model, "),
        ("local:lm_small", r"--backend local takes KEY=VALUE, such as --backend local:temperature=0\.2 "),
        ("local:window=large", r"backend local: window: Input should be a valid integer"),
        ("none:model=x", r"--backend none: none has no settings"),
        ("openai:api_key=sk-secret", r"API keys come from the environment only"),
        ("local:name=a\nb", r"name must be printable text"),
    ],
)
def test_what_is_refused_in_one_line(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_entry(text)
    assert "sk-secret" not in str(caught.value)


def test_repeats_are_one_and_two_of_one_name_are_refused():
    same = [parse_entry("local"), parse_entry("local")]
    assert distinct(same) == (BackendEntry("local"),)
    with pytest.raises(ConfigError, match=r"two different backends are called 'a b'; give one a name of its own, such"):
        distinct([parse_entry("local:name=a b"), parse_entry("ollama:name=a-b")])
    with pytest.raises(ConfigError, match="two different backends are called 'vllm h:1'"):
        distinct([parse_entry("vllm:base_url=http://h:1/v1"), parse_entry("vllm:base_url=http://h:1/v2")])


def test_the_file_lists_backends_and_flags_take_their_place():
    listed = grid({"backend": "local"}, {"backend": "local", "name": "small", "settings": {"model": "lm_small"}},
                  {"backend": "vllm", "settings": {"temperature": 0.5, "answer": {"model": "x"}}})  # fmt: skip
    entries = parse_options(listed, []).backends
    assert [entry.label for entry in entries] == ["local", "small", "vllm temperature=0.5 answer.model=x"]
    assert [entry.label for entry in parse_options(listed, ["--backend", "ollama"]).backends] == ["ollama"]
    assert parse_options(grid(), []).backends == (BackendEntry("local"),)
    with pytest.raises(ConfigError, match="experiment x: backend local: backend: unknown setting 'modle'"):
        parse_options(grid({"backend": "local", "settings": {"modle": "x"}}), ["--limit", "1"])


def test_folders_are_called_as_the_backend_is():
    base = RunSettings("mini", backend="local", backend_settings=("temperature=0",))
    cells, _ = make_cells(grid(), base, backend="the small one")
    assert [(cell.name, cell.backend) for cell in cells] == [("hybrid-the-small-one-s0", "the small one")]
    assert cells[0].settings.backend_settings == ("temperature=0",)


def test_settings_of_a_config_file_come_before_those_of_the_command(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[backend]\nwindow = 4096\ntemperature = 0.1\nanswer.model = "x"\n')
    cells, _ = make_cells(
        Grid(name="x", title="X", cells=[{"config": str(path)}]),
        RunSettings("mini", backend="local", backend_settings=("temperature=0.5",)),
    )
    assert cells[0].settings.backend_settings == (
        "window=4096", "temperature=0.1", "answer.model=x", "temperature=0.5",
    )  # fmt: skip
    none, _ = make_cells(Grid(name="x", title="X", cells=[{"config": str(path)}]), RunSettings("mini", backend="none"))
    assert none[0].settings.backend_settings == ()


def test_judges_have_settings_of_their_own(capsys):
    options = parse_options(
        grid(),
        [
            "--judge-backend",
            "vllm",
            "--judge-set",
            "model=a",
            "--second-judge",
            "vllm",
            "--second-judge-set",
            "model=b",
        ],
    )
    assert [judge.label for judge in options.judges] == ["vllm a", "vllm b"]
    for wrong, message in (
        (["--judge-set", "model=a"], "--judge-set needs --judge-backend"),
        (["--judge-backend", "vllm", "--second-judge-set", "model=b"], "--second-judge-set needs --second-judge"),
    ):
        with pytest.raises(SystemExit):
            parse_options(grid(), wrong)
        assert message in capsys.readouterr().err
    with pytest.raises(
        ConfigError, match=r"--judge-set answer\.model: answer\. settings are for the answerer of a run"
    ):
        parse_options(grid(), ["--judge-backend", "vllm", "--judge-set", "answer.model=a"])
