"""Damage to a stored index is noticed, named and repaired from the texts."""

import json
import os
import shutil

import pytest

from pace_dspy.errors import ConfigError, IndexMismatchError, PaceError
from pace_dspy.knowledge import default_index_dir, find_stored, open_kb, open_live_kb
from pace_dspy.retrieval import KbIndex, LiveKb, index_dir, load_index, load_or_build, save_index, stored_kb_ids
from pace_dspy.types import Fact, View

FILES = ["vectors", "sparse_indices", "sparse_counts", "sparse_data", "graph_neighbours", "graph_similarities"]


def hits(index):
    return index.search([View("original", "boathouse key"), View("counter", "Clara oysters Friday")], 5)


@pytest.fixture
def stored(facts, embedder, tmp_path):
    """The KB's folder, its data folder and the hits of the whole index."""
    folder = save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    return folder, next(folder.glob("data-*")), hits(load_index(tmp_path, "kb", embedder))


def refused_and_rebuilt(message, stored, facts, embedder, root):
    with pytest.raises(IndexMismatchError, match=message) as error:
        load_index(root, "kb", embedder)
    assert "Build it again: `pace-dspy index" in str(error.value)
    assert hits(load_or_build(root, "kb", facts, embedder)) == stored[2]
    assert hits(load_index(root, "kb", embedder, facts=facts)) == stored[2]
    assert len(list(stored[0].glob("data-*"))) == 1


@pytest.mark.parametrize("name", FILES)
def test_altered_bytes_of_a_file_of_unchanged_size(name, stored, facts, embedder, tmp_path):
    path = stored[1] / f"{name}.npy"
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x40
    path.write_bytes(data)
    refused_and_rebuilt(rf"checksum of file {name}\.npy: stored \d+, wanted \d+", stored, facts, embedder, tmp_path)


def test_rows_that_came_later_do_not_count_as_damage(stored, facts, embedder, tmp_path):
    LiveKb(tmp_path, "kb", embedder).add([Fact("new", "lamp lamp")])
    assert "new" in load_index(tmp_path, "kb", embedder).doc_ids
    path = stored[1] / "vectors.npy"
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(IndexMismatchError, match="the vectors of version 2 are not those that were written"):
        load_index(tmp_path, "kb", embedder)


def test_a_damaged_header_with_a_fitting_checksum(stored, facts, embedder, tmp_path):
    from pace_dspy.retrieval.manifest import checksum

    path, manifest = stored[1] / "vectors.npy", stored[0] / "manifest.json"
    data = bytearray(path.read_bytes())
    data[10:40] = b"{'descr': (((((((((((((((((((("
    path.write_bytes(data)
    raw = json.loads(manifest.read_text())
    raw["checksums"]["vectors.npy"] = checksum(path, len(data))
    manifest.write_text(json.dumps(raw))
    refused_and_rebuilt("files: stored .not readable", stored, facts, embedder, tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"files": None}, "manifest field files: stored None, wanted 'Input should be"),
        ({"files": {"vectors.npy": "9"}}, r"manifest field files\.vectors\.npy: stored '9', wanted 'Input should be"),
        ({"files": {}}, r"manifest checksums: stored \['facts"),
        ({"folder": 5}, "manifest field folder: stored 5, wanted 'Input should be a valid string'"),
        ({"folder": "../data-1"}, "manifest field folder: stored '../data-1', wanted .String should match"),
        ({"n_facts": -1}, "manifest field n_facts: stored -1"),
        ({"dim": True}, "manifest field dim: stored True"),
    ],
)
def test_a_manifest_of_other_types(fields, message, stored, facts, embedder, tmp_path):
    path = stored[0] / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    refused_and_rebuilt(message, stored, facts, embedder, tmp_path)


def test_a_manifest_that_is_a_folder(stored, facts, embedder, tmp_path):
    (stored[0] / "manifest.json").unlink()
    (stored[0] / "manifest.json").mkdir()
    refused_and_rebuilt("manifest: stored 'not readable', wanted 'JSON'", stored, facts, embedder, tmp_path)


def test_a_data_folder_that_is_a_file(stored, facts, embedder, tmp_path):
    live = LiveKb(tmp_path, "kb", embedder)
    shutil.rmtree(stored[1])
    stored[1].write_text("")
    with pytest.raises(IndexMismatchError, match=r"log: stored .not readable"):
        live.refresh()
    refused_and_rebuilt("log: stored .not readable", stored, facts, embedder, tmp_path)


def test_a_log_that_is_a_folder(stored, facts, embedder, tmp_path):
    (stored[1] / "updates.log").mkdir()
    refused_and_rebuilt("log: stored .not readable", stored, facts, embedder, tmp_path)


def test_a_kb_folder_that_is_a_file(stored, facts, embedder, tmp_path):
    live = LiveKb(tmp_path, "kb", embedder)
    shutil.rmtree(stored[0])
    stored[0].write_text("")
    message = rf"{stored[0]} is a file where a folder of indexes is needed; move it away, or choose another folder"
    for attempt in (
        lambda: load_index(tmp_path, "kb", embedder),
        lambda: load_or_build(tmp_path, "kb", facts, embedder),
        live.refresh,
    ):
        with pytest.raises(ConfigError, match=message):
            attempt()


def test_a_setting_that_names_a_file(facts, embedder, tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="file is a file where a folder of indexes is needed"):
        list(stored_kb_ids(file))
    for attempt in (
        lambda: open_kb("kb", facts, embedder, folder=file / "below"),
        lambda: open_live_kb("kb", embedder, folder=file),
        lambda: find_stored("kb", file),
    ):
        with pytest.raises(ConfigError, match=r"--index=.*file is a file where .* choose another folder with --index$"):
            attempt()
    monkeypatch.setenv("PACE_INDEX_DIR", str(file))
    for attempt in (default_index_dir, lambda: open_kb("kb", facts, embedder), lambda: find_stored("kb")):
        with pytest.raises(ConfigError, match=r"^PACE_INDEX_DIR=.*file is a file .* with PACE_INDEX_DIR$"):
            attempt()


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(28, "free some space or choose"), (13, "make it writable or choose"), (30, "make it writable or choose")],
)
@pytest.mark.parametrize("older", [True, False])
def test_a_refused_write_says_what_is_there(code, remedy, older, facts, embedder, tmp_path, monkeypatch):
    index = KbIndex.build("kb", facts, embedder)
    if older:
        save_index(index, tmp_path)

    def refuse(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    there = "An older version is intact" if older else "Nothing is stored there"
    with pytest.raises(PaceError, match=rf"cannot be written to {index_dir(tmp_path, 'kb')}: .*\. {there}; {remedy}"):
        save_index(index, tmp_path)
