"""The multiwavelets of ASGarD, as rotations of those of this package.

On a cell [-1, 1] let s(x) = -1 for x < 0 and +1 for x > 0. Apply the Gram-Schmidt process to
1, x, …, x^p, s, s x, …, s x^p, and let q_k be the result for s x^k, with norm 1 and a positive
inner product with s x^k. ASGarD's wavelet number j of degree p is (-1)^j q_(p-j). These wavelets
span the same space as those of `discretization.basis.multiwavelets`, and both sets are orthonormal.
So one orthogonal matrix, the same for every cell and level, maps one to the other. The scaling
functions of the whole domain are the same.
"""

from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ...discretization.basis.multiwavelets import (
    check_degree,
    half_product,
    orthogonal_functions,
    signed_root,
)

__all__ = ["rotate_from_asgard", "wavelet_rotation"]


@cache
def wavelet_rotation(degree: int) -> NDArray[np.float64]:
    """Return R_ji = ∫ a_j ψ_i dx, with ASGarD's wavelets a_j = Σ_i R_ji ψ_i and ours ψ_i.

    It is orthogonal and read-only; each entry is the square root of a rational number, rounded
    once.

    Examples
    --------
    >>> wavelet_rotation(2).round(4)
    array([[ 0.7454,  0.    ,  0.6667],
           [ 0.    ,  1.    ,  0.    ],
           [-0.6667,  0.    ,  0.7454]])
    """
    n = check_degree(degree) + 1
    functions = orthogonal_functions(n)
    polynomials, ours = functions[:n], functions[n:]
    theirs: list[list[Fraction]] = []
    for k in range(n):
        # Start from s P_k, which gives the same q_k as s x^k. Its right half is P_k, and its left
        # half follows from its parity, that of k + 1; other parities are orthogonal to it.
        vector = polynomials[k]
        for other in [*polynomials[(k + 1) % 2 :: 2], *theirs[k % 2 :: 2]]:
            share = half_product(vector, other) / half_product(other, other)
            vector = [a - share * b for a, b in zip(vector, other, strict=True)]
        theirs.append(vector)
    rotation = np.zeros((n, n))
    for j in range(n):
        k = degree - j
        for i in range((n + k + 1) % 2, n, 2):  # those of the same parity; the others give 0
            scale = 1 / (half_product(theirs[k], theirs[k]) * half_product(ours[i], ours[i]))
            rotation[j, i] = (-1) ** j * signed_root(half_product(theirs[k], ours[i]), scale)
    rotation += 0.0  # turns negative zeros into positive ones
    rotation.setflags(write=False)
    return rotation


def rotate_from_asgard(
    coefficients: NDArray[np.float64], cells: NDArray[np.int64], degree: int
) -> NDArray[np.float64]:
    """Return coefficients (num_cells, n^d) in the basis of this package from those of ASGarD's.

    Those are one block after another; within a block the last dimension is the fastest. Of the 1-D
    cells (num_cells, d) of the blocks, cell 0 has the scaling functions of the whole domain, all
    others have wavelets.
    """
    n = degree + 1
    count, dimensions = cells.shape
    to_ours = wavelet_rotation(degree).T
    result = np.array(coefficients, dtype=np.float64).reshape(count, -1)
    for k in range(dimensions):
        modes = result.reshape(count, n**k, n, -1)
        of_wavelets = cells[:, k] > 0
        modes[of_wavelets] = to_ours @ modes[of_wavelets]
    return result
