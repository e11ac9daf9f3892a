"""Two thousand small KBs in one store: no folder gets large, and only what is asked for is open."""

import json
import os
import random
import shutil
from collections import Counter

import pytest
from hash_embedder import HashEmbedder
from kb_changes import VIEWS

from pace_dspy.retrieval import KbIndex, KbStore, attach_store, get_kb, index_dir, save_index, stored_kb_ids
from pace_dspy.types import Fact

N, BUILT = 2000, 40
USERS = [f"user-{number:04d}" for number in range(N)]


def facts_of(kb_id):
    return [Fact(f"{kb_id}-{n}", f"{kb_id} keeps lamp {n} in room {n % 3}") for n in range(4)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The first 40 are built from their own facts; the others share the files of one of those, but not its place."""
    root, embedder = tmp_path_factory.mktemp("kbs"), HashEmbedder()
    for kb_id in USERS[:BUILT]:
        save_index(KbIndex.build(kb_id, facts_of(kb_id), embedder), root)
    source = index_dir(root, USERS[0])
    manifest = json.loads((source / "manifest.json").read_text())
    files = list((source / manifest["folder"]).iterdir())
    for kb_id in USERS[BUILT:]:
        folder = index_dir(root, kb_id)
        (folder / manifest["folder"]).mkdir(parents=True)
        for path in files:
            os.link(path, folder / manifest["folder"] / path.name)
        (folder / "manifest.json").write_text(json.dumps({**manifest, "kb_id": kb_id}))
    return root


def test_no_folder_has_more_than_a_few_hundred_entries(root):
    entries = {folder: len(folders) + len(files) for folder, folders, files in os.walk(root)}
    assert max(entries.values()) <= 256
    leaves = Counter(path.parent for path in root.glob("??/??/*"))
    assert sum(leaves.values()) == N
    assert max(leaves.values()) <= 4  # 65,536 places for 2,000
    assert sorted(stored_kb_ids(root)) == USERS


def test_a_kb_is_found_by_its_name_alone(root):
    for kb_id in USERS[::97]:
        (folder,) = root.glob(f"*/*/{kb_id}")
        assert folder == index_dir(root, kb_id)


def test_only_what_is_asked_for_is_open_and_stays_under_the_limit(root):
    store = KbStore(root, HashEmbedder(), max_bytes=40_000)
    assert (store.open_ids, store.open_bytes) == ((), 0)
    assert all(kb_id in store for kb_id in USERS[::50])
    assert store.open_ids == ()
    attach_store(store)
    most, rng = 0, random.Random(5)
    for kb_id in [*USERS, *rng.sample(USERS, 300)]:
        index = get_kb(kb_id)
        assert index.kb_id == kb_id
        assert store.open_ids[-1] == kb_id
        assert store.open_bytes <= store.max_bytes
        most = max(most, len(store.open_ids))
    assert 5 < most < 40
    for kb_id in USERS[:BUILT]:
        index = get_kb(kb_id)
        assert list(index.doc_ids) == [fact.doc_id for fact in facts_of(kb_id)]
        assert all(hit.doc_id.startswith(kb_id) for hits in index.search(VIEWS, 3) for hit in hits.dense)


def test_opening_one_looks_at_no_other(root, tmp_path):
    """All others may be broken, locked or gone."""
    kb_id = USERS[3]
    shutil.copytree(index_dir(root, kb_id), index_dir(tmp_path, kb_id))
    for other in USERS[4:60]:
        folder = index_dir(tmp_path, other)
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{")
    store = KbStore(tmp_path, HashEmbedder())
    assert list(store.get(kb_id).doc_ids) == [fact.doc_id for fact in facts_of(kb_id)]
    assert store.open_ids == (kb_id,)
