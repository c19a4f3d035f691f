"""Block Jacobi on a sparse grid: the cells' diagonal blocks, approximated by products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import BatchedKron, KroneckerTerms, Operator
from batchkron.operators.kronecker_terms import Factor, terms_of

from .nearest import nearest_product
from .scale import dtype_with_scale

__all__ = ["block_jacobi"]


def block_jacobi(
    operator: Any, scale: Any = None, *, dtype: Any = None, device: str | None = None
) -> Operator:
    """Return M = ⊕_cells (X_1 ⊗ … ⊗ X_d)⁻¹, X the Kronecker product nearest to a cell's block of B.

    Parameters
    ----------
    operator : Operator or KroneckerTerms
        The operator A, on the cells of a grid; B is I - scale · A, or A itself.
    scale : scalar, optional
        The number in I - scale · A; None stands for B = A.
    dtype : dtype, optional
        Dtype of the vectors; float64 by default, complex128 for complex terms or a
        complex scale.
    device : {"cpu", "cuda"}, optional
        Device of the vectors; by default the operator's.

    Returns
    -------
    BatchedKron
        One product per cell. For singular factors the identity is taken.

    Raises
    ------
    TypeError
        If the operator does not know its Kronecker terms, or the scale is not a number that the
        dtype holds.
    ValueError
        If its terms are not on the cells of a grid, or the scale is infinite or NaN.

    Notes
    -----
    Storage: d n² numbers per cell. Only n × n matrices are factorised, so that it can be used at
    any level; the number of iterations grows with the level.

    Examples
    --------
    >>> from batchkron.problems import gallery
    >>> from batchkron.solvers.preconditioners import block_jacobi
    >>> print(block_jacobi(gallery.make("diffusion-2d", level=3).operator, 0.01).shape)
    (180, 180)
    """
    terms = terms_of(operator)
    if terms.cells is None:
        raise ValueError("the operator has no cells, whose blocks block Jacobi would invert")
    kind = dtype_with_scale(scale, terms.dtype, dtype)
    whole = terms if scale is None else terms.shifted(scale)
    coefficients = np.array([term.coefficient for term in whole.terms])
    stacks = []
    for mode in range(len(terms.sizes)):
        blocks = [_blocks(term.factors[mode], whole, mode) for term in whole.terms]
        stacks.append(np.stack(blocks, axis=1))
    stacks[0] = stacks[0] * coefficients[:, None, None]
    inverses = [_inverted(factor) for factor in nearest_product(stacks)]
    cells = np.arange(len(terms.cells))
    ids = np.repeat(cells[:, None], len(inverses), axis=1)
    found = BatchedKron([pool.astype(kind) for pool in inverses], ids, cells, cells)
    return found.to(str(device or getattr(operator, "device", "cpu")))


def _blocks(factor: Factor, terms: KroneckerTerms, mode: int) -> NDArray[Any]:
    """Return the diagonal block of one factor for each cell of the grid, (cells, n, n)."""
    assert terms.cells is not None
    n, own = terms.sizes[mode], terms.cells[:, mode]
    if factor is None:
        return np.broadcast_to(np.eye(n), (len(own), n, n))
    if isinstance(factor, np.ndarray):
        count = len(factor) // n
        return np.asarray(factor).reshape(count, n, count, n)[own, :, own, :]
    diagonal = factor.rows == factor.columns
    blocks = np.zeros((int(own.max()) + 1, n, n), factor.blocks.dtype)
    kept = diagonal & (factor.rows < len(blocks))
    blocks[factor.rows[kept]] = factor.blocks[kept]
    return blocks[own]


def _inverted(factors: NDArray[Any]) -> NDArray[Any]:
    """Return the inverses of many small matrices, the identity for singular ones."""
    sizes = np.linalg.norm(factors, axis=(-2, -1), ord=2)
    smallest = np.linalg.norm(factors, axis=(-2, -1), ord=-2)
    singular = smallest <= 1e-14 * np.maximum(sizes, np.finfo(np.float64).tiny)
    safe = np.where(singular[:, None, None], np.eye(factors.shape[-1]), factors)
    return np.linalg.inv(safe)
