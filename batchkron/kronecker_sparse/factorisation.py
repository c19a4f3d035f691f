"""Matrices as chains of Kronecker-sparse matrices, factor by factor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import to_host
from batchkron.kronecker_sparse.known_patterns import deformable
from batchkron.operators import KroneckerSparse, KroneckerSparseChain
from batchkron.spec.kron import Array, compute_dtype
from batchkron.spec.kron_sparse import Layout, Pattern


def chaining_obstacle(left: Pattern, right: Pattern) -> str:
    """Return why two neighbouring patterns are not chainable; empty if they are.

    They are if a divides a', d' divides d, and a' divides a c. Then two columns of the left factor,
    and two rows of the right one, have equal supports or disjoint ones, and the product of the
    factors consists of blocks of rank r = a c / a' = b' d' / d.
    """
    if right.a % left.a:
        return f"{left.a} does not divide {right.a}, the first numbers"
    if left.d % right.d:
        return f"{right.d} does not divide {left.d}, the last numbers"
    if left.a * left.c % right.a:
        return f"{right.a} does not divide {left.a}·{left.c}"
    return ""


def factorise(
    W: ArrayLike, patterns: Sequence[Sequence[int]], *, layout: Layout = "batch-first"
) -> KroneckerSparseChain:
    """Return a chain K_1 K_2 … K_L of given patterns that is near a matrix W.

    It is W, up to rounding, if W is a product of such factors. Else the error in the Frobenius norm
    is the least possible one for one factor and for two, and at most √(L - 1) times it for more.

    Parameters
    ----------
    W : array_like, (M, N)
    patterns : sequence of four int each
        The patterns (a, b, c, d) of the factors. For neighbours (a, b, c, d) and (a', b', c', d'),
        a must divide a', d' must divide d, and a' must divide a c. Chains of `dense`, `low_rank`,
        `square_dyadic`, `block_butterfly` are such, and of `monarch` if p² divides min(M, N);
        those of `kaleidoscope` are not, and no algorithm is known for them.
    layout : {"batch-first", "batch-last"}
        Of the chain.

    Returns
    -------
    KroneckerSparseChain
        The blocks of its first L - 1 factors have orthonormal columns (or zeros, where a block of W
        has a smaller rank than it may have). On the CPU.

    Raises
    ------
    ValueError
        If the patterns do not have the shape of W, or two neighbours do not fulfil the condition;
        the text names them.
    TypeError
        If the dtype of W has no kernels.
    numpy.linalg.LinAlgError
        If a singular value decomposition fails, as of NaN.

    Notes
    -----
    Under the condition, which Le, Zheng, Riccietti and Gribonval call chainable ("Butterfly
    factorization with error guarantees", 2024), W = K_1 (K_2 ⋯ K_L) falls into blocks of rows and
    columns of rank r = a c / a', which are disjoint. Truncated singular value decompositions
    U (Σ V^H) of the blocks give K_1, from the U, and a matrix that is factorised in the same way.
    What one step leaves out is orthogonal to what the next ones do, and no step leaves out more
    than the best chain does, hence the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.kronecker_sparse import factorise, hadamard
    >>> H = hadamard(16)
    >>> chain = factorise(H.to_dense(), H.patterns)
    >>> np.allclose(chain.to_dense(), H.to_dense())
    True
    """
    checked = deformable(patterns)
    matrix = to_host(W, "W")
    shape = (checked[0].shape[0], checked[-1].shape[1])
    if matrix.shape != shape:
        raise ValueError(f"W has shape {matrix.shape}; expected {shape}, the shape of the patterns")
    for k, (left, right) in enumerate(pairwise(checked)):
        if obstacle := chaining_obstacle(left, right):
            raise ValueError(
                f"patterns[{k}], {tuple(left)}, and patterns[{k + 1}], {tuple(right)}, cannot be "
                f"factorised: {obstacle}"
            )
    rest = KroneckerSparse.from_dense(
        matrix.astype(compute_dtype(matrix), copy=False), _product(checked)
    ).values
    factors = []
    for left, right in pairwise(checked):
        factor, rest = _split(rest, left, right)
        factors.append(factor)
    return KroneckerSparseChain([*factors, rest], layout=layout)


def _product(chain: Sequence[Pattern]) -> Pattern:
    """Return the pattern of the product of a chain."""
    first, last = chain[0], chain[-1]
    return Pattern(first.a, first.b * (first.d // last.d), last.a // first.a * last.c, last.d)


def _split(values: Array, left: Pattern, right: Pattern) -> tuple[Array, Array]:
    """Split the first factor off a product: return its values, and those of the others' product.

    A row k' of a block of the product is the row k of a block of the first factor and the place e
    of the second factor's d in the first one's; a column is a block t of the second factor and its
    column. Rows k and columns of one (e, t) are a matrix of rank r.
    """
    a, _, columns, d = values.shape
    b, c, places, inner = left.b, left.c, left.d // d, right.a // left.a
    rank, width = c // inner, columns // inner
    blocks = values.reshape(a, b, places, inner, width, d).transpose(0, 2, 5, 3, 1, 4)
    left_vectors, sizes, right_vectors = np.linalg.svd(blocks, full_matrices=False)
    kept = min(rank, sizes.shape[-1])  # beyond, both results are zero
    factor = np.zeros((*blocks.shape[:-1], rank), values.dtype)
    rest = np.zeros((*blocks.shape[:-2], rank, width), values.dtype)
    factor[..., :kept] = left_vectors[..., :kept]
    rest[..., :kept, :] = sizes[..., :kept, None] * right_vectors[..., :kept, :]
    return (
        factor.transpose(0, 4, 3, 5, 1, 2).reshape(left),
        rest.transpose(0, 3, 4, 1, 5, 2).reshape(right.a, rank * places, width, d),
    )
