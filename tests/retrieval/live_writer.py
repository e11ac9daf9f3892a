"""The process that test_live_kill.py kills: random changes, each told on stdout once it is stored."""

import datetime as dt
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hash_embedder import HashEmbedder
from kb_changes import random_change

from pace_dspy.retrieval import LiveKb, live


def tell(version, content_hash):
    sys.stdout.write(json.dumps([version, content_hash]) + "\n")
    sys.stdout.flush()


def main(root, seed, n_changes):
    live.COMPACT_AFTER = 25
    kb = LiveKb(root, "kb", HashEmbedder())
    kb.subscribe(lambda change: tell(change.version, change.content_hash))
    tell(kb.version, kb.snapshot.content_hash)
    rng = random.Random(seed)
    for number in range(n_changes):
        random_change(kb, rng, seed * 1000 + number)
    kb.expire(dt.date(1900, 1, 1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
