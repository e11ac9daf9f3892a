import dataclasses
import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from hash_embedder import HashEmbedder

from pace_dspy.errors import ConfigError, IndexMismatchError, PaceError
from pace_dspy.retrieval import KbIndex, index_dir, load_index, load_or_build, save_index
from pace_dspy.retrieval.manifest import checksum
from pace_dspy.types import Fact, View

VIEWS = [View("original", "boathouse key"), View("counter", "Clara shellfish oysters Friday"), View("counter", "Évora")]


def everything(index):
    hits = index.search(VIEWS, 5)
    walks = [index.graph.expand([doc_id], 3, 2) for doc_id in index.doc_ids]
    edges = [index.graph.neighbors(doc_id) for doc_id in index.doc_ids]
    facts = [(doc_id, index.text(doc_id), index.date(doc_id)) for doc_id in index.doc_ids]
    return hits, walks, edges, facts, index.dense.vectors.tobytes(), index.content_hash


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_loaded_equals_saved(n, facts, embedder, tmp_path):
    index = KbIndex.build("kb", facts[:n], embedder)
    assert save_index(index, tmp_path) == index_dir(tmp_path, "kb")
    assert everything(load_index(tmp_path, "kb", embedder, facts=facts[:n])) == everything(index)


def test_files_are_mapped_and_hold_no_pickle(facts, embedder, tmp_path):
    folder = save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    loaded = load_index(tmp_path, "kb", embedder)
    assert isinstance(loaded.graph.neighbours.base, np.memmap)
    assert isinstance(loaded.sparse.matrix.data.base, np.memmap)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {path.suffix for path in (folder / manifest["folder"]).iterdir()} == {".npy", ".parquet"}
    for path in (folder / manifest["folder"]).glob("*.npy"):
        np.load(path, allow_pickle=False)
    assert np.load(folder / manifest["folder"] / "vectors.npy").shape == (7, 32)
    assert isinstance(loaded.dense.matrix.base.base, np.memmap)
    assert (manifest["format_version"], manifest["kb_id"], manifest["n_facts"], manifest["dim"]) == (3, "kb", 7, 32)
    assert manifest["embedder_id"] == "hash:32"


def test_loaded_vectors_cannot_be_written(facts, embedder, tmp_path):
    save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    loaded = load_index(tmp_path, "kb", embedder)
    with pytest.raises(ValueError, match="read-only"):
        loaded.dense.vectors[0, 0] = 1.0


def changed(facts, **change):
    return [*facts[:3], dataclasses.replace(facts[3], **change), *facts[4:]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"text": "The boathouse is open again."}, "content_hash: stored"),
        ({"doc_id": "new"}, "content_hash: stored"),
        ({"date": None}, "content_hash: stored"),
    ],
)
def test_other_content_is_refused(change, field, facts, embedder, tmp_path):
    save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    with pytest.raises(IndexMismatchError, match=field) as error:
        load_index(tmp_path, "kb", embedder, facts=changed(facts, **change))
    assert "n_facts" not in str(error.value)
    assert "Build it again: `pace-dspy index --data PATH --out DIR`" in str(error.value)


def test_every_differing_field_is_named(facts, embedder, tmp_path):
    save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    with pytest.raises(IndexMismatchError) as error:
        load_index(tmp_path, "kb", HashEmbedder(16), facts=facts[:5], graph_k=3)
    for part in (
        "the index of KB 'kb' in",
        "embedder_id: stored 'hash:32', wanted 'hash:16'",
        "n_facts: stored 7, wanted 5",
        "content_hash: stored",
        "graph_k: stored 10, wanted 3",
    ):
        assert part in str(error.value)


def test_same_embedder_id_of_another_dimension(facts, embedder, tmp_path):
    save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    liar = HashEmbedder(16)
    liar.id = embedder.id
    with pytest.raises(IndexMismatchError, match="dim: stored 32, wanted 16"):
        load_index(tmp_path, "kb", liar)


