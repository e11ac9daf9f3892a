"""A reader between two steps of a writer: it sees the old or the new version, never the old one without its log."""

import shutil
from pathlib import Path

import pytest
from hash_embedder import TEXTS

from pace_dspy.errors import IndexMismatchError
from pace_dspy.retrieval import KbIndex, LiveKb, load_index, save_index, stored
from pace_dspy.retrieval.log import LOG
from pace_dspy.retrieval.manifest import VECTORS, Manifest
from pace_dspy.types import Fact


@pytest.fixture
def live(tmp_path, embedder):
    facts = [Fact(f"f{number}", text) for number, text in enumerate(TEXTS)]
    save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    live = LiveKb(tmp_path, "kb", embedder)
    live.add([Fact("new", "The heron nests on Tern Rock.")])
    return live


def test_a_log_deleted_before_it_is_read_does_not_bring_old_facts_back(live, embedder, tmp_path, monkeypatch):
    read, kept = stored.read_records, tmp_path / "kept"

    def after_the_sweep_began(folder, manifest, start=0):
        monkeypatch.setattr(stored, "read_records", read)
        data = folder / manifest.folder
        shutil.copytree(data, kept)
        live.compact()
        assert not data.exists()
        kept.rename(data)
        (data / LOG).unlink()
        return read(folder, manifest, start)

    monkeypatch.setattr(stored, "read_records", after_the_sweep_began)
    assert "new" in load_index(tmp_path, "kb", embedder).doc_ids


def test_a_file_deleted_while_it_is_looked_at_is_damage_not_an_error_of_its_own(live, monkeypatch):
    folder = live.folder
    manifest = Manifest.read(folder, "kb")
    path, stat = folder / manifest.folder / VECTORS, Path.stat

    def deleted_right_after(self, **options):
        found = stat(self, **options)
        if self == path:
            self.unlink()
        return found

    monkeypatch.setattr(Path, "stat", deleted_right_after)
    with pytest.raises(IndexMismatchError, match="not readable"):
        manifest.check_files(folder)
