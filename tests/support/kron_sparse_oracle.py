"""Kronecker-sparse matrices entry by entry from their definition, in twice the precision.

Tolerance: a sum of c terms, and one more term where it is scaled and added to y. Two ways of
computing it differ by at most 2 eps (c + 4) (|K| |x|); complex terms count as two.
"""

import math

import numpy as np
import scipy.sparse


def sparse_matrix(values):
    """K[i b d + k d + j, i c d + l d + j] = values[i, k, l, j], complex128 or float64."""
    a, b, c, d = values.shape
    i, k, col, j = np.indices(values.shape).reshape(4, -1)
    wide = "complex128" if values.dtype.kind == "c" else "float64"
    entries = (values.reshape(-1).astype(wide), (i * b * d + k * d + j, i * c * d + col * d + j))
    return scipy.sparse.coo_array(entries, shape=(a * b * d, a * c * d)).tocsr()


def dense_matrix(values):
    """The same as an array."""
    return sparse_matrix(values).toarray()


def assert_product(y, values, x, added=None, alpha=1.0, eps=None):
    """``y`` (..., a b d) is alpha K x + added for x (..., a c d), within the bound above.

    ``eps``: of the numbers that were multiplied, y's by default.
    """
    K = sparse_matrix(values)
    wide = np.result_type(K.dtype, x.dtype, "float64")
    rows = x.reshape(math.prod(x.shape[:-1]), K.shape[1]).astype(wide)
    expected = alpha * (K @ rows.T).T.reshape(*x.shape[:-1], K.shape[0])
    magnitude = abs(alpha) * (abs(K) @ np.abs(rows).T).T.reshape(expected.shape)
    if added is not None:
        expected, magnitude = expected + added, magnitude + np.abs(added)
    terms = (2 if y.dtype.kind == "c" else 1) * values.shape[2] + 4
    bound = 2 * (np.finfo(y.dtype).eps if eps is None else eps) * terms * magnitude
    assert y.shape == expected.shape
    worst = np.abs(y - expected) - bound
    assert (worst <= 0).all(), f"{(worst > 0).sum()} of {worst.size} entries are off"
