"""The method of conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..products import Vector
from .iteration.docstrings import with_shared_parts
from .iteration.method import KrylovMethod
from .iteration.recursion import Recursion
from .iteration.workspace_cache import solve_once
from .systems.result import KrylovResult
from .systems.system import LinearSystem
from .vectors.passes import Pass, Product, Stages
from .vectors.space import Passes


class CgVectors(NamedTuple):
    """x, the residual r, the direction p, q = A p, z = M r: without M, z is r."""

    x: Vector
    r: Vector
    p: Vector
    q: Vector
    z: Vector


CgCurvature = Pass("CgCurvature", CgVectors)  # alpha = rho / p* q
CgUpdate = Pass("CgUpdate", CgVectors)  # x += alpha p, r -= alpha q; without M rho' = r* r, beta
CgProduct = Pass("CgProduct", CgVectors)  # rho' = r* z, beta = rho' / rho
CgDirection = Pass("CgDirection", CgVectors)  # p = z + beta p

_ITERATION = (CgCurvature, CgUpdate, CgDirection)  # after q = A p, without M
_Q = CgVectors._fields.index("q")


class _CgRecursion(Recursion):
    """The recursion of conjugate gradients."""

    def allocate(self, preconditioned: bool) -> tuple[Vector, Vector, Vector]:
        space = self.space
        x, r, p, q = (space.vector(name) for name in ("x", "r", "p", "q"))
        self._at = at = CgVectors(x, r, p, q, space.vector("z") if preconditioned else r)
        self._q = q  # where the latest q = A p is: at.q, or an array of A's own
        self._turn = space.passes((CgProduct, CgDirection), at)
        # with M, the product z = M r is between the update and the next direction
        self._step = space.passes(_ITERATION[:2] if preconditioned else _ITERATION, at)
        return x, r, q

    def begin(self, system: LinearSystem) -> int:
        super().begin(system)
        return self._next_direction(system)

    def iterate(self, system: LinearSystem, steps: range) -> int:
        _, _, p, q, _ = self._at
        left = -1
        for _ in steps:
            self._take_product(system.product(p, q))  # q = A p
            left = self._step.run()  # alpha = rho / p* q, x += alpha p, r -= alpha q
            if left and system.preconditioned:
                left = self._next_direction(system)
            if left == 0:
                break
        return left

    def _next_direction(self, system: LinearSystem) -> int:
        _, r, _, _, z = self._at
        system.precondition(r, z)  # z = M r
        return self._turn.run()  # rho = r* z, beta = rho / the last one, p = z + beta p

    def in_a_launch(self, A: Any) -> Passes | None:
        at = self._at
        stages: Stages = [(Product, (at.p, at.q)), *((each, at) for each in _ITERATION)]
        return self.space.iterations(A, stages, (at.x, at.r, at.p))

    def _take_product(self, product: Vector) -> None:
        """Let passes read q where an operator left it."""
        if product is not self._q:
            self._q = product
            self._step.set_vector(_Q, product, self.space.address(product))

    def forget_operands(self) -> None:
        """Let go of the arrays of the last solve that are not the workspace's own."""
        super().forget_operands()
        self._take_product(self._at.q)


@with_shared_parts
def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Vector], object] | None = None,
    batched: str | None = None,
    raise_on_failure: bool = False,
) -> KrylovResult:
    """Solve A x = b, A Hermitian and positive definite, minimising ‖x - A⁻¹ b‖_A over K_k(M A).

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Hermitian and positive definite; that it is Hermitian is not checked.
    [rhs]
    [maxiter]
    M : as A, optional
        The preconditioner, M ≈ A⁻¹, Hermitian and positive definite.
    [callback]
    [batched]

    Returns
    -------
    KrylovResult
        ``x``, ``status``, ``iterations`` and more; unpacks as ``x, info``. A direction p with
        p* A p < 0 ends a solve as ``Status.INDEFINITE``.

    Raises
    ------
    [raises]

    See Also
    --------
    minres : For A that are not definite.
    Cg : The same with a workspace that is kept between solves.

    Notes
    -----
    The method is that of [1]_. Where the recursion's residual meets the tolerance, the true one
    is computed and decides; if it is larger, the method begins again from it, as long as it
    shrank to half since the last time. The residual is scaled by its initial norm, so that inner
    products stay in range for right-hand sides of any size; they are summed in double precision.

    Storage: 4 vectors, 5 with M, beside b and the returned x. One product with A (and M) an
    iteration, and one more at the end.
    A solve that does not converge returns the best of the iterates whose true residual was
    computed, x₀ among them: a run of few iterations, in which the residual grew while the error
    shrank in the norm of A, returns x₀. From the first time that it goes on from a true residual
    this takes one more vector.

    References
    ----------
    .. [1] M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems,
       J. Res. Nat. Bur. Standards 49 (1952).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import cg
    >>> x, info = cg(np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([6.0, 7.0]))
    >>> print(x.round(6), info)
    [1. 2.] 0
    """
    return solve_once(Cg, A, b, x0, M, rtol, atol, maxiter, callback, batched, raise_on_failure)


class Cg(KrylovMethod):
    """Conjugate gradients with a workspace that is kept from solve to solve; see `cg`.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Cg
    >>> solver = Cg(2.0 * np.eye(2))
    >>> print(solver(np.ones(2)).x, solver(np.zeros(2)).x)
    [0.5 0.5] [0. 0.]
    """

    _recursion_type = _CgRecursion
