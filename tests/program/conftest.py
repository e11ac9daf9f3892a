import pytest
from program_helpers import make_kb

from pace_dspy.retrieval import clear_kbs


@pytest.fixture(autouse=True)
def _fresh_registry():
    clear_kbs()
    yield
    clear_kbs()


@pytest.fixture
def kb():
    return make_kb("home")
