import sys

import pytest
from hash_embedder import HashEmbedder
from scripted import GOOD, scripted_lm

from pace_dspy.cli import main
from pace_dspy.retrieval import clear_kbs


@pytest.fixture(autouse=True)
def _fresh_registry():
    clear_kbs()
    yield
    clear_kbs()


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process; returns (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pace-dspy", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def offline(monkeypatch):
    """The embedded models replaced by a hash embedder and a scripted model; returns a function to set the script."""
    current = {"script": GOOD}
    for module in ("pace_dspy.cli.check", "pace_dspy.cli.index", "pace_dspy.evaluation.plan"):
        monkeypatch.setattr(f"{module}.make_embedder", lambda spec: HashEmbedder())
    for module in ("pace_dspy.cli.check", "pace_dspy.evaluation.plan"):
        monkeypatch.setattr(f"{module}.make_lm", lambda *_, **__: scripted_lm(current["script"]))

    def use(script):
        current["script"] = script

    return use


@pytest.fixture
def kb_file(tmp_path):
    path = tmp_path / "facts.txt"
    path.write_text("".join(f"Ines meets guest {i} on Friday at {i} o'clock.\n" for i in range(40)))
    return path
