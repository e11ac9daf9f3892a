"""Checks and normalisation of embedding matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pace_dspy.retrieval.base import FloatMatrix

MAX_ENTRY = 1e15
"""Largest size of an entry: the inner product of two rows (and all its parts) then stays within float32. Ours."""


def as_matrix(vectors: ArrayLike, name: str, *, dim: int | None = None) -> FloatMatrix:
    """Return vectors as a C-contiguous float32 matrix (no copy when they are one).

    Args:
        vectors: ``(n, dim)`` numbers; an empty list counts as ``(0, dim or 0)``.
        name: What they are, for messages.
        dim: Required length of a row, or ``None``.

    Returns:
        ``(n, dim)`` float32.

    Raises:
        ValueError: Not two-dimensional, another ``dim``, not real, or NaN, infinite or huge entries (`MAX_ENTRY`).
    """
    given = np.asarray(vectors)
    if given.dtype.kind not in "biuf":
        raise ValueError(f"{name} are {given.dtype} numbers; give real ones, best float32")
    with np.errstate(over="ignore"):  # refused below
        matrix = np.ascontiguousarray(given, dtype=np.float32)
    if matrix.ndim == 1 and matrix.size == 0:
        matrix = matrix.reshape(0, dim or 0)
    if matrix.ndim != 2:
        raise ValueError(f"{name} have shape {matrix.shape}; give a matrix (n, dim)")
    if dim is not None and matrix.shape[1] != dim and len(matrix):
        raise ValueError(f"{name} have dimension {matrix.shape[1]}, this index has {dim}; use the same embedder")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} hold NaN or infinite numbers; check the embedder")
    if matrix.size and max(matrix.max(), -matrix.min()) > MAX_ENTRY:
        raise ValueError(
            f"{name} hold numbers beyond +-{MAX_ENTRY:g}, with which scores overflow; give rows of unit length"
        )
    return matrix


def l2_normalise(vectors: ArrayLike) -> FloatMatrix:
    """Scale rows to unit length; a zero row stays zero.

    Args:
        vectors: ``(n, dim)`` numbers.

    Returns:
        ``(n, dim)`` float32.
    """
    matrix = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(norms > 0, norms, 1.0)).astype(np.float32)
