"""Fast transforms as chains of Kronecker-sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from batchkron.kronecker_sparse.known_patterns import square_dyadic
from batchkron.kronecker_sparse.sizes import checked_size, exponent
from batchkron.operators import KroneckerSparseChain
from batchkron.spec.kron import check_dtype
from batchkron.spec.kron_sparse import Layout


def bit_reversal(N: int) -> NDArray[np.int64]:
    """Return the numbers 0 … N - 1, each with its binary digits in the opposite order.

    Parameters
    ----------
    N : int
        A power of two, at least 2.

    Returns
    -------
    ndarray of int64, (N,)
        A permutation that is its own inverse.

    Raises
    ------
    TypeError, ValueError
        If N is not a power of two, or less than 2.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import bit_reversal
    >>> bit_reversal(8)
    array([0, 4, 2, 6, 1, 5, 3, 7])
    """
    count = exponent(checked_size(N, "N"))
    digits = np.arange(N, dtype=np.int64).reshape((2,) * count)
    return np.ascontiguousarray(digits.transpose()).reshape(N)


def dft(
    N: int, *, dtype: DTypeLike = np.complex128, layout: Layout = "batch-first"
) -> KroneckerSparseChain:
    """Return the discrete Fourier transform of N = 2^L elements, with its columns bit-reversed.

    ``dft(N) @ x[bit_reversal(N)]`` is ``numpy.fft.fft(x)``.

    Parameters
    ----------
    N : int
        A power of two, at least 2.
    dtype : complex64 or complex128
    layout : {"batch-first", "batch-last"}

    Returns
    -------
    KroneckerSparseChain
        Of the patterns of `square_dyadic`.

    Raises
    ------
    TypeError
        If N is not an integer, or the dtype is another one.
    ValueError
        If N is not a power of two, or less than 2.

    Notes
    -----
    K_l = I ⊗ [[I, D], [I, -D]] with D = diag(exp(-2πi k / n)), k < n/2, n = N / 2^(l-1): the
    factorisation of Cooley and Tukey, figure 1 of Gonon, Zheng, Carrivain and Le (2024). It takes
    4 N L multiply-adds; a library for Fourier transforms is faster.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.kronecker_sparse import bit_reversal, dft
    >>> x = np.arange(8.0)
    >>> np.allclose(dft(8) @ x[bit_reversal(8)], np.fft.fft(x))
    True
    """
    wanted = check_dtype(dtype)
    if wanted.kind != "c":
        raise TypeError(f"dtype is {wanted}; expected complex64 or complex128")
    values = []
    for a, b, c, d in square_dyadic(N):
        factor: NDArray[Any] = np.ones((a, b, c, d), np.complex128)
        factor[:, 0, 1] = np.exp(-1j * np.pi * np.arange(d) / d)
        factor[:, 1, 1] = -factor[:, 0, 1]
        values.append(factor.astype(wanted))
    return KroneckerSparseChain(values, layout=layout)


def hadamard(
    N: int, *, dtype: DTypeLike = np.float64, layout: Layout = "batch-first"
) -> KroneckerSparseChain:
    """Return the Hadamard transform of N = 2^L elements, [[1, 1], [1, -1]] ⊗ … ⊗ [[1, 1], [1, -1]].

    Parameters
    ----------
    N : int
        A power of two, at least 2.
    dtype : float32, float64, complex64 or complex128
    layout : {"batch-first", "batch-last"}

    Returns
    -------
    KroneckerSparseChain
        Of the patterns of `square_dyadic`.

    Raises
    ------
    TypeError
        If N is not an integer, or for any other dtype.
    ValueError
        If N is not a power of two, or less than 2.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import hadamard
    >>> hadamard(4).to_dense()
    array([[ 1.,  1.,  1.,  1.],
           [ 1., -1.,  1., -1.],
           [ 1.,  1., -1., -1.],
           [ 1., -1., -1.,  1.]])
    """
    wanted = check_dtype(dtype)
    signs = np.array([[1, 1], [1, -1]], wanted)[None, :, :, None]
    values = [np.broadcast_to(signs, pattern) for pattern in square_dyadic(N)]
    return KroneckerSparseChain(values, layout=layout)
