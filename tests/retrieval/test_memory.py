"""Memory of open KBs, measured in a process of its own. Slow: run with --slow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hash_embedder import HashEmbedder

from pace_dspy.retrieval import KbIndex, index_dir, save_index
from pace_dspy.retrieval.vectors import l2_normalise
from pace_dspy.types import Fact

pytestmark = pytest.mark.slow
WORDS = [f"word{number:05d}" for number in range(20_000)]


class TopicEmbedder:
    """Cheap vectors of full length: a topic by the first word, a little of every text's own."""

    def __init__(self, dim):
        self.dim, self.id = dim, f"topics:{dim}"
        self._topics = np.random.default_rng(1).standard_normal((500, dim))

    def embed_documents(self, texts):
        own = np.random.default_rng(2).standard_normal((len(texts), self.dim))
        return l2_normalise(self._topics[[int(text[4:9]) % 500 for text in texts]] + 0.5 * own)

    def embed_queries(self, texts):
        return self.embed_documents(texts)


def make_facts(n):
    rng = np.random.default_rng(3)
    picked = np.minimum(rng.zipf(1.3, size=(n, 14)) - 1, len(WORDS) - 1)
    picked[:, 0] = rng.integers(len(WORDS), size=n)
    return [Fact(f"fact-{row:06d}", " ".join(WORDS[word] for word in words)) for row, words in enumerate(picked)]


OPEN = """
import json, sys
sys.path[:0] = [{tests!r}, {here!r}]
from pathlib import Path
def rss():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {{name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")}}
from hash_embedder import HashEmbedder
from test_memory import TopicEmbedder
from pace_dspy.retrieval import KbStore, index_dir, load_index
from pace_dspy.types import View
views = [View("original", "word00001 word00002"), View("counter", "word00017")]
before = rss()
{act}
print(json.dumps({{"before": before, "after": rss(), **told}}))
"""


def measured(act):
    tests = Path(__file__).parents[1]
    code = OPEN.format(tests=str(tests), here=str(Path(__file__).parent), act=act)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_100k_facts_open_under_400_mb(tmp_path):
    save_index(KbIndex.build("large", make_facts(100_000), TopicEmbedder(384)), tmp_path)
    found = measured(f"""
index = load_index({str(tmp_path)!r}, "large", TopicEmbedder(384))
assert len(index.search(views, 10)[0].dense) == 10
index.graph.expand([index.doc_ids[7]], 5, 3)
told = {{"n_bytes": index.n_bytes / 2**20}}
""")
    print(found)
    assert found["after"]["VmRSS"] < 400, found
    assert found["after"]["RssAnon"] - found["before"]["RssAnon"] < 150, found
    assert found["after"]["VmRSS"] - found["before"]["VmRSS"] < found["n_bytes"] * 1.3


def test_1000_personas_of_2000_facts_in_turn_stay_under_the_limit(tmp_path):
    embedder = HashEmbedder(16)
    source = save_index(KbIndex.build("p0000", make_facts(2000), embedder), tmp_path)
    manifest = json.loads((source / "manifest.json").read_text())
    for number in range(1, 1000):
        folder = index_dir(tmp_path, f"p{number:04d}")
        (folder / manifest["folder"]).mkdir(parents=True)
        for path in (source / manifest["folder"]).iterdir():
            os.link(path, folder / manifest["folder"] / path.name)
        (folder / "manifest.json").write_text(json.dumps({**manifest, "kb_id": folder.name}))
    found = measured(f"""
limit = 32 * 2**20
store = KbStore({str(tmp_path)!r}, HashEmbedder(16), max_bytes=limit)
most = highest = 0
for number in range(1000):
    index = store.get(f"p{{number:04d}}")
    assert index.kb_id == f"p{{number:04d}}" and len(index.search(views, 5)[0].dense) == 5
    most, highest = max(most, store.open_bytes), max(highest, rss()["VmRSS"])
told = {{"most": most, "limit": limit, "open": len(store.open_ids), "highest": highest}}
""")
    print(found)
    assert found["most"] <= found["limit"]
    assert 2 <= found["open"] < 100
    # Everything the store holds, twice for what Python has not given back yet.
    assert found["highest"] - found["before"]["VmRSS"] < 2 * found["limit"] / 2**20, found
