"""The Kronecker product that is nearest to a matrix, in the Frobenius norm."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

__all__ = ["nearest_product"]

_SWEEPS = 50  # of alternating least squares at most; some five suffice for most matrices
_SETTLED = 1e-12  # change of the norm of the product in a sweep, relative to it, that ends them


def nearest_product(
    matrix: Tensor, shapes: Sequence[tuple[int, ...]]
) -> tuple[list[Tensor], float]:
    """Return A_1, …, A_d of given shapes, and ‖matrix - A_1 ⊗ … ⊗ A_d‖ / ‖matrix‖.

    The entries are sorted into a tensor with one axis of m_k n_k entries for each factor, in which
    a Kronecker product has rank one. Its best approximation of rank one is that of singular
    vectors for two factors; for more it begins with singular vectors, one factor after another,
    and goes on by least squares for one factor at a time (the higher-order power method of De
    Lathauwer, De Moor and Vandewalle, 2000), which never increases the error. All of it is in
    double precision. Factors have equal norms.
    """
    rows, columns = zip(*shapes, strict=True)
    wide = torch.complex128 if matrix.is_complex() else torch.float64
    tensor = matrix.detach().to(wide).reshape(*rows, *columns)
    count = len(shapes)
    pairs = [axis for k in range(count) for axis in (k, count + k)]
    tensor = tensor.permute(pairs).reshape([m * n for m, n in shapes])
    vectors = _begin(tensor)
    size = 0.0
    for _ in range(_SWEEPS if count > 2 else 0):
        before = size
        for k in range(count):
            found = _contracted(tensor, vectors, k)
            size = float(torch.linalg.vector_norm(found))
            vectors[k] = found / size if size else found
        if size - before <= _SETTLED * size:
            break
    found = _contracted(tensor, vectors, 0)  # with the length of the product
    size = float(torch.linalg.vector_norm(found))
    whole = float(torch.linalg.vector_norm(tensor))
    scale = size ** (1 / count)
    vectors[0] = found / size if size else found
    factors = [(scale * one).reshape(shape) for one, shape in zip(vectors, shapes, strict=True)]
    rest = torch.linalg.vector_norm(matrix.detach().to(wide) - reduce(torch.kron, factors))
    return factors, float(rest) / whole if whole else 0.0


def _begin(tensor: Tensor) -> list[Tensor]:
    """Return unit vectors for each axis: the first singular ones of one axis after another."""
    vectors = []
    rest = tensor
    while rest.dim() > 1:
        left, _, right = torch.linalg.svd(rest.reshape(rest.shape[0], -1), full_matrices=False)
        vectors.append(left[:, 0])
        rest = right[0].reshape(rest.shape[1:])
    norm = torch.linalg.vector_norm(rest)
    return [*vectors, rest / norm if norm else rest]


def _contracted(tensor: Tensor, vectors: Sequence[Tensor], kept: int) -> Tensor:
    """Return the tensor multiplied by the conjugates of all vectors but that of one axis."""
    for k in reversed(range(len(vectors))):
        if k != kept:
            tensor = torch.tensordot(tensor, vectors[k].conj(), dims=([k], [0]))
    return tensor
