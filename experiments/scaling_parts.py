"""The measured parts of `scaling`. Memory is measured in processes of their own, which run this file."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pace_dspy import kb_context
from pace_dspy.backends import weights
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_pace
from pace_dspy.methods import make_check, make_program, without_model
from pace_dspy.retrieval import (
    CachedEmbedder,
    KbIndex,
    KbStore,
    LiveKb,
    MiniLMEmbedder,
    clear_kbs,
    index_dir,
    register_kb,
    save_index,
)
from pace_dspy.retrieval.stored import RecordedEmbedder
from pace_dspy.types import Case, Fact, View

PERSONA = "mini_xl"
USERS = 1_000_000
MIB = 2**20
Number = tuple[str, float, str]


def measure(n_facts: int, n_open: int, n_contexts: int, threads: int) -> Iterator[Number]:
    """Yield name, value and unit of each number, as it is measured."""
    case = load_pace("mini").case(PERSONA)
    case = replace(case, facts=case.facts[:n_facts])
    paths = weights.resolve("embedder_onnx"), weights.resolve("embedder_tokenizer")
    embedder = MiniLMEmbedder(*paths, threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "indexes"
        cached = CachedEmbedder(embedder, Path(folder) / "vectors")
        yield from building(case, embedder, cached, root)
        yield from on_disk(index_dir(root, PERSONA))
        size = sum(path.stat().st_size for path in (Path(folder) / "vectors").iterdir())
        yield "disk, embedding cache a fact", size / n_facts, "bytes"
        yield from changing(root, embedder)
        yield from asking(case, root, embedder)
        copies(root, max(n_open, n_contexts))
        yield from in_memory("opened", root, n_open)
        yield from in_memory("contexts", root, n_contexts)
    yield from tree()


def building(case: Case, embedder: Any, cached: Any, root: Path) -> Iterator[Number]:
    """Build and store the index: every fact embedded; then all vectors known; then nothing to do."""
    seconds = timed(lambda: save_index(KbIndex.build(PERSONA, case.facts, cached), root))
    yield "build, nothing known", seconds, "s"
    again = [timed(lambda: save_index(KbIndex.build(PERSONA, case.facts, cached), root)) for _ in range(3)]
    yield "build, all vectors known", statistics.median(again), "s"
    store = KbStore(root, embedder)
    yield "build, index there already", timed(lambda: store.build(PERSONA, case.facts)), "s"


def on_disk(folder: Path) -> Iterator[Number]:
    """Bytes of each file of a KB, and what the file system gives it."""
    paths = sorted(path for path in folder.rglob("*"))
    for path in paths:
        if path.is_file() and path.stat().st_size:
            yield f"disk, {path.name}", path.stat().st_size, "bytes"
    files = [path for path in paths if path.is_file()]
    yield "disk, all files", sum(path.stat().st_size for path in files), "bytes"
    yield "disk, allocated with folders", sum(path.stat().st_blocks * 512 for path in (folder, *paths)), "bytes"
    yield "disk, files and folders", len(paths) + 1, "entries"


def changing(root: Path, embedder: Any) -> Iterator[Number]:
    """Put facts in one by one, durably, and out again."""
    live, spent = LiveKb(root, PERSONA, embedder), []
    before = sum(path.stat().st_size for path in live.folder.rglob("*") if path.is_file())
    texts = [f"Ada moves the call of {number}:15 to the day after {number} March." for number in range(1, 16)]
    for number, text in enumerate(texts):
        spent.append(timed(partial(live.add, [Fact(f"new-{number}", text)])))
    after = sum(path.stat().st_size for path in live.folder.rglob("*") if path.is_file())
    yield "change, one fact put in", statistics.median(spent) * 1000, "ms"
    yield "change, log and vectors of one fact", (after - before) / len(texts), "bytes"
    live.remove([f"new-{number}" for number in range(len(texts))])
    live.compact()


def asking(case: Case, root: Path, embedder: Any) -> Iterator[Number]:
    """Open the KB, then ask its requests with the model stages off."""
    cold, warm = [], []
    for _ in range(7):
        forget_pages(index_dir(root, PERSONA))
        cold.append(timed(lambda: KbStore(root, embedder).get(PERSONA)))
        warm.append(timed(lambda: KbStore(root, embedder).get(PERSONA)))
    yield "open, files not in the page cache", statistics.median(cold) * 1000, "ms"
    yield "open, files in the page cache", statistics.median(warm) * 1000, "ms"
    clear_kbs()
    kb = register_kb(KbStore(root, embedder).get(PERSONA))
    yield "request, request text only (hybrid)", median_ms(case, "hybrid", "paper"), "ms"
    day = case.requests[0].reference_date
    yield "context of lite and plus, built", timed(lambda: kb_context.context_of(kb, day, case.persona)), "s"
    yield "request, lite", median_ms(case, "pacemaker", "lite"), "ms"
    clear_kbs()


def median_ms(case: Case, method: str, config: str) -> float:
    """Return the milliseconds of one request with all model stages off."""
    check = make_check(make_program(method, without_model(method, PaceMakerConfig.load(config))))
    for request in case.requests[:2]:
        check(request, PERSONA, case.persona)
    return (
        statistics.median(timed(partial(check, request, PERSONA, case.persona)) for request in case.requests * 2) * 1e3
    )


def in_memory(what: str, root: Path, n: int) -> Iterator[Number]:
    """Run this file in a fresh process that opens ``n`` KBs."""
    done = subprocess.run(
        [sys.executable, __file__, what, str(root), str(n)], capture_output=True, text=True, check=True
    )
    for name, value in json.loads(done.stdout).items():
        yield f"memory, {name}", value, "MiB"


def tree() -> Iterator[Number]:
    """Spread a million names over the folders of a store."""
    leaves = Counter(index_dir("", f"user-{number}").parent for number in range(USERS))
    yield "tree, a million KBs, folders in use", len(leaves), "of 65,536"
    yield "tree, a million KBs, most in a folder", max(leaves.values()), "KBs"


def copies(root: Path, n: int) -> None:
    """Store copies of the KB under other names, with files of their own."""
    source = index_dir(root, PERSONA)
    for number in range(n):
        folder = index_dir(root, f"copy-{number}")
        shutil.copytree(source, folder)
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        (folder / "manifest.json").write_text(json.dumps({**manifest, "kb_id": folder.name}), "utf-8")


def forget_pages(folder: Path) -> None:
    """Take a folder's files out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def timed(act: Callable[[], Any]) -> float:
    """Return the seconds that one run takes."""
    before = time.perf_counter()
    act()
    return time.perf_counter() - before


