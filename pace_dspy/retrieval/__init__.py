"""Hybrid retrieval over one knowledge base: embedders, dense, sparse, fusion, kNN graph, storage, registry."""

from pace_dspy.retrieval.base import Embedder, Expansion, HopStep, Progress, ViewSearcher, Walk
from pace_dspy.retrieval.change import KbChange
from pace_dspy.retrieval.dense import DenseIndex
from pace_dspy.retrieval.embedders import (
    MiniLMEmbedder,
    OpenAICompatibleEmbedder,
    SentenceTransformerEmbedder,
    make_embedder,
)
from pace_dspy.retrieval.embedding_cache import CachedEmbedder, EmbeddingCache
from pace_dspy.retrieval.fusion import fuse_views, weighted_rrf
from pace_dspy.retrieval.graph import KnnGraph
from pace_dspy.retrieval.kb import KbIndex, check_kb_id
from pace_dspy.retrieval.layout import index_dir, stored_kb_ids
from pace_dspy.retrieval.live import LiveKb
from pace_dspy.retrieval.registry import attach as attach_store
from pace_dspy.retrieval.registry import clear as clear_kbs
from pace_dspy.retrieval.registry import get as get_kb
from pace_dspy.retrieval.registry import register as register_kb
from pace_dspy.retrieval.registry import register_source as register_live_kb
from pace_dspy.retrieval.registry import registered as registered_kbs
from pace_dspy.retrieval.registry import unregister as unregister_kb
from pace_dspy.retrieval.sparse import SparseIndex
from pace_dspy.retrieval.storage import load_index, load_or_build, save_index
from pace_dspy.retrieval.store import KbStore
from pace_dspy.retrieval.stored import RecordedEmbedder
from pace_dspy.retrieval.tokenizer import tokenize

__all__ = [
    "CachedEmbedder",
    "DenseIndex",
    "Embedder",
    "EmbeddingCache",
    "Expansion",
    "HopStep",
    "KbChange",
    "KbIndex",
    "KbStore",
    "KnnGraph",
    "LiveKb",
    "MiniLMEmbedder",
    "OpenAICompatibleEmbedder",
    "Progress",
    "RecordedEmbedder",
    "SentenceTransformerEmbedder",
    "SparseIndex",
    "ViewSearcher",
    "Walk",
    "attach_store",
    "check_kb_id",
    "clear_kbs",
    "fuse_views",
    "get_kb",
    "index_dir",
    "load_index",
    "load_or_build",
    "make_embedder",
    "register_kb",
    "register_live_kb",
    "registered_kbs",
    "save_index",
    "stored_kb_ids",
    "tokenize",
    "unregister_kb",
    "weighted_rrf",
]