def edit_manifest(kb_folder, **fields):
    path = kb_folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format_version": 99}, "format_version: stored 99, wanted 3"),
        ({"kb_id": "other"}, "kb_id: stored 'other', wanted 'kb'"),
        ({"n_facts": 6}, "n_facts: stored 6, wanted 7"),
        ({"n_postings": 1}, "n_postings: stored 1, wanted"),
        ({"content_hash": "0" * 64}, "content_hash: stored '0000"),
        ({"surprise": 1}, "manifest fields: stored"),
        ({"folder": "data-gone"}, "data folder: stored 'missing'"),
    ],
)
def test_a_manifest_that_does_not_fit_its_files(fields, message, facts, embedder, tmp_path):
    folder = save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    edit_manifest(folder, **fields)
    with pytest.raises(IndexMismatchError, match=message):
        load_index(tmp_path, "kb", embedder)


def test_an_unreadable_manifest(facts, embedder, tmp_path):
    folder = save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(IndexMismatchError, match="manifest: stored 'not readable', wanted 'JSON'"):
        load_index(tmp_path, "kb", embedder)


@pytest.mark.parametrize("damage", ["cut", "delete", "scramble"])
@pytest.mark.parametrize("name", ["vectors.npy", "facts.parquet", "sparse_indptr.npy", "graph_neighbours.npy"])
def test_damaged_files_are_refused_and_rebuilt(damage, name, facts, embedder, tmp_path):
    index = KbIndex.build("kb", facts, embedder)
    folder = save_index(index, tmp_path)
    path = folder / json.loads((folder / "manifest.json").read_text())["folder"] / name
    if damage == "delete":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-8] if damage == "cut" else b"x" * len(data))
    with pytest.raises(IndexMismatchError, match="does not fit"):
        load_index(tmp_path, "kb", embedder)
    assert everything(load_or_build(tmp_path, "kb", facts, embedder)) == everything(index)
    assert everything(load_index(tmp_path, "kb", embedder, facts=facts)) == everything(index)


def test_texts_of_another_kb_are_noticed(facts, embedder, tmp_path):
    # A text file and vectors that drifted apart: same sizes, another text.
    folder = save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    other = save_index(
        KbIndex.build("other", [Fact(f.doc_id, f.text[::-1], f.date) for f in facts], embedder), tmp_path
    )
    paths = [next(path.glob("data-*")) / "facts.parquet" for path in (other, folder)]
    shutil.copy(*paths)
    manifest = json.loads((folder / "manifest.json").read_text())
    size = paths[1].stat().st_size
    edit_manifest(
        folder,
        files=manifest["files"] | {"facts.parquet": size},
        checksums=manifest["checksums"] | {"facts.parquet": checksum(paths[1], size)},
    )
    with pytest.raises(IndexMismatchError, match="content_hash: stored"):
        load_index(tmp_path, "kb", embedder)


