"""Changes of an open KB: equal to a rebuild to the last bit, seen at once, never by halves."""

import datetime as dt
import random
import threading

import filelock
import numpy as np
import pytest
from hash_embedder import TEXTS, HashEmbedder
from kb_changes import VIEWS, make_facts, random_change, rebuilt, same_results

from pace_dspy.errors import DataError, IndexMismatchError, PaceError
from pace_dspy.retrieval import KbIndex, LiveKb, get_kb, index_dir, load_index, register_live_kb, save_index
from pace_dspy.retrieval.change import change_between
from pace_dspy.types import Fact, View


@pytest.fixture
def live(tmp_path, embedder):
    save_index(KbIndex.build("kb", make_facts(120, random.Random(1)), embedder), tmp_path)
    return LiveKb(tmp_path, "kb", embedder)


def test_a_thousand_mixed_operations_equal_a_rebuild(live, embedder, tmp_path, monkeypatch):
    monkeypatch.setattr("pace_dspy.retrieval.live.COMPACT_AFTER", 300)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    rng = random.Random(2)
    for number in range(1000):
        random_change(live, rng, number)
        if number % 100 == 99:
            same_results(live.snapshot, rebuilt(live.snapshot, embedder))
    same_results(load_index(tmp_path, "kb", embedder), rebuilt(live.snapshot, embedder))
    assert load_index(tmp_path, "kb", embedder).version == live.version > 700


