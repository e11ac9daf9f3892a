"""The data files of a stored index: how each part is written and opened."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pace_dspy.retrieval.base import Embedder
from pace_dspy.retrieval.dense import DenseIndex
from pace_dspy.retrieval.graph import KnnGraph
from pace_dspy.retrieval.ids import DocIds
from pace_dspy.retrieval.kb import KbIndex
from pace_dspy.retrieval.manifest import Manifest
from pace_dspy.retrieval.sparse import ScoreMatrix, SparseIndex

_FACTS, _TERMS, _FAISS = "facts.parquet", "terms.parquet", "dense.faiss"
_SCHEMA = pa.schema([("doc_id", pa.string()), ("text", pa.string()), ("date", pa.date32())])


def write_parts(index: KbIndex, folder: Path) -> dict[str, int]:
    """Write all data files of an index into an empty folder.

    Returns:
        File name to size in bytes.
    """
    columns = {"doc_id": list(index.doc_ids), "text": list(index.texts), "date": list(index.dates)}
    pq.write_table(pa.table(columns, schema=_SCHEMA), folder / _FACTS)
    pq.write_table(pa.table({"term": pa.array(index.sparse.vocabulary, pa.string())}), folder / _TERMS)
    faiss.write_index(index.dense.faiss_index, str(folder / _FAISS))
    for name, array in _arrays(index).items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def read_parts(folder: Path, manifest: Manifest, embedder: Embedder) -> KbIndex:
    """Open the data files of an index, the large ones memory-mapped.

    Raises:
        OSError: A file is missing or damaged; FAISS and pyarrow raise RuntimeError or ValueError for some damage.
        ValueError: The parts do not fit together.
    """
    facts = pq.read_table(folder / _FACTS, schema=_SCHEMA).to_pydict()
    ids = DocIds(facts["doc_id"])
    terms = pq.read_table(folder / _TERMS).column("term").to_pylist()
    dense = DenseIndex(ids, faiss.read_index(str(folder / _FAISS), faiss.IO_FLAG_MMAP_IFC))
    matrix = ScoreMatrix(*(_open(folder, f"sparse_{field}") for field in ScoreMatrix._fields))
    sparse = SparseIndex(ids, terms, matrix)
    graph = KnnGraph(ids, _open(folder, "graph_neighbours"), _open(folder, "graph_similarities"), manifest.graph_k)
    return KbIndex(manifest.kb_id, facts["text"], facts["date"], dense, sparse, graph, embedder)


def versions() -> dict[str, str]:
    """Return the versions of the packages whose formats or scores are in the files."""
    return {name: importlib.metadata.version(name) for name in ("faiss-cpu", "bm25s", "numpy", "pyarrow")}


def _arrays(index: KbIndex) -> dict[str, np.ndarray[Any, Any]]:
    matrix = {f"sparse_{field}": array for field, array in index.sparse.matrix._asdict().items()}
    graph = {"graph_neighbours": index.graph.neighbours, "graph_similarities": index.graph.similarities}
    return matrix | graph


def _open(folder: Path, name: str) -> Any:
    # A plain view of the mapped file: the memmap class itself slows down every small slice.
    return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