def test_missing_index(embedder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no index of KB 'kb' in .*; build one with `pace-dspy index"):
        load_index(tmp_path, "kb", embedder)


@pytest.mark.parametrize("kb_id", ["..", "a/b", ""])
def test_no_path_outside_the_root(kb_id, embedder, tmp_path):
    with pytest.raises(ConfigError, match="is not allowed"):
        index_dir(tmp_path, kb_id)
    with pytest.raises(ConfigError, match="is not allowed"):
        load_index(tmp_path, kb_id, embedder)


def test_load_or_build_embeds_only_when_needed(facts, embedder, tmp_path):
    load_or_build(tmp_path, "kb", facts, embedder)
    assert len(embedder.document_batches) == 1
    calls = []
    load_or_build(tmp_path, "kb", facts, embedder, progress=lambda *call: calls.append(call))
    assert (len(embedder.document_batches), calls) == (1, [])
    index = load_or_build(tmp_path, "kb", facts[:4], embedder)
    assert (len(embedder.document_batches), len(index)) == (2, 4)
    assert load_or_build(tmp_path, "kb", facts[:4], embedder, graph_k=2).graph.k == 2
    assert len(load_or_build(tmp_path, "kb", facts, HashEmbedder(16))) == 7


WRITES = ["pyarrow.parquet.write_table", "numpy.save"]
RENAMES = ["rename_durably", "replace_text"]


def crash(*args, **kwargs):
    raise KeyboardInterrupt("killed")


@pytest.mark.parametrize("moment", [*WRITES, *RENAMES, "_sweep"])
def test_a_crash_between_writes_leaves_one_whole_version(moment, facts, embedder, tmp_path, monkeypatch):
    old, new = KbIndex.build("kb", facts[:5], embedder), KbIndex.build("kb", facts, embedder)
    save_index(old, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(moment if moment in WRITES else f"pace_dspy.retrieval.storage.{moment}", crash)
        with pytest.raises(KeyboardInterrupt):
            save_index(new, tmp_path)
    kept = new if moment == "_sweep" else old
    assert everything(load_index(tmp_path, "kb", embedder)) == everything(kept)
    save_index(new, tmp_path)
    assert everything(load_index(tmp_path, "kb", embedder)) == everything(new)
    assert len(list(index_dir(tmp_path, "kb").glob("*-*"))) == 1, "leftovers of the crash are swept by the next write"


def test_a_crash_during_the_first_write_leaves_no_index(facts, embedder, tmp_path, monkeypatch):
    monkeypatch.setattr("pace_dspy.retrieval.storage.replace_text", crash)
    with pytest.raises(KeyboardInterrupt):
        save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    with pytest.raises(FileNotFoundError, match="no index of KB 'kb'"):
        load_index(tmp_path, "kb", embedder)


def test_disk_full_says_where_and_keeps_the_old_version(facts, embedder, tmp_path, monkeypatch):
    old = KbIndex.build("kb", facts[:5], embedder)
    save_index(old, tmp_path)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("numpy.save", full)
        with pytest.raises(PaceError, match=r"cannot be written to .*kb: No space left on device. An older version is"):
            save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    assert everything(load_index(tmp_path, "kb", embedder)) == everything(old)
    assert not list(index_dir(tmp_path, "kb").glob("tmp-*"))


def test_root_that_is_a_file(facts, embedder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is a file where a folder of indexes is needed; move it away"):
        save_index(KbIndex.build("kb", facts, embedder), tmp_path / "file")


def test_a_folder_of_another_owner_is_not_overwritten(facts, embedder, tmp_path):
    # What a file system that ignores case does with "Ana" and "ana".
    save_index(KbIndex.build("Ana", facts, embedder), tmp_path)
    index_dir(tmp_path, "ana").parent.mkdir(parents=True)
    index_dir(tmp_path, "Ana").rename(index_dir(tmp_path, "ana"))
    with pytest.raises(PaceError, match="holds the index of KB 'Ana', not 'ana'"):
        save_index(KbIndex.build("ana", facts[:3], embedder), tmp_path)
    with pytest.raises(IndexMismatchError, match="kb_id: stored 'Ana', wanted 'ana'"):
        load_index(tmp_path, "ana", embedder)


def test_a_locked_kb_is_refused_after_a_wait(facts, embedder, tmp_path, monkeypatch):
    import filelock

    monkeypatch.setattr("pace_dspy.retrieval.locks.LOCK_WAIT_S", 0.1)
    index_dir(tmp_path, "kb").mkdir(parents=True)
    with (
        filelock.FileLock(index_dir(tmp_path, "kb") / ".lock"),
        pytest.raises(PaceError, match="is being written by another process; try again"),
    ):
        save_index(KbIndex.build("kb", facts, embedder), tmp_path)


def test_readers_see_old_or_new_while_a_writer_writes(facts, embedder, tmp_path):
    versions = [KbIndex.build("kb", facts, embedder), KbIndex.build("kb", facts[:4], embedder)]
    allowed = [everything(index) for index in versions]
    save_index(versions[0], tmp_path)
    stop = threading.Event()
    failures = []

    def write():
        for number in range(12):
            save_index(versions[(number + 1) % 2], tmp_path)
        stop.set()

    def read():
        while not stop.is_set():
            try:
                assert everything(load_index(tmp_path, "kb", embedder)) in allowed
            except Exception as exc:
                failures.append(exc)

    threads = [threading.Thread(target=write), *(threading.Thread(target=read) for _ in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_opened_index_outlives_its_replacement(facts, embedder, tmp_path):
    index = KbIndex.build("kb", facts, embedder)
    save_index(index, tmp_path)
    opened = load_index(tmp_path, "kb", embedder)
    save_index(KbIndex.build("kb", facts[:2], embedder), tmp_path)
    assert everything(opened) == everything(index)


def test_no_pickle_in_the_package():
    import pace_dspy.retrieval

    for path in Path(pace_dspy.retrieval.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text
        assert "allow_pickle=True" not in text
