"""Flexible GMRES(m): the preconditioner may change from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..products import Vector
from .gmres import Gmres, GmresRecursion, GmresVectors
from .iteration.workspace_cache import solve_once
from .systems.result import KrylovResult
from .systems.system import LinearSystem
from .vectors.space import Flag


class _FgmresRecursion(GmresRecursion):
    """A cycle of flexible GMRES, which keeps M times the vectors of the basis."""

    flags_with_m = Flag.PRECONDITIONED | Flag.FLEXIBLE

    def allocate(self, preconditioned: bool) -> tuple[Vector, Vector, Vector]:
        space = self.space
        x, work = space.vector("x"), space.vector("work")
        solutions = basis = space.basis("basis", space.restart + 1)
        if preconditioned:
            solutions = space.basis("solutions", space.restart)
        self._solutions: list[Vector] = list(solutions)
        return self.with_basis(GmresVectors(x, basis, work, None, solutions))

    def direction(self, system: LinearSystem, step: int) -> Vector:
        system.precondition(self._slots[step], self._solutions[step])
        return self._solutions[step]


def fgmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = 20,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = "pr_norm",
    batched: str | None = None,
    raise_on_failure: bool = False,
) -> KrylovResult:
    """Solve A x = b by minimising ‖b - A x‖₂ over x₀ + span(M_1 v_1, …, M_m v_m).

    Parameters
    ----------
    A, b, x0, rtol, atol, restart, maxiter, callback, callback_type, batched, raise_on_failure
        As for `gmres`.
    M : as A, optional
        The preconditioner, M_j v ≈ A⁻¹ v, applied from the right: anything that maps vectors to
        vectors, also another Krylov method. It need not be linear, nor the same in each step.

    Returns
    -------
    KrylovResult
        ``x``, ``status``, ``iterations`` and more; unpacks as ``x, info``.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As `gmres`.

    See Also
    --------
    gmres : For an M that is linear and always the same: half the storage.
    Fgmres : The same with a workspace that is kept between solves.

    Notes
    -----
    The method is that of [1]_, orthogonalised as in `gmres`.

    Storage: 2 m + 3 vectors, m + 3 without M, beside b and the returned x. Each iteration applies
    A (and M) once, each cycle A once more.

    References
    ----------
    .. [1] Y. Saad, A flexible inner-outer preconditioned GMRES algorithm, SIAM J. Sci. Comput. 14
       (1993).

    Examples
    --------
    A few steps of another method are the preconditioner.

    >>> import numpy as np
    >>> from scipy.sparse.linalg import LinearOperator
    >>> from batchkron.solvers import bicgstab, fgmres
    >>> A = np.diag(np.arange(1.0, 41.0)) + np.eye(40, k=1)
    >>> inner = LinearOperator((40, 40), matvec=lambda v: bicgstab(A, v, maxiter=3).x, dtype=float)
    >>> result = fgmres(A, np.ones(40), M=inner, rtol=1e-10)
    >>> print(result.status, result.iterations < 15)
    converged True
    """
    cycles: dict[str, Any] = {"restart": restart, "callback_type": callback_type}
    return solve_once(
        Fgmres, A, b, x0, M, rtol, atol, maxiter, callback, batched, raise_on_failure, **cycles
    )


class Fgmres(Gmres):
    """Flexible GMRES(m) with a workspace that is kept from solve to solve; see `fgmres`.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Fgmres
    >>> print(Fgmres(2.0 * np.eye(2))(np.ones(2)).x)
    [0.5 0.5]
    """

    _recursion_type = _FgmresRecursion
