"""kill -9 at random points of random updates: every reopening is whole, and no change that was told is lost."""

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hash_embedder import HashEmbedder
from kb_changes import make_facts, rebuilt, same_results

from pace_dspy.retrieval import KbIndex, LiveKb, index_dir, save_index
from pace_dspy.types import Fact

WRITER = Path(__file__).with_name("live_writer.py")


def start(root, seed, n_changes):
    """Start a writer; returns it, and the list that its reports go to."""
    command = [sys.executable, str(WRITER), str(root), str(seed), str(n_changes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    told = []

    def read():
        for line in process.stdout:
            if line.endswith("\n"):
                told.append(tuple(json.loads(line)))

    reader = threading.Thread(target=read)
    reader.start()
    return process, told, reader


def kill_at(root, seed, after_reports, delay_s, n_changes=200):
    process, told, reader = start(root, seed, n_changes)
    while len(told) <= after_reports and process.poll() is None:
        time.sleep(0.0005)
    time.sleep(delay_s)
    process.kill()  # SIGKILL; it may have ended already
    process.wait()
    reader.join()
    process.stdout.close()
    return told


def check(root, told, embedder):
    live = LiveKb(root, "kb", embedder)
    version, content_hash = told[-1]
    # The last change may have been stored and not yet told.
    assert version <= live.version <= version + 1
    if live.version == version:
        assert live.snapshot.content_hash == content_hash
    same_results(live.snapshot, rebuilt(live.snapshot, embedder))
    live.add([Fact(f"after-{live.version}", "lamp rent")])
    live.remove([f"after-{live.version - 1}"])
    live.compact()
    folders = [path.name[:5] for path in index_dir(root, "kb").iterdir() if path.is_dir()]
    assert folders == ["data-"], "leftovers of the crash are swept by the next compaction"


def kill_repeatedly(root, n_kills, n_changes, embedder):
    save_index(KbIndex.build("kb", make_facts(60, random.Random(1)), embedder), root)
    rng = random.Random(7)
    for number in range(n_kills):
        told = kill_at(root, number + 1, rng.randrange(n_changes * 2 // 3), rng.random() * 0.02, n_changes)
        check(root, told, embedder)


def test_kill_at_random_points(tmp_path, embedder):
    kill_repeatedly(tmp_path, 1, 40, embedder)


@pytest.mark.slow
def test_kill_at_many_random_points_of_200_updates(tmp_path, embedder):
    kill_repeatedly(tmp_path, 15, 200, embedder)


@pytest.mark.slow
def test_a_writer_that_is_not_killed_stores_every_change(tmp_path):
    embedder = HashEmbedder()
    save_index(KbIndex.build("kb", make_facts(60, random.Random(1)), embedder), tmp_path)
    process, told, reader = start(tmp_path, 3, 30)
    assert process.wait() == 0
    reader.join()
    process.stdout.close()
    live = LiveKb(tmp_path, "kb", embedder)
    assert told[-1] == (live.version, live.snapshot.content_hash)
    assert [version for version, _ in told] == list(range(1, live.version + 1))
