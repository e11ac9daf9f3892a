import datetime as dt

import pytest
from hash_embedder import TEXTS, HashEmbedder

from pace_dspy.retrieval import clear_kbs
from pace_dspy.types import Fact


@pytest.fixture(autouse=True)
def _fresh_registry():
    clear_kbs()
    yield
    clear_kbs()


@pytest.fixture
def embedder():
    return HashEmbedder()


@pytest.fixture
def facts():
    return [
        Fact(f"f{(number * 5 + 3) % 7}", text, dt.date(2026, 3, number + 1) if number % 2 else None)
        for number, text in enumerate(TEXTS)
    ]
