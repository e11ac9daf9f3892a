"""The picture of `bench`: time by number of facts, ours and the straightforward way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SHOWN = {
    "query_total": "One request, embedding included",
    "query_without_embedding": "One request, vectors given",
    "sparse_4_views": "BM25, four views",
    "graph_build": "Neighbour graph",
    "add_one_fact": "Add one fact and search it",
    "rebuild_unchanged": "Build an unchanged KB again",
}


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a PNG with one panel a part, both axes logarithmic."""
    figure, panels = plt.subplots(2, 3, figsize=(12, 7), constrained_layout=True)
    for panel, (part, title) in zip(panels.flat, SHOWN.items(), strict=True):
        mine = [row for row in rows if row["part"] == part]
        sizes = [row["size"] for row in mine]
        panel.plot(sizes, [row["plain_ms"] for row in mine], "s--", color="#b55", label="straightforward")
        panel.plot(sizes, [row["ours_ms"] for row in mine], "o-", color="#257", label="ours")
        for row in mine:
            label = f"{row['ratio']:.0f}x" if row["ratio"] >= 10 else f"{row['ratio']:.1f}x"
            at = row["size"], row["ours_ms"]
            panel.annotate(label, at, textcoords="offset points", xytext=(0, -14), ha="center")
        panel.set(title=title, xscale="log", yscale="log", xlabel="facts", ylabel="ms")
        panel.grid(True, which="major", alpha=0.3)
    panels.flat[0].legend()
    threads = rows[0]["threads"] if rows else "?"
    figure.suptitle(f"Retrieval, medians, {threads} thread(s) on both sides; labels: plain / ours")
    figure.savefig(path, dpi=130)
    plt.close(figure)
