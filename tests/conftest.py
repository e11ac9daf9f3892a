"""Every test starts with fresh DSPy settings and its own cache folders; costly tests need a flag."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import dspy
import pytest

OPT_IN = {"llm": "needs the embedded model's weights: run with --llm", "slow": "slow: run with --slow"}


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, why in OPT_IN.items():
        parser.addoption(f"--{name}", action="store_true", default=False, help=why)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for name, why in OPT_IN.items():
            if name in item.keywords and not config.getoption(f"--{name}"):
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACE_CACHE_DIR", str(tmp_path / "replies"))
    monkeypatch.setenv("PACE_INDEX_DIR", str(tmp_path / "indexes"))
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "PACE_API_KEY", "PACE_BASE_URL", "PACE_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def fresh_dspy() -> None:
    with dspy.context(lm=None, adapter=None, trace=[], callbacks=[]):
        yield
