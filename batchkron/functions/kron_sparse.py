"""Multiply by a Kronecker-sparse matrix without building an operator of it."""

from __future__ import annotations

from numpy.typing import ArrayLike

from batchkron.arrays import array_module, is_plain
from batchkron.backends import backend_for
from batchkron.spec.kron import Array, check_output
from batchkron.spec.kron_sparse import Layout, kron_sparse_call


def kronecker_sparse_multiply(
    values: ArrayLike, x: ArrayLike, *, layout: Layout = "batch-first", out: Array | None = None
) -> Array:
    """Compute y = x Kᵀ, or K x, for a Kronecker-sparse matrix K.

    K has the support I_a ⊗ 1_{b×c} ⊗ I_d, and y[n, i, k, j] = Σ_l values[i, k, l, j] x[n, i, l, j].

    Parameters
    ----------
    values : array_like, (a, b, c, d)
        The entries K[i b d + k d + j, i c d + l d + j] = values[i, k, l, j]; all others are 0.
    x : array_like, (..., a c d), or (a c d, ...) with "batch-last"
        The vectors that K multiplies.
    layout : {"batch-first", "batch-last"}
        Whether the elements of a vector are the last or the first axis of x and y.
    out : ndarray, the shape of the result, optional
        Array that the result is written to; must not overlap an input.

    Returns
    -------
    ndarray, (..., a b d), or (a b d, ...) with "batch-last"
        The result, ``out`` if given. Its dtype is `numpy.result_type` of the operands, with
        integers as float64 and float16 as float32, in which the sums are computed, too.

    Raises
    ------
    ValueError
        If a shape does not fit, the layout is another one, or ``out`` is read-only or overlaps an
        input or itself.
    TypeError
        If a dtype has no kernels, an array is masked, or ``out`` has another dtype than the result.
    BackendUnavailableError
        For arrays on a CUDA device, for which there are no kernels yet.

    Notes
    -----
    The values are copied in each call; a `KroneckerSparse` operator keeps its copy. The matrix is
    definition 2.1 of Gonon, Zheng, Carrivain and Le, "Fast inference with Kronecker-sparse
    matrices" (2024), and the product is computed as in their algorithm 2, in one pass over x and y.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> values = np.arange(1.0, 5.0).reshape(1, 2, 2, 1)
    >>> bk.kronecker_sparse_multiply(values, [[1.0, 1.0], [0.0, 1.0]])
    array([[3., 7.],
           [2., 4.]])
    >>> bk.kronecker_sparse_multiply(values, [[1.0, 0.0], [1.0, 1.0]], layout="batch-last")
    array([[3., 2.],
           [7., 4.]])
    """
    call = kron_sparse_call(values, x, layout)
    chosen = backend_for(array_module(call.x))
    if out is None:
        target = chosen.empty(call.shape, call.dtype)
    else:
        check_output(out, call.shape, call.dtype, call.given)
        target = out if is_plain(out) else chosen.empty(call.shape, call.dtype)
    chosen.multiply_kron_sparse(call.values, call.x, target, call.outer, call.inner)
    if out is None or target is out:
        return target
    out[...] = target
    return out
