"""KBs opened on demand under a limit of bytes, in a tree of folders."""

import gc
import random
import threading
import weakref

import pytest
from hash_embedder import HashEmbedder
from kb_changes import VIEWS, make_facts, rebuilt, same_results

from pace_dspy.errors import ConfigError, IndexMismatchError
from pace_dspy.retrieval import KbIndex, KbStore, LiveKb, attach_store, get_kb, index_dir, register_kb, stored_kb_ids
from pace_dspy.retrieval.layout import root_of
from pace_dspy.types import Fact


@pytest.fixture
def store(tmp_path, embedder):
    store = KbStore(tmp_path, embedder)
    for number in range(6):
        store.build(f"user-{number}", make_facts(40, random.Random(number)))
    store.close()
    return store


def test_kbs_lie_in_a_tree_by_hash(store, tmp_path):
    assert sorted(store) == sorted(stored_kb_ids(tmp_path)) == [f"user-{number}" for number in range(6)]
    for kb_id in store:
        folder = index_dir(tmp_path, kb_id)
        assert [len(part) for part in folder.relative_to(tmp_path).parts[:2]] == [2, 2]
        assert root_of(folder) == tmp_path
    assert "user-1" in store
    assert "user-9" not in store


def test_prefixes_spread_evenly(tmp_path):
    leaves = {index_dir(tmp_path, f"user{number}").parent for number in range(20_000)}
    assert len(leaves) > 17_000  # 65,536 folders: 17,230 distinct ones are expected


def test_a_kb_is_opened_once_and_kept(store):
    index = store.get("user-1")
    assert store.get("user-1") is index
    assert store.open_ids == ("user-1",)
    assert store.open_bytes == index.n_bytes
    same_results(index, rebuilt(index, HashEmbedder()))


def test_the_least_used_are_closed_to_make_room(store, tmp_path, embedder):
    sizes = {kb_id: store.get(kb_id).n_bytes for kb_id in store}
    small = KbStore(tmp_path, embedder, max_bytes=int(max(sizes.values()) * 3.2))
    for kb_id in ("user-0", "user-1", "user-2", "user-0", "user-3"):
        small.get(kb_id)
        assert small.open_bytes <= small.max_bytes
    assert small.open_ids == ("user-2", "user-0", "user-3")


def test_the_last_one_stays_even_when_it_is_too_large(store, tmp_path, embedder):
    tiny = KbStore(tmp_path, embedder, max_bytes=10)
    held = tiny.get("user-0")
    tiny.get("user-1")
    assert tiny.open_ids == ("user-1",)
    assert held.search(VIEWS, 3)  # whoever holds it goes on


def test_a_closed_kb_is_really_given_back(store):
    index = weakref.ref(store.get("user-2"))
    store.close("user-2")
    store.close("user-2")
    gc.collect()
    assert index() is None


def test_growth_is_counted(store):
    live = store.live("user-1")
    before = store.open_bytes
    live.add(make_facts(200, random.Random(9), first=5000))
    store.get("user-1")
    assert store.open_bytes > before + 200 * 32 * 4


def test_changes_by_others_are_seen_at_the_next_look(store, tmp_path, embedder):
    store.get("user-1")
    LiveKb(tmp_path, "user-1", embedder).add([Fact("new", "a lamp")])
    assert "new" in store.get("user-1").doc_ids


def test_building_again_with_other_facts_is_seen(store, embedder):
    store.get("user-1")
    facts = make_facts(10, random.Random(77))
    assert list(store.build("user-1", facts).snapshot.doc_ids) == [fact.doc_id for fact in facts]


def test_the_registry_asks_attached_stores(store, embedder):
    with pytest.raises(ConfigError, match="no index is registered for kb_id 'user-1'"):
        get_kb("user-1")
    attach_store(store)
    attach_store(store)
    assert get_kb("user-1") is store.get("user-1")
    own = register_kb(KbIndex.build("user-1", make_facts(3, random.Random(1)), embedder))
    assert get_kb("user-1") is own
    with pytest.raises(ConfigError, match="no index is registered for kb_id 'user-9'"):
        get_kb("user-9")


def test_unusable_kbs_are_refused(store, tmp_path):
    with pytest.raises(FileNotFoundError, match="no index of KB 'user-9'"):
        store.get("user-9")
    with pytest.raises(ConfigError, match="is not allowed"):
        store.get("../user-1")
    with pytest.raises(IndexMismatchError, match="embedder_id: stored 'hash:32', wanted 'other:32'"):
        KbStore(tmp_path, HashEmbedder(name="other")).get("user-1")


def test_many_threads_under_a_small_limit_never_mix_owners(store, tmp_path, embedder):
    for kb_id in store:
        store.live(kb_id).add([Fact(f"{kb_id}-own", f"lamp of {kb_id}")])
    size = max(store.get(kb_id).n_bytes for kb_id in store)
    small = KbStore(tmp_path, embedder, max_bytes=2 * size)
    expected = {kb_id: store.get(kb_id).search(VIEWS, 5) for kb_id in store}
    failures = []

    def ask(seed):
        rng = random.Random(seed)
        for _ in range(20):
            kb_id = f"user-{rng.randrange(6)}"
            index = small.get(kb_id)
            if index.kb_id != kb_id or f"{kb_id}-own" not in index.doc_ids or index.search(VIEWS, 5) != expected[kb_id]:
                failures.append(kb_id)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert small.open_bytes <= small.max_bytes