def resident() -> dict[str, float]:
    """Return the memory of this process in MiB: its own, and pages of mapped files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines())
    return {name: int(lines[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile")}


def hold_opened(root: Path, n: int) -> dict[str, float]:
    """Open KBs and search each; returns MiB a KB."""
    import numpy as np

    embedder = RecordedEmbedder.of(index_dir(root, "copy-0"), "copy-0")
    views = [View("original", "Book a table on Friday evening"), View("counter", "who cannot eat what is served there")]
    vectors = np.full((2, embedder.dim), embedder.dim**-0.5, dtype=np.float32)
    store = KbStore(root, embedder, max_bytes=1 << 40)

    def use(kb_id: str) -> KbIndex:
        index = store.get(kb_id)
        hits = index.search_embedded(views, vectors, 10)
        index.graph.expand([hit.doc_id for hit in hits[0].dense], 5, 3)
        return index

    use(PERSONA)  # what the first one loads once for all
    before = resident()
    for number in range(n):
        use(f"copy-{number}")
    after = resident()
    return {
        "one open KB, own pages": (after["RssAnon"] - before["RssAnon"]) / n,
        "one open KB, pages of its files": (after["RssFile"] - before["RssFile"]) / n,
        "one open KB, as counted by the limit": store.open_bytes / len(store.open_ids) / MIB,
    }


def hold_contexts(root: Path, n: int) -> dict[str, float]:
    """Build contexts, each of a KB of its own; returns MiB a context."""
    case = load_pace("mini").case(PERSONA)
    embedder = RecordedEmbedder.of(index_dir(root, "copy-0"), "copy-0")
    store = KbStore(root, embedder, max_bytes=1 << 40)
    kept, kbs = [], [store.get(f"copy-{number}") for number in range(n)]
    kept.append(kb_context.build_context(store.get(PERSONA), case.requests[0].reference_date, case.persona))
    before = resident()
    kept += [kb_context.build_context(kb, case.requests[0].reference_date, case.persona) for kb in kbs]
    after = resident()
    return {"one context of lite and plus": (after["RssAnon"] - before["RssAnon"]) / n}


def held(arguments: Sequence[str]) -> None:
    """Measure in this process and print JSON."""
    what, root, n = arguments
    act = {"opened": hold_opened, "contexts": hold_contexts}[what]
    print(json.dumps(act(Path(root), int(n))))


if __name__ == "__main__":
    held(sys.argv[1:])
