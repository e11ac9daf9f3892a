import sys

import pytest
from hash_embedder import HashEmbedder
from rounds import MODEL, rows_of
from scripted import scripted_lm
from servers import write_release

from pace_dspy.cli import main
from pace_dspy.evaluation import plan
from pace_dspy.retrieval import clear_kbs


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process on a hash embedder; returns (exit code, stdout, stderr)."""
    monkeypatch.setattr(plan, "make_embedder", lambda spec: HashEmbedder())
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pace-dspy", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        clear_kbs()
        return ended.value.code or 0, captured.out, captured.err

    yield run
    clear_kbs()


@pytest.fixture
def data(tmp_path):
    """A small dataset of one persona; parametrize with ``mini`` for the shipped one."""
    return write_release(tmp_path / "data", cases=1, requests=10)


@pytest.fixture
def run(cli, tmp_path, data):
    """``pace-dspy run`` of ten requests on the batch backend."""
    case = ("--case", "mini_04") if data == "mini" else ()

    def start(*more, out="r", backend="batch", limit=10):
        return cli("run", "--data", data, *case, "--limit", limit, "--backend", backend, "--out", tmp_path / out, *more)

    return start


@pytest.fixture
def direct(run, monkeypatch, tmp_path):
    """The rows of the direct run with the same model."""
    with monkeypatch.context() as patched:
        patched.setattr(plan, "make_lm", lambda *_, **__: scripted_lm(MODEL, window=272_000))
        code, _, err = run("--no-cache", out="direct", backend="local")
    assert code == 0, err
    return rows_of(tmp_path / "direct")
