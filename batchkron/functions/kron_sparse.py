"""Multiply by a Kronecker-sparse matrix without building an operator of it."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, is_plain
from batchkron.backends import backend_for
from batchkron.spec.kron import Array, Precision, check_output
from batchkron.spec.kron_sparse import Layout, kron_sparse_call


def kronecker_sparse_multiply(
    values: ArrayLike,
    x: ArrayLike,
    *,
    layout: Layout = "batch-first",
    precision: Precision | None = None,
    out: Array | None = None,
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
    precision : {None, "tf32x3", "tf32"}
        How a device multiplies float32, as for `gekmm`; other dtypes, and the CPU, ignore it.
    out : ndarray, the shape of the result, optional
        Array that the result is written to; must not overlap an input.

    Returns
    -------
    ndarray, (..., a b d), or (a b d, ...) with "batch-last"
        The result, ``out`` if given. Its dtype is `numpy.result_type` of the operands, with
        integers as float64 and float16 as float32, in which the sums are computed, too. On a CUDA
        device two arrays of float16, or two of bfloat16, have a result of this dtype; the sums are
        in float32.

    Raises
    ------
    ValueError
        If a shape does not fit, the layout or the precision is another one, or ``out`` is
        read-only or overlaps an input or itself.
    TypeError
        If a dtype has no kernels, an array is masked, or ``out`` has another dtype than the result.

    Notes
    -----
    The values are copied in each call, on a device unless its kernel reads them as they are: for
    d = 1 and rows of whole 16 bytes, or small b and c. A `KroneckerSparse` operator keeps its copy.
    The matrix is definition 2.1 of Gonon, Zheng, Carrivain and Le, "Fast inference with
    Kronecker-sparse matrices" (2024), and the product is computed as in their algorithm 2, in one
    pass over x and y.

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
    fast = backend_for(array_module(x)).fast_path("kron_sparse_multiply")
    result: Array | None = fast(values, x, layout, precision, out)
    if result is not None:
        return result
    if any_foreign(values, x, out):
        kind = common_kind(values=values, x=x, out=out)
        options: dict[str, Any] = {"layout": layout, "precision": precision, "out": out}
        return in_kind(kronecker_sparse_multiply, kind, values, x, **options)  # type: ignore[no-any-return]
    matrices, vectors, outer, inner, shape, given = kron_sparse_call(values, x, layout, precision)
    chosen, dtype = backend_for(array_module(vectors)), vectors.dtype
    if out is None:
        target = chosen.empty(shape, dtype)
    else:
        check_output(out, shape, dtype, given)
        target = out if is_plain(out) else chosen.empty(shape, dtype)
    chosen.multiply_kron_sparse(matrices, vectors, target, outer, inner, precision)
    if out is None or target is out:
        return target
    out[...] = target
    return out
