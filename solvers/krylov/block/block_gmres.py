"""Block GMRES, restarted: many right-hand sides over one basis."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.array_kinds import any_foreign
from batchkron.arrays import device_errors

from ...products import Vector, norms_of
from ..iteration.docstrings import with_shared_parts
from ..systems.foreign_arrays import solve_in_kind
from ..systems.limits import check_count
from ..systems.result import KrylovResult, Status
from .block import BlockSolve, orthonormalised


@with_shared_parts
def block_gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = 20,
    maxiter: int | None = None,
    M: Any = None,
    raise_on_failure: bool = False,
) -> KrylovResult:
    """Solve A X = B by minimising every ‖b - A x‖₂ over the sum of all columns' Krylov spaces.

    Fewer products with A than `gmres` takes where a few eigenvalues are what takes long, at the
    cost of K times the arithmetic between products.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Any square matrix, real or complex. One for all columns.
    [columns]
    restart : int or None
        m, the block steps between restarts; None is 20. The basis has up to (m + 1) K vectors.
    maxiter : int, optional
        The largest number of restart cycles; 10 N by default.
    M : as A, optional
        The preconditioner, M ≈ A⁻¹, applied from the right; linear.
    raise_on_failure : bool
        Raise where a column does not converge, instead of returning a status.

    Returns
    -------
    KrylovResult
        As that of `gmres` with ``batched="columns"``: each column has its own status, count and
        history. ``applications`` counts a product with several vectors once.

    Raises
    ------
    [raises]

    See Also
    --------
    gmres : With ``batched="columns"``, each column in a space of its own.

    Notes
    -----
    Block Arnoldi with block rotations [1]_, orthogonalised twice. Directions that are rounding are
    left out of the first block and of each next one, so that dependent columns, and spaces that
    are exhausted in some directions, make the block smaller [2]_. A cycle ends after m steps or
    where all estimates meet their tolerances; then the true residuals decide, and columns that are
    solved leave the block.

    On a device, the small matrices are on the host, which waits in each step.

    Storage: at most (m + 10) K vectors at a time beside b, x among them, and K more from the second
    cycle on: of the iterates at the ends of cycles and x₀, each column's best is returned. A block
    step applies A (and M) to at most K vectors at once, each cycle once more.

    References
    ----------
    .. [1] Y. Saad, Iterative methods for sparse linear systems, SIAM (2003), section 6.12.
    .. [2] M. H. Gutknecht, Block Krylov space methods for linear systems with multiple right-hand
       sides: an introduction, in: Modern mathematical models, methods and algorithms for real
       world systems (2006).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import block_gmres
    >>> A = np.array([[2.0, 1.0, 0.0], [0.0, 4.0, 1.0], [0.0, 0.0, 5.0]])
    >>> result = block_gmres(A, A @ np.arange(6.0).reshape(3, 2), rtol=1e-10)
    >>> print(result.status, (result.x.round(9) + 0.0).tolist())
    converged [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    if any_foreign(b):
        options: dict[str, Any] = {"rtol": rtol, "atol": atol, "restart": restart}
        options |= {"maxiter": maxiter, "raise_on_failure": raise_on_failure}
        solve_native = partial(block_gmres, **options)
        return solve_in_kind(solve_native, A, b, x0, M)
    steps = check_count("restart", 20 if restart is None else restart)
    with device_errors(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        solve = BlockSolve(A, b, x0, M, (rtol, atol))
        size = solve.b.shape[-1]
        maximum = 10 * size if maxiter is None else check_count("maxiter", maxiter, minimum=0)
        cycles = 0
        while len(solve.active):
            failure = _cycle(solve, max(1, min(steps, size))) if cycles < maximum else None
            cycles += 1
            solve.decide(failure, cycles >= maximum, 1.0)
        return solve.result(raise_on_failure)


def _cycle(solve: BlockSolve, steps: int) -> Status | None:
    """Improve x over a space of so many block steps; return why it cannot grow, if it cannot."""
    tolerance = solve.tolerance[solve.active]
    first, share, _ = solve.scaled_residuals()
    space = _Space(solve, first, share, steps)
    open_ = np.ones(len(tolerance), bool)
    for _ in range(steps):
        if not space.grow():
            return Status.NOT_FINITE
        estimates = space.estimates()
        solve.record(np.where(open_, estimates, np.nan))
        open_ &= estimates > tolerance
        if not open_.any() or space.exhausted:
            break
    return space.finish()


class _Space:
    """Orthonormal rows V and the small matrix of A M on them, made triangular as it grows.

    With A M V_j = V_(j+1) H in the columns' words, y minimises ‖share - H y‖ for every column.
    """

    def __init__(self, solve: BlockSolve, first: Vector, share: NDArray[Any], steps: int) -> None:
        block = len(first)
        self._solve = solve
        self._basis = solve.module.empty(((steps + 1) * block, first.shape[1]), solve.dtype)
        self._basis[:block] = first
        self._rows, self._columns = block, 0  # of H
        wide = np.result_type(solve.dtype, np.float64)
        self._triangle = np.zeros(((steps + 1) * block, steps * block), wide)
        self._share = np.zeros((len(self._basis), share.shape[1]), wide)
        self._share[:block] = share
        self._turns: list[tuple[int, NDArray[Any]]] = []

    @property
    def exhausted(self) -> bool:
        """Whether A M times the space lies in it."""
        return self._rows == self._columns

    def grow(self) -> bool:
        """Add A M times the last block; return whether all numbers are finite."""
        solve, known = self._solve, self._basis[: self._rows]
        begin, rows = self._columns, self._rows
        w = solve.apply(solve.precondition(known[begin:]))
        tiny = float(np.finfo(w.real.dtype).tiny)
        solve.image = image = max(solve.image, float(norms_of(w).max(initial=0.0)), tiny)
        column = np.zeros((rows, rows - begin), self._triangle.dtype)
        for _ in range(2):
            products = solve.product(known, w)
            column += products
            w = w - solve.combine(products.T, known)
        new, below = orthonormalised(w / w.real.dtype.type(image))
        if not (np.isfinite(column).all() and np.isfinite(below).all()):
            return False
        self._basis[rows : rows + len(new)] = new
        self._rows += len(new)
        self._close(np.concatenate([column, image * below.astype(column.dtype)]), begin, rows)
        return True

    def _close(self, column: NDArray[Any], begin: int, end: int) -> None:
        """Make the block of columns from ``begin`` on triangular by a unitary block."""
        for start, turn in self._turns:
            part = slice(start, start + len(turn))
            column[part] = turn @ column[part]
        turn = np.linalg.qr(column[begin:], mode="complete")[0].conj().T
        column[begin:] = turn @ column[begin:]
        part = slice(begin, begin + len(turn))
        self._share[part] = turn @ self._share[part]
        self._triangle[:end, begin:end] = column[:end]
        self._turns.append((begin, turn))
        self._columns = end

    def estimates(self) -> NDArray[np.float64]:
        """Return the residuals' norms that the space allows."""
        return norms_of(self._share[self._columns : self._rows].T)

    def finish(self) -> Status | None:
        """Add the best of the space to x."""
        count, solve = self._columns, self._solve
        triangle, share = self._triangle[:count, :count], self._share[:count]
        sizes = np.abs(triangle.diagonal())
        minimum = 10 * float(np.finfo(solve.dtype).eps) * solve.image
        regular = bool((sizes > minimum).all())
        if regular:
            y = scipy.linalg.solve_triangular(triangle, share)
        else:
            left, values, right = np.linalg.svd(triangle)
            kept = values > minimum
            along = (left[:, kept].conj().T @ share) / values[kept, None]
            y = right[kept].conj().T @ along
        if not np.isfinite(y).all():
            return Status.NOT_FINITE
        solve.add(solve.precondition(solve.combine(y.T, self._basis[:count])))
        return None if regular and not self.exhausted else Status.BREAKDOWN
