import os
import subprocess
import sys
from pathlib import Path

import pytest
from servers import LoopbackServer, write_release

import pace_dspy
from pace_dspy.evaluation.store import RunStore

PACKAGE_ROOT = Path(pace_dspy.__file__).parents[1]


@pytest.fixture
def server():
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def release(tmp_path):
    return write_release(tmp_path / "data")


class Process:
    """A real ``pace-dspy`` process that talks to the loopback server only."""

    def __init__(self, arguments, server, tmp_path):
        environ = {
            **os.environ,
            "PYTHONPATH": str(PACKAGE_ROOT),
            "PACE_BASE_URL": server.url,
            "PACE_MODEL": "scripted",
            "PACE_CACHE_DIR": str(tmp_path / "replies"),
            "PACE_INDEX_DIR": str(tmp_path / "indexes"),
            "COLUMNS": "200",
        }
        command = [sys.executable, "-m", "pace_dspy", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )

    def end(self, timeout=60):
        """Wait; returns (exit code, stdout, stderr)."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, " ".join(out.split()), " ".join(err.split())


@pytest.fixture
def start(server, release, tmp_path):
    """Start ``pace-dspy run`` on the small release (or another command); ended when the test ends."""
    started = []

    def begin(*more, method="pacemaker", out="r", command=None):
        run = ["run", "--data", release, "--out", tmp_path / out, "--method", method]
        run += ["--backend", "openai-compatible", "--embedder", f"openai:hash@{server.url}", "--no-cache"]
        process = Process([*(command or run), *more], server, tmp_path)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.process.poll() is None:
            process.process.kill()
            process.process.communicate()


@pytest.fixture
def rows_of(tmp_path):
    """The committed rows of a run folder, by request text."""

    def read(out="r"):
        if not (tmp_path / out / "manifest.json").is_file():
            return {}
        store = RunStore(tmp_path / out)
        rows = store.rows()
        store.close()
        assert len({(row["case_id"], row["query_id"]) for row in rows}) == len(rows)
        return {row["query"]: row for row in rows}

    return read
