"""Dense interpolation matrices from Keys's kernel, a function of the distance, grid point by point.

Tolerance: each entry of W (K_1 ⊗ … ⊗ K_N) W^T x is a sum over the points of products of 2 N
weights and N entries, formed by a scatter (at most n terms a cell), N products with factors of P_k
columns, and a gather (4^N terms). Two ways differ by at most 2 eps times the number of all of
these, times the same sum of absolute values. The weights themselves are at most 1, and rounded from
polynomials of degree three, whose terms are below 4 in sum, in the place of a point, which is
rounded in double precision: by 16 (P_k + 1) units of double precision at most, so that an entry of
W differs by N times that, also where it is 0.
"""

import itertools
import math

import numpy as np


def keys_kernel(s):
    """Keys's cubic kernel with a = -1/2 at a distance s in grid intervals."""
    s = abs(s)
    if s <= 1:
        return 1.5 * s**3 - 2.5 * s**2 + 1
    return -0.5 * s**3 + 2.5 * s**2 - 4 * s + 2 if s < 2 else 0.0


def row_1d(place, lower, upper, size):
    """The weights of all grid points for one place, with the virtual points -1 and P folded in."""
    t = (place - lower) / (upper - lower) * (size - 1)
    row = np.array([keys_kernel(t - i) for i in range(-1, size + 1)])
    before, inside, behind = row[0], row[1:-1].copy(), row[-1]
    if t <= 1:  # f(-1) = 3 f(0) - 3 f(1) + f(2), used in the first interval only
        inside[:3] += before * np.array([3.0, -3.0, 1.0])
    if t >= size - 2:
        inside[:-4:-1] += behind * np.array([3.0, -3.0, 1.0])
    return inside


def dense_interpolation(points, grid):
    """W, (n, cells)."""
    rows = []
    for point in np.asarray(points, np.float64):
        row = np.ones(1)
        for place, lower, upper, size in zip(
            point, grid.lower, grid.upper, grid.sizes, strict=True
        ):
            row = np.kron(row, row_1d(place, lower, upper, size))
        rows.append(row)
    return np.array(rows).reshape(len(points), math.prod(grid.sizes))


def toeplitz(column):
    """The Hermitian Toeplitz matrix of a first column, entry by entry."""
    column = np.asarray(column)
    matrix = np.empty((len(column), len(column)), column.dtype)
    for i, j in itertools.product(range(len(column)), repeat=2):
        matrix[i, j] = column[i - j] if i >= j else np.conj(column[j - i])
    return matrix


def dense_product(factors):
    """K_1 ⊗ … ⊗ K_N in double precision."""
    product = np.ones((1, 1))
    for factor in factors:
        matrix = toeplitz(factor) if factor.ndim == 1 else factor
        product = np.kron(product, matrix.astype(np.result_type(matrix, np.float64)))
    return product


def dense_operator(points, grid, factors, noise=0.0):
    """W (K_1 ⊗ … ⊗ K_N) W^T + diag(noise), and the same of absolute values."""
    W, K = dense_interpolation(points, grid), dense_product(factors)
    diagonal = np.diag(np.broadcast_to(noise, len(points)))
    return W @ K @ W.T + diagonal, abs(W) @ abs(K) @ abs(W).T + diagonal


def terms(count, grid):
    """The number of terms in the bound above."""
    modes = len(grid.sizes)
    return count + sum(grid.sizes) + 4**modes + 8 * modes + 4


def assert_close(y, expected, magnitude, count, grid, factor=1, slack=0):
    """``y`` within the bound above.

    ``factor``: 2 for complex numbers. ``slack``: what an entry of W is multiplied by, all in all.
    """
    assert y.shape == expected.shape
    eps = np.finfo(y.dtype).eps
    weights = 16 * (max(grid.sizes) + 1) * len(grid.sizes) * np.finfo(np.float64).eps
    bound = 2 * factor * eps * terms(count, grid) * magnitude + weights * (magnitude + slack)
    worst = np.abs(y - expected) - bound
    assert (worst <= 0).all(), f"{(worst > 0).sum()} of {worst.size} entries are off"
