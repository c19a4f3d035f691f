"""Block Jacobi: the diagonal blocks of an operator, approximated by products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute
from batchkron.operators import BatchedKron, KroneckerSparse, KroneckerTerms, Operator
from batchkron.operators.diagonal_blocks import DiagonalBlocks, blocks_of_terms

from .base import dtype_with_scale
from .nearest import nearest_product

__all__ = ["block_jacobi", "blocks_of"]


def block_jacobi(
    operator: Any, scale: Any = None, *, dtype: Any = None, device: str | None = None
) -> Operator:
    """Return M = ⊕_i (X_1 ⊗ … ⊗ X_d)⁻¹, X the Kronecker product nearest to diagonal block i of B.

    Parameters
    ----------
    operator : Operator, KroneckerTerms or DiagonalBlocks
        The operator A; B is I - scale · A, or A itself. Its blocks are those of a batch list, the
        cells of a grid, or the dense blocks of a Kronecker-sparse matrix. A Kronecker product or
        sum is one block. To each of them a `Diagonal` may be added.
    scale : scalar, optional
        The number in I - scale · A; None stands for B = A.
    dtype : dtype, optional
        Dtype of the vectors; float64 by default, complex128 for complex blocks or a
        complex scale.
    device : {"cpu", "cuda"}, optional
        Device of the vectors; by default the operator's.

    Returns
    -------
    BatchedKron or KroneckerSparse
        One product per block. For singular factors the identity is taken.

    Raises
    ------
    TypeError
        If the operator has no diagonal blocks, or the scale is not a number that the dtype holds.
    ValueError
        If the scale is infinite or NaN, or an element of a diagonal block is.

    Notes
    -----
    Storage: Σ n_k² numbers per block. Only n_k × n_k matrices are factorised, so that it can be
    used at any level; the number of iterations grows with the level.

    Examples
    --------
    >>> from batchkron.problems import gallery
    >>> from batchkron.solvers.preconditioners import block_jacobi
    >>> print(block_jacobi(gallery.make("diffusion-2d", level=3).operator, 0.01).shape)
    (180, 180)
    """
    blocks = blocks_of(operator)
    kind = dtype_with_scale(scale, blocks.dtype, dtype)
    whole = blocks if scale is None else blocks.shifted(scale)
    wide = np.result_type(np.float64, whole.dtype)
    inverses = [np.empty((whole.count, n, n), wide) for n in whole.sizes]
    for numbers, stacks in whole.stacks():
        _refuse_not_finite(numbers, stacks)
        for inverse, factor in zip(inverses, nearest_product(stacks), strict=True):
            inverse[numbers] = _inverted(factor)
    return _assembled(inverses, whole.interleaved, kind).to(
        str(device or attribute(operator, "device", "cpu"))
    )


def _refuse_not_finite(numbers: NDArray[np.int64], stacks: list[NDArray[Any]]) -> None:
    """Refuse blocks with elements that are infinite or NaN; the text names the first block."""
    for stack in stacks:
        finite = np.isfinite(stack).all(axis=(1, 2, 3))
        if not finite.all():
            raise ValueError(
                f"diagonal block {numbers[np.argmin(finite)]} of the operator has elements that "
                "are infinite or NaN, so that it has no inverse"
            )


def blocks_of(operator: Any) -> DiagonalBlocks:
    """Return the diagonal blocks of an operator, or of Kronecker terms.

    Raises `TypeError` if it has none.
    """
    if isinstance(operator, DiagonalBlocks):
        return operator
    if isinstance(operator, KroneckerTerms):
        return blocks_of_terms(operator.balanced())
    known = attribute(operator, "diagonal_blocks")
    if known is None:
        raise TypeError(
            f"the operator is a {type(operator).__name__}; expected one with diagonal blocks, such "
            "as BatchedKron, SparseGridOperator or KroneckerSparse"
        )
    found: DiagonalBlocks = known()
    return found


def _assembled(inverses: list[NDArray[Any]], interleaved: int, kind: Any) -> Operator:
    """Return the block-diagonal operator of one product per block."""
    count = len(inverses[0])
    if interleaved > 1:
        blocks = inverses[0].reshape(-1, interleaved, *inverses[0].shape[1:])
        return KroneckerSparse(blocks.transpose(0, 2, 3, 1).astype(kind))
    numbers = np.arange(count)
    ids = np.repeat(numbers[:, None], len(inverses), axis=1)
    return BatchedKron([pool.astype(kind) for pool in inverses], ids, numbers, numbers)


def _inverted(factors: NDArray[Any]) -> NDArray[Any]:
    """Return the inverses of many small matrices, the identity for singular ones."""
    sizes = np.linalg.norm(factors, axis=(-2, -1), ord=2)
    smallest = np.linalg.norm(factors, axis=(-2, -1), ord=-2)
    singular = smallest <= 1e-14 * np.maximum(sizes, np.finfo(np.float64).tiny)
    safe = np.where(singular[:, None, None], np.eye(factors.shape[-1]), factors)
    return np.linalg.inv(safe)
