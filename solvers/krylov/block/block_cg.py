"""Block conjugate gradients: many right-hand sides in one space."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.array_kinds import any_foreign
from batchkron.arrays import device_errors

from ...products import norms_of
from ..iteration.docstrings import with_shared_parts
from ..systems.foreign_arrays import solve_in_kind
from ..systems.limits import check_count
from ..systems.result import KrylovResult, Status
from .block import BlockSolve, orthonormalised


@with_shared_parts
def block_cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    raise_on_failure: bool = False,
) -> KrylovResult:
    """Solve A X = B, A Hermitian and positive definite, in one space for all columns of B.

    Each column minimises ‖x - A⁻¹ b‖_A over the sum of all columns' Krylov spaces, so that K
    columns see the K least eigenvalues together: fewer products with A than `cg` where these are
    what takes long, at the cost of K times the arithmetic between products.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Hermitian and positive definite; that it is Hermitian is not checked. One for all columns.
    [columns]
    maxiter : int, optional
        The largest number of iterations; 10 N by default.
    M : as A, optional
        The preconditioner, M ≈ A⁻¹, Hermitian and positive definite.
    raise_on_failure : bool
        Raise where a column does not converge, instead of returning a status.

    Returns
    -------
    KrylovResult
        As that of `cg` with ``batched="columns"``: each column has its own status, count and
        history. ``applications`` counts a product with several vectors once.

    Raises
    ------
    [raises]

    See Also
    --------
    cg : With ``batched="columns"``, each column in a space of its own.

    Notes
    -----
    Block conjugate gradients [1]_ with residuals R = Q S, Q orthonormal (in the inner product of
    M, where there is one) by a QR decomposition in each iteration [2]_: nothing breaks down where
    residuals become dependent. Directions that are rounding, or that no residual needs, are left
    out, and the block becomes smaller. Where all estimates meet their tolerances, the true
    residuals are computed and decide; the method begins again from those that are too large, as
    long as they shrank to half.

    On a device, K × K matrices are factorised on the host, which waits in each iteration.

    Storage: at most 10 K vectors at a time beside b, x among them, 11 K with M, and K more from the
    first time that the method begins again: of the iterates whose true residual was computed, x₀
    among them, each column's best is returned. One product of A (and M) with at most K vectors an
    iteration, and one more at the end.

    References
    ----------
    .. [1] D. P. O'Leary, The block conjugate gradient algorithm and related methods, Linear
       Algebra Appl. 29 (1980).
    .. [2] A. A. Dubrulle, Retooling the method of block conjugate gradients, Electron. Trans.
       Numer. Anal. 12 (2001), algorithm BCGrQ.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import block_cg, cg
    >>> A = np.diag(np.concatenate([np.linspace(1e-4, 1e-3, 4), np.linspace(1.0, 2.0, 60)]))
    >>> b = np.random.default_rng(0).standard_normal((64, 4))
    >>> together, alone = block_cg(A, b, rtol=1e-8), cg(A, b, rtol=1e-8, batched="columns")
    >>> print(together.status, together.applications < alone.applications)
    converged True
    """
    if any_foreign(b):
        options: dict[str, Any] = {"rtol": rtol, "atol": atol, "maxiter": maxiter}
        options["raise_on_failure"] = raise_on_failure
        solve_native = partial(block_cg, **options)
        return solve_in_kind(solve_native, A, b, x0, M)
    with device_errors(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        solve = BlockSolve(A, b, x0, M, (rtol, atol))
        size = solve.b.shape[-1]
        maximum = 10 * size if maxiter is None else check_count("maxiter", maxiter, minimum=0)
        done = 0
        while len(solve.active):
            count, failure = _iterate(solve, maximum - done)
            done += count
            solve.decide(failure, done >= maximum, 0.5)
        return solve.result(raise_on_failure)


def _iterate(solve: BlockSolve, maximum: int) -> tuple[int, Status | None]:
    """Iterate from the true residuals until all estimates are small; return how often, and why not.

    In the columns' words: R = Q S, X += P α S, Q ζ = Q - A P α, P = M Q + P ζ*, S = ζ S, with
    α = (P* A P)⁻¹ and Q* M Q = 1. Vectors are rows here, which transposes coefficients.
    """
    tolerance, largest = solve.tolerance[solve.active], 0.0
    q, share, unit = solve.scaled_residuals()
    q, z, lower, failure = _in_metric(solve, q)
    if failure is not None:
        return 0, failure
    p, share = z, lower.conj().T @ share
    open_ = np.ones(len(unit), bool)
    for step in range(maximum):
        w = solve.apply(p)
        curvature = solve.product(p, w)
        lengths = norms_of(p)
        failure, largest = _refused(solve, curvature / np.outer(lengths, lengths), largest)
        if failure is not None:
            return step, failure
        try:
            factor = scipy.linalg.cho_factor((curvature + curvature.conj().T) / 2)
        except np.linalg.LinAlgError:  # its least eigenvalue is rounding
            return step, Status.BREAKDOWN
        change = scipy.linalg.cho_solve(factor, share * open_)
        if not np.isfinite(change).all():
            return step, Status.NOT_FINITE
        solve.add(solve.combine(change.T, p))
        along = scipy.linalg.cho_solve(factor, np.eye(len(p)))
        q = q - solve.combine(along.T, w)
        q, ratio = orthonormalised(q, share * open_ / unit)
        share = ratio @ share  # in the orthonormal basis: its columns are as long as residuals
        estimates = norms_of(share.T)
        solve.record(np.where(open_, estimates, np.nan))
        if not np.isfinite(estimates).all():
            return step + 1, Status.NOT_FINITE
        open_ &= estimates > tolerance
        if not open_.any() or len(q) == 0:
            return step + 1, None
        q, z, lower, failure = _in_metric(solve, q)
        if failure is not None:
            return step + 1, failure
        ratio, share = lower.conj().T @ ratio, lower.conj().T @ share
        p = z + solve.combine(ratio.conj(), p)
    return maximum, None


def _in_metric(solve: BlockSolve, q: Any) -> tuple[Any, Any, NDArray[Any], Status | None]:
    """Return Q, M Q and L, Q* M Q = 1, where Q L* is given, and what is wrong with M, if it is."""
    if not solve.system.preconditioned:
        return q, q, np.eye(len(q)), None
    z = solve.precondition(q)
    metric = solve.product(q, z)
    failure = _refused(solve, metric)[0] if len(q) else None
    if failure is None:
        try:
            lower = np.linalg.cholesky((metric + metric.conj().T) / 2)
        except np.linalg.LinAlgError:  # its least eigenvalue is rounding
            failure = Status.BREAKDOWN
    if failure is not None:
        return q, z, metric, failure
    back = np.linalg.inv(lower).conj()  # of rows: Q_new = Q L⁻*
    return solve.combine(back, q), solve.combine(back, z), lower, None


def _refused(
    solve: BlockSolve, matrix: NDArray[Any], largest: float = 0.0
) -> tuple[Status | None, float]:
    """Return what is wrong with a small matrix that is to be positive definite.

    And the largest eigenvalue, or ``largest``, beside which others are rounding.
    """
    if not np.isfinite(matrix).all():
        return Status.NOT_FINITE, largest
    values = np.linalg.eigvalsh((matrix + matrix.conj().T) / 2)
    largest = max(largest, float(np.abs(values).max(initial=0.0)))
    minimum = float(np.finfo(solve.dtype).eps) * largest
    if (values < -minimum).any():
        return Status.INDEFINITE, largest
    return (Status.BREAKDOWN if (values <= 0.01 * minimum).any() else None), largest
