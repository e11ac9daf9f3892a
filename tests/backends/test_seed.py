"""The run's seed on its way to the model: sent where the profile supports one, part of the cache key, no identity."""

import dspy
import pytest
from misbehaving import CANARY, MODEL, MisbehavingServer

from pace_dspy import make_lm
from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.local import make_local_lm
from pace_dspy.backends.profiles import get_profile
from pace_dspy.modules.planner import Planner
from pace_dspy.types import Task

from program_helpers import DAY  # isort: skip

TASK = Task("Book dinner on Friday", DAY, "home", "Ines")
KEYS = {"OPENAI_API_KEY": CANARY, "GEMINI_API_KEY": CANARY, "PACE_API_KEY": CANARY, "PACE_MODEL": MODEL}


def sent(backend="openai-compatible", settings=None, **more):
    """The body of one planner call."""
    with MisbehavingServer() as server:
        lm = make_lm(backend, {"base_url": server.base_url, **(settings or {})}, environ=KEYS, **more)
        with dspy.context(lm=lm):
            Planner()(TASK)
    [(_, _, body)] = server.bodies
    return body


@pytest.mark.parametrize("backend", ["openai-compatible", "openai", "vllm", "ollama"])
def test_a_seed_reaches_the_server_as_a_parameter_of_its_own(backend):
    assert sent(backend, seed=7)["seed"] == 7
    assert sent(backend, seed=0)["seed"] == 0
    assert "seed" not in sent(backend)


def test_a_backend_that_takes_no_seed_never_gets_one():
    assert "seed" not in sent(settings={"supports_seed": "false"}, seed=7)


def test_the_embedded_model_gets_it_too(monkeypatch):
    monkeypatch.setattr("pace_dspy.backends.local.get_server", lambda *_: _FakeServer())
    assert make_local_lm(get_profile("local"), seed=7).kwargs["seed"] == 7
    assert "seed" not in make_local_lm(get_profile("local", {"supports_seed": "false"}), seed=7).kwargs


def test_another_seed_is_another_reply_and_the_same_one_is_reused(tmp_path):
    cache = ReplyCache(tmp_path)
    with MisbehavingServer() as server:
        for seed in (1, 1, 2, None, None):
            lm = make_lm("openai-compatible", {"base_url": server.base_url}, environ=KEYS, reply_cache=cache, seed=seed)
            with dspy.context(lm=lm):
                Planner()(TASK)
            assert "seed" not in lm.label
    assert [body.get("seed") for _, _, body in server.bodies] == [1, 2, None]


def test_run_sends_its_seed(cli, served_by, tmp_path):
    for folder, more, expected in (
        ("a", (), {0}),
        ("b", ("--seed", "5"), {5}),
        ("c", ("--set", "supports_seed=false"), {None}),
    ):
        with MisbehavingServer() as server:
            served_by(server)
            arguments = (
                "run",
                "--data",
                "mini",
                "--method",
                "hybrid",
                "--backend",
                "openai-compatible",
                "--limit",
                "1",
            )
            code, _, err = cli(*arguments, "--out", tmp_path / folder, *more)
        assert code == 0, err
        assert {body.get("seed") for _, _, body in server.bodies} == expected


class _FakeServer:
    alias = "lm"

    def count_tokens(self, text):
        return len(text)

    def register(self, transport):
        pass
