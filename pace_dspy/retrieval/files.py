"""The data files of a stored index: how each part is written and opened."""

from __future__ import annotations

import importlib.metadata
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pace_dspy.retrieval.base import Embedder, FloatMatrix
from pace_dspy.retrieval.dense import DenseIndex
from pace_dspy.retrieval.facts import FactTable
from pace_dspy.retrieval.graph import KnnGraph
from pace_dspy.retrieval.ids import DocIds
from pace_dspy.retrieval.kb import KbIndex
from pace_dspy.retrieval.manifest import VECTORS, Manifest
from pace_dspy.retrieval.postings import Postings, Vocabulary
from pace_dspy.retrieval.sparse import SparseIndex

_FACTS, _TERMS = "facts.parquet", "terms.parquet"
_SCHEMA = pa.schema([("doc_id", pa.string()), ("text", pa.string()), ("date", pa.date32())])

_TERM_SCHEMA = pa.schema([("term", pa.string())])
_BATCH_ROWS = 4096
_PARSE_ATTEMPTS = 20
_parsing = threading.Lock()


def write_parts(index: KbIndex, folder: Path) -> dict[str, int]:
    """Write all data files of an index into an empty folder.

    Returns:
        File name to size in bytes.
    """
    columns = {"doc_id": list(index.doc_ids), "text": list(index.texts), "date": list(index.dates)}
    pq.write_table(pa.table(columns, schema=_SCHEMA), folder / _FACTS)
    terms, indptr = used_terms(index.sparse)
    pq.write_table(pa.table({"term": terms}, schema=_TERM_SCHEMA), folder / _TERMS)
    arrays = {f"sparse_{name}": array for name, array in index.sparse.postings._asdict().items()}
    arrays |= {"sparse_indptr": indptr, "sparse_data": index.sparse.matrix.data}
    arrays |= {"graph_neighbours": index.graph.neighbours, "graph_similarities": index.graph.similarities}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    np.save(folder / VECTORS, index.dense.vectors, allow_pickle=False)
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def read_parts(folder: Path, manifest: Manifest, embedder: Embedder) -> KbIndex:
    """Open the data files of an index, the large ones memory-mapped, without what its log adds.

    Raises:
        OSError: A file is missing or damaged; pyarrow raises RuntimeError or ValueError for some damage.
        ValueError: The parts do not fit together.
    """
    doc_ids, texts, dates = _read_columns(folder / _FACTS, _SCHEMA)
    facts = FactTable(DocIds(doc_ids), texts, dates)
    ids = facts.doc_ids
    (terms,) = _read_columns(folder / _TERMS, _TERM_SCHEMA)
    pa.default_memory_pool().release_unused()
    postings = Postings(*(_open(folder, f"sparse_{field}") for field in Postings._fields))
    sparse = SparseIndex(ids, Vocabulary(terms), postings, _open(folder, "sparse_data"))
    dense = DenseIndex(ids, _open(folder, VECTORS.removesuffix(".npy")))
    graph = KnnGraph(ids, _open(folder, "graph_neighbours"), _open(folder, "graph_similarities"), manifest.graph_k)
    return KbIndex(manifest.kb_id, facts, dense, sparse, graph, embedder, manifest.version)


def map_vectors(folder: Path, manifest: Manifest, n_rows: int) -> FloatMatrix:
    """Map the first ``n_rows`` rows, those that came after the data folder was written included.

    Returns:
        ``(n_rows, dim)`` float32, read-only.

    Raises:
        OSError: The file cannot be opened.
        ValueError: It is shorter.
    """
    if n_rows == 0:
        return np.zeros((0, manifest.dim), dtype=np.float32)
    shape = (n_rows, manifest.dim)
    return np.asarray(np.memmap(folder / VECTORS, np.float32, "r", offset=vectors_start(manifest), shape=shape))


def vectors_start(manifest: Manifest) -> int:
    """Return where the first row starts in the file of vectors."""
    return manifest.files[VECTORS] - manifest.n_facts * manifest.dim * 4


def used_terms(sparse: SparseIndex) -> tuple[list[str], NDArray[np.int64]]:
    """Return the terms that occur in a fact, and where their postings start: what is worth storing."""
    doc_freqs = sparse.postings.doc_freqs
    used = np.flatnonzero(doc_freqs)
    terms = sparse.vocabulary
    indptr = np.concatenate([[0], np.cumsum(doc_freqs[used])]).astype(np.int64)
    return [terms[column] for column in used.tolist()], indptr


def versions() -> dict[str, str]:
    """Return the versions of the packages whose formats or scores are in the files."""
    return {name: importlib.metadata.version(name) for name in ("faiss-cpu", "numpy", "pyarrow")}


def _read_columns(path: Path, schema: Any) -> list[list[Any]]:
    """Read columns part by part: a whole table would take three times the memory of its texts."""
    columns: list[list[Any]] = [[] for _ in schema]
    with pq.ParquetFile(path) as file:
        if not file.schema_arrow.equals(schema):
            raise ValueError(f"{path.name} has the columns {file.schema_arrow.names}, not {schema.names}")
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            for column, part in zip(columns, batch.columns, strict=True):
                column.extend(part.to_pylist())
    return columns


def _open(folder: Path, name: str) -> Any:
    # NumPy parses the header as Python source, and CPython 3.11 can fail when several threads parse source at once
    # (SystemError, "AST constructor recursion depth mismatch"): one of ours at a time, and again if another one did.
    path, attempt = folder / f"{name}.npy", 0
    while True:
        try:
            with _parsing:
                # A plain view of the mapped file: the memmap class itself slows down every small slice.
                return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except SystemError:
            attempt += 1
            if attempt == _PARSE_ATTEMPTS:
                raise
