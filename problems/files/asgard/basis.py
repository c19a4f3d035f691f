"""The multiwavelets of ASGarD, as rotations of those of this package.

On a cell [-1, 1] let s(x) = -1 for x < 0 and +1 for x > 0. The Gram-Schmidt process is applied to
1, x, …, x^p, s, s x, …, s x^p; call what s x^k becomes q_k, with norm 1 and a positive product with
s x^k. ASGarD's wavelet number j of degree p is (-1)^j q_(p-j). It spans the same space as the
wavelets of `discretization.multiwavelets`, and both are orthonormal, so that one orthogonal matrix,
the same for every cell and level, leads from one to the other. The scaling functions of the whole
domain are the same.
"""

from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ...discretization.multiwavelets import (
    check_degree,
    half_product,
    orthogonal_functions,
    signed_root,
)

__all__ = ["rotate_from_asgard", "wavelet_rotation"]


@cache
def wavelet_rotation(degree: int) -> NDArray[np.float64]:
    """R_ji = ∫ a_j ψ_i: ASGarD's wavelets a_j = Σ_i R_ji ψ_i by those of this package.

    Parameters
    ----------
    degree : int
        Degree p of the polynomials.

    Returns
    -------
    float64 (degree + 1, degree + 1)
        Orthogonal, read-only; each entry is the root of a rational number, rounded once.

    Raises
    ------
    TypeError, ValueError
        If the degree is no integer or out of range.

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
        # right half of s P_k; its left half follows by parity, k + 1
        vector = polynomials[k]
        for other in [*polynomials[(k + 1) % 2 :: 2], *theirs[k % 2 :: 2]]:
            share = half_product(vector, other) / half_product(other, other)
            vector = [a - share * b for a, b in zip(vector, other, strict=True)]
        theirs.append(vector)
    rotation = np.zeros((n, n))
    for j in range(n):
        k = degree - j
        for i in range((n + k + 1) % 2, n, 2):  # of the same parity
            scale = 1 / (half_product(theirs[k], theirs[k]) * half_product(ours[i], ours[i]))
            rotation[j, i] = (-1) ** j * signed_root(half_product(theirs[k], ours[i]), scale)
    rotation += 0.0  # no negative zeros
    rotation.setflags(write=False)
    return rotation


def rotate_from_asgard(
    coefficients: NDArray[np.float64], cells: NDArray[np.int64], degree: int
) -> NDArray[np.float64]:
    """Coefficients by the basis of this package from those by ASGarD's.

    Parameters
    ----------
    coefficients : float64 (num_cells * (degree + 1)**d,)
        Block by block, the last dimension fastest within a block.
    cells : int64 (num_cells, d)
        The 1-D cells of the blocks: 0 for the whole domain, others for wavelets.
    degree : int
        Degree of the polynomials.

    Returns
    -------
    float64 (num_cells, (degree + 1)**d)
        A fresh array.
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
