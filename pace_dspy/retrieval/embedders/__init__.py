"""Embedders: embedded MiniLM, sentence-transformers, any OpenAI-compatible endpoint."""

from pace_dspy.retrieval.embedders.factory import make_embedder
from pace_dspy.retrieval.embedders.minilm import MiniLMEmbedder
from pace_dspy.retrieval.embedders.openai_compatible import OpenAICompatibleEmbedder
from pace_dspy.retrieval.embedders.sentence_transformer import SentenceTransformerEmbedder

__all__ = ["MiniLMEmbedder", "OpenAICompatibleEmbedder", "SentenceTransformerEmbedder", "make_embedder"]
