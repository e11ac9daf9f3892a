"""Measure retrieval next to the straightforward way: same process, same run, same threads. Ours.

python experiments/bench.py --sizes 2000,10000 --json bench.json --plot bench.png

The JSON is a list of ``{size, part, ours_ms, plain_ms, ratio, threads}``, times as medians, ``ratio`` = plain / ours:

  query_total             one request with four views: embed, search, fuse, walk
  query_without_embedding the same, the views' vectors given
  embed_4_views, dense_4_views, sparse_4_views, fusion, walk   its parts
  sparse_build, graph_build   parts of a build from known vectors; graph_build also says its ``recall``
  add_one_fact            put one fact in and search it; plain: embed and build everything again
  rebuild_unchanged       build and store a KB again; plain: its first build, all facts embedded

Both sides take turns, five requests each, so that a busy machine slows both. Facts are made from the shipped
dataset (`bench_facts`); their vectors are kept in ``--cache`` between runs. The time to embed a KB is measured
without any cache on 2,000 of its facts and scaled to its size.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--sizes", default="2000,10000,40000,100000", help="facts, by commas")
    parser.add_argument("--json", type=Path, help="write the list here")
    parser.add_argument("--plot", type=Path, help="write a PNG here")
    parser.add_argument("--threads", type=int, default=1, help="of both sides")
    parser.add_argument("--cache", type=Path, default=Path("artifacts/bench"), help="vectors of the made facts")
    parser.add_argument("--parts", help="only these, by commas")
    arguments = parser.parse_args()
    try:
        sizes = [int(size) for size in arguments.sizes.split(",")]
    except ValueError:
        parser.error(f"--sizes {arguments.sizes!r}: give numbers of facts, such as 2000,10000")
    if min(sizes) < 100 or arguments.threads < 1:
        parser.error("--sizes must be 100 or more, --threads 1 or more")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # read when numpy and FAISS load
        os.environ[name] = str(arguments.threads)
    from bench_parts import PARTS, measure

    parts = arguments.parts.split(",") if arguments.parts else list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: unknown {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    rows = []
    print(f"{'facts':>7} {'part':24} {'ours ms':>11} {'plain ms':>11} {'ratio':>8}   ({arguments.threads} threads)")
    for row in measure(sizes, parts, arguments.threads, arguments.cache):
        rows.append(row)
        recall = f"  recall {row['recall']:.4f}" if "recall" in row else ""
        numbers = f"{row['ours_ms']:11.3f} {row['plain_ms']:11.3f} {row['ratio']:8.1f}"
        print(f"{row['size']:7d} {row['part']:24} {numbers}{recall}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    if arguments.plot:
        from bench_plot import plot

        plot(rows, arguments.plot)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
