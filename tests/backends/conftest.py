import sys

import pytest
from hash_embedder import HashEmbedder
from misbehaving import CANARY, MODEL

from pace_dspy.backends import retry
from pace_dspy.cli import main
from pace_dspy.retrieval import clear_kbs


@pytest.fixture
def naps(monkeypatch):
    """Waits before retries are noted, not slept."""
    waits = []
    monkeypatch.setattr(retry, "sleep", waits.append)
    return waits


@pytest.fixture
def cli(monkeypatch, capfd):
    """Run the command line in this process on a hash embedder; returns (exit code, stdout, stderr)."""
    for module in ("pace_dspy.cli.check", "pace_dspy.evaluation.plan"):
        monkeypatch.setattr(f"{module}.make_embedder", lambda spec: HashEmbedder())

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pace-dspy", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    yield run
    clear_kbs()


@pytest.fixture
def served_by(monkeypatch):
    """Point the profile ``openai-compatible`` to a server."""

    def point(server):
        monkeypatch.setenv("PACE_BASE_URL", server.base_url)
        monkeypatch.setenv("PACE_MODEL", MODEL)
        monkeypatch.setenv("PACE_API_KEY", CANARY)

    return point


@pytest.fixture
def facts(tmp_path):
    path = tmp_path / "facts.txt"
    path.write_text("".join(f"Ines meets guest {i} on Friday at {i} o'clock.\n" for i in range(40)))
    return path
