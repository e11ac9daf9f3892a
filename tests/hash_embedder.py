"""A tiny corpus, and a deterministic embedder: signed hashed character trigrams, so that similar texts are close."""

import hashlib

import numpy as np

from pace_dspy.retrieval.vectors import l2_normalise

TEXTS = [
    "Ines keeps the spare key of the boathouse under the blue pot.",
    "Rui flies to Porto on 2026-03-26 and lands at 17:40.",
    "Ines's sister Clara cannot eat shellfish.",
    "The boathouse is closed for repairs until 2026-04-02.",
    "Ines promised Rui a lift from the airport.",
    "Café Lume serves only oysters on Fridays.",
    "Ines swims on Tuesday mornings.",
]


class HashEmbedder:
    """Keeps the `Embedder` contract offline and counts its calls."""

    def __init__(self, dim=32, name="hash"):
        self.dim, self.id = dim, f"{name}:{dim}"
        self.document_batches, self.query_batches = [], []

    def embed_documents(self, texts):
        self.document_batches.append(list(texts))
        return self._embed(texts)

    def embed_queries(self, texts):
        self.query_batches.append(list(texts))
        return self._embed(texts)

    def _embed(self, texts):
        vectors = np.zeros((len(texts), self.dim))
        for row, text in enumerate(texts):
            padded = f"  {text.lower()} "
            for start in range(len(padded) - 2):
                digest = hashlib.blake2b(padded[start : start + 3].encode(), digest_size=8).digest()
                vectors[row, digest[0] % self.dim] += 1 if digest[1] % 2 else -1
        return l2_normalise(vectors)
