"""The dense oracle that the tests share.

Tolerances: a product of d factors is a chain of sums with Q_k terms. Two ways of computing it
differ entrywise by at most 2 eps (sum Q_k + 2 d + 2) (|A_1| x ... x |A_d|) |x|; tests allow that
and no more, so a single wrong term of ordinary size fails them.
"""

from functools import reduce

import numpy as np
import scipy.sparse

DTYPES = ["float32", "float64", "complex64", "complex128"]


def dense_kron(*factors):
    """SciPy's Kronecker product of dense matrices, as an array.

    scipy.linalg.kron left SciPy in 1.17; scipy.sparse.kron has the same order of factors.
    """

    def product(a, b):
        return scipy.sparse.kron(scipy.sparse.coo_array(a), b).toarray()

    return reduce(product, map(np.asarray, factors))


def rounding_bound(factors, x_abs, *, left, extra=0):
    """The entrywise bound of the module's first paragraph."""
    eps = max(np.finfo(f.dtype).eps for f in factors)
    magnitude = dense_kron(*[np.abs(f) for f in factors])
    terms = sum(max(f.shape) for f in factors) + 2 * len(factors) + 2 + extra
    product = magnitude @ x_abs if left else x_abs @ magnitude
    return 2 * eps * terms * product


def dense_batch(pools, ids, source, target, weights, num_inputs, num_outputs):
    """The whole matrix from dense products, and the matrix of absolute values."""
    rows = int(np.prod([pool.shape[1] for pool in pools]))
    columns = int(np.prod([pool.shape[2] for pool in pools]))
    dtype = np.result_type(weights, np.float64)
    matrix = np.zeros((num_outputs, rows, num_inputs, columns), dtype)
    magnitude = np.zeros(matrix.shape)
    for row, i, o, weight in zip(ids, source, target, weights, strict=True):
        dense = dense_kron(*[pool[k] for pool, k in zip(pools, row, strict=True)])
        matrix[o, :, i] += weight * dense
        magnitude[o, :, i] += np.abs(weight * dense)
    shape = (num_outputs * rows, num_inputs * columns)
    return matrix.reshape(shape), magnitude.reshape(shape)


def batch_bound(magnitude, x, pools, products):
    """The entrywise bound of the module's first paragraph for a batch list, from `dense_batch`."""
    eps = np.finfo(x.dtype).eps
    terms = sum(pool.shape[2] + 2 for pool in pools) + products + 2
    return 2 * eps * terms * (magnitude @ np.abs(x))


def random_array(rng, shape, dtype=np.float64):
    """Standard normal entries, complex where the dtype is."""
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def poisoned(shape, dtype):
    """An output that must be overwritten."""
    return np.full(shape, np.nan, dtype)


def factors_of(cupy, rng, shapes, dtype):
    """Random matrices of these shapes, on the host and on the device."""
    host = [random_array(rng, shape, dtype) for shape in shapes]
    return host, [cupy.asarray(factor) for factor in host]


def sizes(shapes):
    """Rows and columns of the product of matrices of these shapes."""
    rows = int(np.prod([p for p, _ in shapes]))
    columns = int(np.prod([q for _, q in shapes]))
    return rows, columns