@pytest.mark.parametrize("n", [0, 1, 2, 11, 12])
def test_tiny_kbs_grow_and_shrink_to_nothing(n, tmp_path, embedder, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    save_index(KbIndex.build("kb", make_facts(n, random.Random(1)), embedder), tmp_path)
    live = LiveKb(tmp_path, "kb", embedder)
    for number in range(14):
        live.add(make_facts(1, random.Random(number), first=100 + number))
        same_results(live.snapshot, rebuilt(live.snapshot, embedder))
    while len(live.snapshot):
        live.remove([live.snapshot.doc_ids[len(live.snapshot) // 2]])
        same_results(live.snapshot, rebuilt(live.snapshot, embedder))
    same_results(load_index(tmp_path, "kb", embedder), rebuilt(live.snapshot, embedder))


def test_a_change_is_searchable_at_once_and_only_new_texts_are_embedded(live, embedder):
    embedder.document_batches.clear()
    change = live.add([Fact("new", "The heron nests on Tern Rock.", dt.date(2026, 3, 1))])
    assert embedder.document_batches == [["The heron nests on Tern Rock."]]
    [hits] = live.snapshot.search([View("original", "heron on Tern Rock")], 3)
    assert hits.dense[0].doc_id == hits.sparse[0].doc_id == "new"
    assert (change.added, change.removed, change.version, live.version) == (("new",), (), 2, 2)
    assert live.snapshot.text("new") == "The heron nests on Tern Rock."
    live.update([Fact("new", "The heron has left.")])
    assert live.snapshot.text("new") == "The heron has left."
    live.remove(["new"])
    assert "new" not in live.snapshot.doc_ids


def test_expire_takes_dated_facts_only(tmp_path, facts, embedder):
    save_index(KbIndex.build("kb", facts, embedder), tmp_path)
    live = LiveKb(tmp_path, "kb", embedder)
    change = live.expire(dt.date(2026, 3, 4))
    assert [live.snapshot.dates.count(None), change.added] == [4, ()]
    assert set(change.removed) == {fact.doc_id for fact in facts if fact.date and fact.date < dt.date(2026, 3, 4)}
    assert live.expire(dt.date(2026, 3, 4)) is None
    assert live.version == 2


def test_nothing_to_do_is_no_version(live):
    assert live.add([]) is None
    assert live.remove([]) is None
    assert live.update([]) is None
    assert live.version == 1


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda kb: kb.add([Fact("f00001", "x")]), "fact 'f00001' is known already. Use update"),
        (lambda kb: kb.add([Fact("a", "x"), Fact("a", "y")]), "fact 'a' is empty or given twice"),
        (lambda kb: kb.add([Fact("", "x")]), "fact '' is empty or given twice"),
        (lambda kb: kb.add([Fact("a", " \n")]), "fact 'a' has an empty text. Write the fact"),
        (
            lambda kb: kb.update([Fact("ghost", "x")]),
            "fact 'ghost' is not in the knowledge base. List its facts: `pace-dspy kb list kb`",
        ),
        (lambda kb: kb.remove(["f00001", "ghost"]), "KB 'kb': fact 'ghost' is not in the knowledge base"),
    ],
)
def test_refused_changes_leave_everything_as_it_was(act, message, live, embedder, tmp_path):
    before = live.snapshot
    with pytest.raises(DataError, match=message):
        act(live)
    assert live.snapshot is before
    same_results(load_index(tmp_path, "kb", embedder), before)


def test_an_embedder_that_fails_changes_nothing(live, embedder):
    before = live.snapshot
    embedder.embed_documents = lambda texts: np.full((len(texts), 32), np.nan)
    with pytest.raises(ValueError, match="NaN"):
        live.add([Fact("new", "x")])
    assert live.snapshot is before


def test_two_open_kbs_take_turns(live, tmp_path, embedder):
    other = LiveKb(tmp_path, "kb", embedder)
    seen = []
    other.subscribe(seen.append)
    live.add([Fact("a", "Rui lamp")])
    assert "a" not in other.snapshot.doc_ids
    assert "a" in other.refresh().doc_ids
    live.remove(["a", "f00003"])
    live.compact()
    live.add([Fact("b", "Ana lamp")])
    other.add([Fact("c", "garden")])  # takes over what the other did first
    with pytest.raises(DataError, match="'c' is known already"):
        live.add([Fact("c", "rent")])
    same_results(live.refresh(), other.snapshot)
    same_results(live.snapshot, rebuilt(live.snapshot, embedder))
    assert [(c.removed, c.added) for c in seen] == [((), ("a",)), (("f00003", "a"), ("b",)), ((), ("c",))]


def test_an_update_by_another_that_only_moves_a_fact_is_told_as_such(live, tmp_path, embedder):
    other, seen = LiveKb(tmp_path, "kb", embedder), []
    other.subscribe(seen.append)
    index = live.snapshot
    live.update([Fact("f00003", index.text("f00003"), index.date("f00003"))])
    other.refresh()
    assert (seen[0].removed_positions, seen[0].removed, seen[0].added) == ((3,), ("f00003",), ("f00003",))


def test_changes_tell_how_to_repair_what_is_derived(live):
    ids, hashes = list(live.snapshot.doc_ids), [live.snapshot.content_hash]

    def repair(change):
        assert change.previous_hash == hashes[-1]
        hashes.append(change.content_hash)
        for position in reversed(change.removed_positions):
            del ids[position]
        ids.extend(change.added)
        assert ids == list(change.index.doc_ids)

    stop = live.subscribe(repair)
    rng = random.Random(5)
    for number in range(60):
        random_change(live, rng, number)
    assert hashes[-1] == live.snapshot.content_hash
    stop()
    stop()
    live.add([Fact("quiet", "x y")])
    assert "quiet" not in ids


def test_change_between_any_two_indexes(facts, embedder):
    old = KbIndex.build("kb", facts, embedder)
    new = KbIndex.build("kb", [facts[1], facts[4], facts[2], Fact("x", "new")], embedder)
    change = change_between(old, new)
    kept = [doc_id for position, doc_id in enumerate(old.doc_ids) if position not in change.removed_positions]
    assert [*kept, *change.added] == list(new.doc_ids)
    assert change.added == (facts[2].doc_id, "x")


def test_a_registered_live_kb_gives_its_newest_index(live):
    register_live_kb(live)
    held = get_kb("kb")
    live.add([Fact("new", "x y")])
    assert "new" in get_kb("kb").doc_ids
    assert "new" not in held.doc_ids


def test_readers_never_see_half_a_change(live):
    # A change puts a pair in or takes it out: a reader must always find both or neither.
    stop, failures = threading.Event(), []

    def read():
        while not stop.is_set():
            index = live.snapshot
            try:
                pair = {doc_id for doc_id in index.doc_ids if doc_id.startswith("pair")}
                assert len(pair) in (0, 2)
                assert len({doc_id.split("-")[1] for doc_id in pair}) <= 1
                [hits] = index.search([View("original", "zebra unicorn")], 2)
                assert {hit.doc_id for hit in hits.sparse} == pair
                assert len(index.graph.expand([index.doc_ids[0]], 5, 3).doc_ids) > 1
            except Exception as exc:
                failures.append(exc)

    def pair(number):
        return [Fact(f"pair-{number}-a", "zebra unicorn"), Fact(f"pair-{number}-b", "unicorn zebra")]

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    live.add(pair(0))
    for number in range(25):
        live.remove([fact.doc_id for fact in pair(number)])
        live.add(pair(number + 1))
    stop.set()
    for thread in readers:
        thread.join()
    assert failures == []


def test_writers_from_threads_lose_nothing(live, embedder):
    def write(name):
        for number in range(12):
            live.add([Fact(f"{name}-{number}", f"{name} {number} lamp")])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(live.snapshot) == 120 + 36
    assert live.version == 37
    same_results(live.snapshot, rebuilt(live.snapshot, embedder))


def test_a_locked_kb_waits_with_a_message_then_refuses(live, tmp_path, embedder, monkeypatch):
    monkeypatch.setattr("pace_dspy.retrieval.locks.LOCK_WAIT_S", 0.5)
    said = []
    waiting = LiveKb(tmp_path, "kb", embedder, on_wait=said.append)
    before = waiting.snapshot
    with (
        filelock.FileLock(index_dir(tmp_path, "kb") / ".lock"),
        pytest.raises(PaceError, match=r"is being written by another process; try again when it is done \(waited"),
    ):
        waiting.add([Fact("new", "x")])
    assert len(said) == 1
    assert said[0].startswith("KB 'kb' is being written by another process; waiting up to")
    assert waiting.snapshot is before
    waiting.add([Fact("new", "x")])
    assert "new" in waiting.snapshot.doc_ids


@pytest.mark.parametrize("moment", ["write", "fsync"])
@pytest.mark.parametrize("call", [1, 2])
def test_disk_full_names_the_path_and_keeps_the_old_version(moment, call, live, embedder, tmp_path, monkeypatch):
    before, calls, real = live.snapshot, [], getattr(__import__("os"), moment)

    def full(descriptor, *args):
        calls.append(1)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        return real(descriptor, *args)

    with monkeypatch.context() as patch:
        patch.setattr(f"os.{moment}", full)
        with pytest.raises(
            PaceError, match=r"cannot be written to .*/kb: No space left on device. An older version is"
        ):
            live.add([Fact("new", "lamp lamp")])
    assert live.snapshot is before
    same_results(load_index(tmp_path, "kb", embedder), before)
    live.add([Fact("new", "lamp lamp")])
    same_results(load_index(tmp_path, "kb", embedder), rebuilt(live.snapshot, embedder))


def test_a_full_disk_at_compaction_loses_no_change(live, embedder, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("pace_dspy.retrieval.live.COMPACT_AFTER", 1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("numpy.save", full)
        assert live.add([Fact("new", "lamp lamp")]).version == 2
    assert "the change is stored, but its log could not be folded in" in caplog.text
    assert "new" in load_index(tmp_path, "kb", embedder).doc_ids


@pytest.mark.parametrize("cut", [1, 5, 9, 40])
def test_a_torn_record_never_happened(cut, live, embedder, tmp_path):
    live.add([Fact("a", "lamp garden")])
    whole = live.snapshot
    live.add([Fact("b", "rent lamp")])
    log = next(index_dir(tmp_path, "kb").glob("data-*")) / "updates.log"
    log.write_bytes(log.read_bytes()[:-cut])
    same_results(load_index(tmp_path, "kb", embedder), whole)
    again = LiveKb(tmp_path, "kb", embedder)
    again.add([Fact("c", "Porto rent")])
    same_results(load_index(tmp_path, "kb", embedder), rebuilt(again.snapshot, embedder))
    assert list(again.snapshot.doc_ids)[-2:] == ["a", "c"]


def test_vectors_that_are_not_those_of_the_log_are_refused(live, embedder, tmp_path):
    live.add([Fact("a", "lamp garden")])
    path = next(index_dir(tmp_path, "kb").glob("data-*")) / "vectors.npy"
    data = bytearray(path.read_bytes())
    data[-5] ^= 255
    path.write_bytes(data)
    with pytest.raises(IndexMismatchError, match="the vectors of version 2 are not those that were written"):
        load_index(tmp_path, "kb", embedder)


def test_another_embedder_is_refused_with_the_fields(live, tmp_path):
    with pytest.raises(IndexMismatchError, match="embedder_id: stored 'hash:32', wanted 'hash:16'"):
        LiveKb(tmp_path, "kb", HashEmbedder(16))


def test_a_kb_that_is_not_stored(tmp_path, embedder):
    with pytest.raises(FileNotFoundError, match="no index of KB 'kb'"):
        LiveKb(tmp_path, "kb", embedder)


def test_snapshots_share_vectors_and_keep_their_view(live):
    old = live.snapshot
    texts, vectors, hits = old.texts, old.dense.vectors.copy(), old.search(VIEWS, 10)
    for number in range(20):
        live.add([Fact(f"n{number}", TEXTS[number % 7])])
        live.remove([live.snapshot.doc_ids[0]])
    assert old.texts == texts
    np.testing.assert_array_equal(old.dense.vectors, vectors)
    assert old.search(VIEWS, 10) == hits
    assert isinstance(live.snapshot.dense.matrix.base.base, np.memmap)
