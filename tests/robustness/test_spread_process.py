"""A real ``pace-dspy run --executor ray``: a worker killed, the whole command killed, Ctrl-C, and where keys lie."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from test_kill import N, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray"),
]
KEY = "sk-spread-0123456789abcdef"
RAY = ("--executor", "ray", "--workers", 2, "--concurrency", 4)


@pytest.fixture
def ray_folder(monkeypatch):
    """Where Ray keeps its files; the name is in the environment of all processes of the run."""
    folder = Path(tempfile.mkdtemp(prefix="pace-ray-", dir="/tmp"))  # its sockets need a short path
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    monkeypatch.setenv("PACE_API_KEY", KEY)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def processes(ray_folder, name=""):
    """Pids of the run's processes whose command line begins with ``name``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ, command = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if f"RAY_TMPDIR={ray_folder}".encode() in environ and command.startswith(name.encode()):
            found.append(int(folder.name))
    return sorted(found)


def all_gone(ray_folder, seconds=30):
    limit = time.monotonic() + seconds
    while processes(ray_folder) and time.monotonic() < limit:
        time.sleep(0.2)
    return processes(ray_folder) == []


def wait_longer(process, condition):
    wait_for(process, condition, seconds=120)


def test_a_killed_worker_loses_and_doubles_nothing_and_no_key_is_written(server, start, rows_of, ray_folder):
    server.delay_s = 0.05
    process = start(*RAY)
    wait_longer(process, lambda: len(server.requests("answerer")) >= 5)
    workers = processes(ray_folder, "ray::Worker")
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    code, out, err = process.end(timeout=180)
    assert code == 0, err
    assert f"worker pid {workers[0]} on " in err
    assert "its requests in flight are run again" in err
    assert "Traceback" not in err
    assert "raylet" not in out
    rows = rows_of()
    assert len(rows) == N
    assert all(row["error"] is None and row["decision"] == "non_conflict" for row in rows.values())
    assert set(server.requests("answerer")) == set(rows)
    assert len(server.requests("answerer")) <= N + 2  # only what the killed one had in flight is asked again
    assert all_gone(ray_folder)
    files = [path for path in ray_folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert KEY not in out + err


def test_a_killed_command_leaves_no_process_and_is_continued(server, start, rows_of, ray_folder):
    server.delay_s = 0.1
    process = start(*RAY)
    wait_longer(process, lambda: len(server.requests("answerer")) >= 5)
    process.process.kill()
    process.process.communicate()
    assert all_gone(ray_folder)
    done, seen = set(rows_of()), len(server.calls)
    assert 0 < len(done) < N
    server.delay_s = 0.0
    code, _, err = start(*RAY).end(timeout=180)
    assert code == 0, err
    assert len(rows_of()) == N
    assert set(server.requests("answerer", since=seen)) == set(rows_of()) - done


def test_ctrl_c_of_the_whole_group_ends_in_order_and_a_second_one_at_once(server, start, rows_of, ray_folder):
    server.delay_s = 0.1
    process = start(*RAY)
    wait_longer(process, lambda: len(server.requests("answerer")) >= 4)
    for pid in processes(ray_folder):  # a terminal sends it to every process of its group
        if os.getpgid(pid) == os.getpgid(process.process.pid):
            os.kill(pid, signal.SIGINT)
    code, _, err = process.end(timeout=60)
    assert code == 130, err
    assert "stopped early: interrupted; run the same command again to continue" in err
    assert "was lost" not in err
    done = rows_of()
    assert 4 <= len(done) < N
    assert set(server.requests()) == set(done)  # what was in flight was finished
    assert all_gone(ray_folder)
    server.delay_s = 20.0
    seen = len(server.calls)
    process = start(*RAY)
    wait_longer(process, lambda: len(server.calls) >= seen + 3)
    for _ in range(2):
        process.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    code, _, err = process.end(timeout=30)
    assert code == 130
    assert "abandoned; finished work is kept" in err
    assert rows_of() == done
    assert all_gone(ray_folder)


def test_a_cluster_of_its_own_asks_for_a_token(server, start, ray_folder):
    server.delay_s = 60.0
    process = start(*RAY, "--limit", 4)
    wait_longer(process, lambda: len(server.calls) >= 2)
    (port,) = {path.read_text().strip() for path in ray_folder.rglob("gcs_server_port_*")}
    ask = f"import ray; ray.init(address='127.0.0.1:{port}'); print('let in')"
    for mode, token in (("disabled", ""), ("token", "0" * 64)):
        environ = {**os.environ, "RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": token}
        done = subprocess.run([sys.executable, "-c", ask], env=environ, capture_output=True, text=True, timeout=120)
        assert done.returncode != 0
        assert "let in" not in done.stdout
        assert "AuthenticationError" in done.stderr or "Unauthenticated" in done.stderr, done.stderr[-2000:]
    for _ in range(2):
        process.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    process.end(timeout=30)
    assert all_gone(ray_folder)


def test_a_worker_that_cannot_do_the_run_ends_it_in_one_line(server, release, tmp_path, ray_folder):
    """A cluster whose machines lack the key: started apart, in another environment."""
    ray = Path(sys.executable).with_name("ray")
    environ = {name: value for name, value in os.environ.items() if name != "PACE_API_KEY"}
    environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "1" * 64}
    command = [ray, "start", "--head", "--num-cpus=1", "--port=0", "--block"]
    head = subprocess.Popen(
        [*map(str, command), f"--temp-dir={ray_folder}", "--include-dashboard=false"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        for line in head.stdout:
            if found := re.search(r"--address='([^']+:\d+)'", line):
                break
        address = found[1]
        run = [sys.executable, "-m", "pace_dspy", "run", "--data", release, "--out", tmp_path / "r"]
        run += ["--backend", "openai", "--set", f"base_url={server.url}", "--set", "model=scripted"]
        run += ["--embedder", f"openai:hash@{server.url}"]
        here = {**environ, "OPENAI_API_KEY": KEY, "RAY_ADDRESS": address}
        for more, message in (
            ((), "cannot do this run: backend openai: no key: OPENAI_API_KEY is not set. Run: export OPENAI_API_KEY="),
            (("--workers", "2"), "--workers 2: the Ray cluster has 1 CPUs, and each worker takes one"),
        ):
            done = subprocess.run(
                [*map(str, run), "--executor", "ray", *more], env=here, capture_output=True, text=True, timeout=120
            )
            err = " ".join(done.stderr.split())
            assert done.returncode in (1, 2), err
            assert err.startswith("error: ")
            assert message in err
            assert "Traceback" not in err
    finally:
        for pid in processes(ray_folder):
            os.kill(pid, signal.SIGKILL)  # a head that is asked to end takes half a minute
        head.communicate()
        assert all_gone(ray_folder)
