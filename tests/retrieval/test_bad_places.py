"""What a KB store says and keeps when it cannot write, must wait, or finds an index that is not the one wanted."""

import errno
import json
import os
import random
import threading
import time

import filelock
import pytest
from hash_embedder import HashEmbedder
from kb_changes import make_facts, rebuilt, same_results

from pace_dspy.errors import PaceError
from pace_dspy.retrieval import KbIndex, LiveKb, index_dir, load_index, load_or_build, save_index
from pace_dspy.types import Fact

FACTS = make_facts(30, random.Random(4))


@pytest.fixture
def stored(tmp_path, embedder):
    save_index(KbIndex.build("kb", FACTS, embedder), tmp_path)
    return tmp_path


ACTS = {
    "save": lambda root, embedder: save_index(KbIndex.build("kb", FACTS[:20], embedder), root),
    "add": lambda root, embedder: LiveKb(root, "kb", embedder).add([Fact("new", "a lamp")]),
    "remove": lambda root, embedder: LiveKb(root, "kb", embedder).remove([FACTS[0].doc_id]),
    "compact": lambda root, embedder: LiveKb(root, "kb", embedder).compact(),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_place_is_named_and_the_old_version_intact(code, act, stored, embedder, monkeypatch):
    before, folder, real = load_index(stored, "kb", embedder), index_dir(stored, "kb"), os.open

    def refuse(path, flags, *rest, **more):
        if str(path).startswith(str(stored)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, flags, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(PaceError) as error:
            ACTS[act](stored, embedder)
    assert str(error.value) == (
        f"the index of KB 'kb' cannot be written to {folder}: {os.strerror(code)}. An older version is intact; make it "
        "writable or choose another folder"
    )
    same_results(load_index(stored, "kb", embedder), before)
    ACTS[act](stored, embedder)  # writable again


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(stored, embedder):
    folder = index_dir(stored, "kb")
    folder.chmod(0o555)
    try:
        with pytest.raises(PaceError, match="make it writable or choose another folder"):
            save_index(KbIndex.build("kb", FACTS[:20], embedder), stored)
    finally:
        folder.chmod(0o755)
    assert len(load_index(stored, "kb", embedder)) == len(FACTS)


def test_a_writer_that_ends_in_time_is_waited_for(stored, embedder):
    lock, said = filelock.FileLock(index_dir(stored, "kb") / ".lock", thread_local=False), []
    lock.acquire()
    held = threading.Timer(0.8, lock.release)
    held.start()
    started = time.monotonic()
    live = LiveKb(stored, "kb", embedder, on_wait=said.append)
    live.add([Fact("new", "a lamp")])
    held.join()
    assert time.monotonic() - started > 0.7
    assert said == ["KB 'kb' is being written by another process; waiting up to 60 s"]
    same_results(load_index(stored, "kb", embedder), rebuilt(live.snapshot, embedder))


@pytest.mark.parametrize("difference", ["embedder", "version", "content", "graph"])
def test_with_its_texts_an_index_that_does_not_fit_is_built_again(difference, stored, embedder):
    facts, other, graph_k = FACTS, embedder, 10
    if difference == "embedder":
        other = HashEmbedder(name="other")
    elif difference == "content":
        facts = [*FACTS[:-1], Fact(FACTS[-1].doc_id, "the lamp is in the garden")]
    elif difference == "graph":
        graph_k = 4
    else:
        path = index_dir(stored, "kb") / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 2}))
    index = load_or_build(stored, "kb", facts, other, graph_k)
    same_results(index, KbIndex.build("kb", facts, other, graph_k))
    same_results(load_index(stored, "kb", other, facts=facts, graph_k=graph_k), index)
