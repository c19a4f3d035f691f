"""Some eigenvalues of a Hermitian operator, from a block of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.arrays import device_errors

from ..krylov.systems.limits import check_count
from ..rows import Multiplied, start_array
from .block_iteration import BlockProblem, iterate_block
from .result import EigenResult, finished

__all__ = ["lobpcg"]


def lobpcg(
    A: Any,
    X: Any,
    B: Any = None,
    M: Any = None,
    Y: Any = None,
    tol: float | None = None,
    maxiter: int | None = None,
    largest: bool = True,
    *,
    raise_on_failure: bool = False,
) -> EigenResult:
    """Compute eigenpairs A v = λ B v at an end of the spectrum, from a block X of m vectors.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Hermitian, which is not checked.
    X : array_like, (N, m) or (N,)
        Vectors to begin with, linearly independent; m pairs are computed. Random ones will do.
    B : as A, optional
        Hermitian and positive definite; the identity by default.
    M : as A, optional
        The preconditioner, M ≈ A⁻¹, Hermitian and definite, of any sign.
    Y : array_like, (N, c), optional
        Vectors that all others have to be orthogonal to, Yᴴ B v = 0, such as known eigenvectors.
    tol : float, optional
        ‖A v - λ B v‖ ≤ tol ends the iteration for a pair, for v of length 1: absolute, as in SciPy.
        √eps N by default.
    maxiter : int, optional
        The largest number of iterations; 20 by default.
    largest : bool
        Whether the largest or the smallest eigenvalues are wanted.
    raise_on_failure : bool
        Raise where a pair does not converge, instead of a `ConvergenceWarning`.

    Returns
    -------
    EigenResult
        ``values`` (m,), descending if ``largest``, ``vectors`` (N, m) with Vᴴ B V = I,
        ``residual_norms``, ``statuses``, ``products``; unpacks as ``values, vectors``.

    Raises
    ------
    ValueError
        If shapes do not agree, X has more columns than there is room for beside Y, or X's or Y's
        are linearly dependent.
    TypeError
        If an operand has no product with a vector, or A is distributed.
    RuntimeError
        If ``raise_on_failure`` and a pair did not converge.

    See Also
    --------
    eigsh : Random vectors, and a tolerance relative to eigenvalues.

    Notes
    -----
    A. V. Knyazev, SIAM J. Sci. Comput. 23 (2001), with an orthonormal basis of its three blocks
    [1]_ and soft locking: pairs that have converged stay in the block, but no vectors are
    multiplied for them. A block of m vectors needs m products with A (and B, M) an iteration at
    most, and m more at the end for true residuals. Storage: 10 m vectors, and 5 m with B.

    References
    ----------
    .. [1] J. A. Duersch, M. Shao, C. Yang and M. Gu, A robust and efficient implementation of
       LOBPCG, SIAM J. Sci. Comput. 40 (2018).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron import Diagonal
    >>> from batchkron.solvers import lobpcg
    >>> A = np.diag(np.arange(1.0, 101.0)) + 0.1
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> found = lobpcg(A, X, M=Diagonal(1.0 / np.diag(A)), tol=1e-6, maxiter=100, largest=False)
    >>> print(found.status, np.abs(found.values - np.linalg.eigvalsh(A)[:3]).max() < 1e-12)
    converged True
    """
    with device_errors(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        start = start_array(A, X, "X", 0, None, B)
        fixed = start[:0] if Y is None else start_array(A, Y, "Y", 0, None, B)
        fixed = fixed.astype(start.dtype, copy=False)
        count, size = start.shape
        if not 0 < count <= size - len(fixed):
            raise ValueError(
                f"X has {count} columns; expected 1 … {size - len(fixed)}: N, less Y's columns"
            )
        if tol is not None and not tol >= 0.0:
            raise ValueError(f"tol is {tol}; expected a number >= 0")
        maximum = 20 if maxiter is None else check_count("maxiter", maxiter, minimum=0)
        eps = float(np.finfo(start.dtype).eps)
        atol = size * eps**0.5 if tol is None else float(tol)
        problem = BlockProblem(
            A=Multiplied(A, "A", start),
            B=Multiplied(B, "B", start),
            M=Multiplied(M, "M", start),
            constraints=fixed,
            largest=bool(largest),
            rtol=0.0,
            atol=atol,
        )
        result = iterate_block(problem, start, count, maximum)
    return finished(result, "lobpcg", raise_on_failure)
