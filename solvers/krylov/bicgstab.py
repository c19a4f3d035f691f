"""The stabilised method of bi-conjugate gradients."""

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
from .vectors.space import Flag, Passes


class BicgstabVectors(NamedTuple):
    """x, the residual r and the first one, the direction p, v = A y and t = A y.

    y = M p for v, M r for t; without M p and r themselves.
    """

    x: Vector
    r: Vector
    shadow: Vector
    p: Vector
    v: Vector
    t: Vector
    y: Vector


BicgstabBegin = Pass("BicgstabBegin", BicgstabVectors)  # shadow = r, rho = shadow* r
BicgstabProject = Pass("BicgstabProject", BicgstabVectors)  # alpha = rho / shadow* v
BicgstabFirstUpdate = Pass("BicgstabFirstUpdate", BicgstabVectors)  # x += alpha y, r -= alpha v
BicgstabSmoothing = Pass("BicgstabSmoothing", BicgstabVectors)  # omega = t* r / t* t
# x += omega y, r -= omega t; rho, beta
BicgstabSecondUpdate = Pass("BicgstabSecondUpdate", BicgstabVectors)
BicgstabDirection = Pass("BicgstabDirection", BicgstabVectors)  # p = r + beta (p - omega v)

_FIRST_HALF = (BicgstabProject, BicgstabFirstUpdate)  # after v = A M p
_SECOND_HALF = (BicgstabSmoothing, BicgstabSecondUpdate, BicgstabDirection)  # after t = A M r


class _BicgstabRecursion(Recursion):
    """The recursion of BiCGSTAB."""

    measures = True
    flags = Flag.RETRIES

    def allocate(self, preconditioned: bool) -> tuple[Vector, Vector, Vector]:
        space = self.space
        names = ("x", "r", "shadow", "p", "v", "t")
        x, r, shadow, p, v, t = (space.vector(name) for name in names)
        of_p, of_r = (space.vector("y"),) * 2 if preconditioned else (p, r)
        self._first = BicgstabVectors(x, r, shadow, p, v, t, of_p)  # of an iteration's first half
        self._second = BicgstabVectors(x, r, shadow, p, v, t, of_r)
        self._shadow = space.passes((BicgstabBegin, BicgstabDirection), self._first)
        self._first_half = space.passes(_FIRST_HALF, self._first)
        self._second_half = space.passes(_SECOND_HALF, self._second)
        return x, r, v

    def begin(self, system: LinearSystem) -> int:
        super().begin(system)
        return self._shadow.run()  # shadow = r, rho = shadow* r, p = r

    def iterate(self, system: LinearSystem, steps: range) -> int:
        _, r, _, p, v, t, of_p = self._first
        of_r = self._second.y
        left = -1
        for _ in steps:
            system.precondition(p, of_p)
            system.apply(of_p, v)  # v = A M p
            self.measure()
            left = self._first_half.run()  # alpha = rho / shadow* v, x += alpha M p, r -= alpha v
            if left:
                system.precondition(r, of_r)
                system.apply(of_r, t)  # t = A M r
                left = self._second_half.run()  # omega = t* r / t* t, x += omega M r, …, p
            if left == 0:
                break
        return left

    def in_a_launch(self, A: Any) -> Passes | None:
        at, second = self._first, self._second
        stages: Stages = [
            (Product, (at.p, at.v)),
            *((each, at) for each in _FIRST_HALF),
            (Product, (at.r, at.t)),
            *((each, second) for each in _SECOND_HALF),
        ]
        kept = at.x, at.r, at.p, at.shadow, at.v
        return self.space.iterations(A, stages, kept)


@with_shared_parts
def bicgstab(
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
    """Solve A x = b by bi-conjugate gradients, each step smoothed by one of minimal residual.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Any square matrix, real or complex.
    [rhs]
    [maxiter]
    M : as A, optional
        The preconditioner, M ≈ A⁻¹, applied from the right.
    [callback]
    [batched]

    Returns
    -------
    KrylovResult
        ``x``, ``status``, ``iterations`` and more; unpacks as ``x, info``.

    Raises
    ------
    [raises]

    See Also
    --------
    gmres : More storage, but the residual never grows.
    Bicgstab : The same with a workspace that is kept between solves.

    Notes
    -----
    The method is that of [1]_. Each update of the residual is rounded in proportion to what it
    adds. Where the sum of these bounds may have drifted from b - A x by more than √eps of the
    residual, and by a tenth of the tolerance, the true residual takes its place and the
    recursion's directions go on [2]_: large residuals on the way cost neither accuracy nor
    convergence. Where the recursion's residual meets the tolerance, or the recursion breaks down,
    the true residual is computed; if it is too large, the method begins again from it, as long as
    it shrank to half since the last time. The residual is scaled by its initial norm, and
    products with A by a power of two, so that inner products stay in range;
    they are summed in double precision.

    Storage: 6 vectors, 7 with M, beside b and the returned x. Two products with A (and M) an
    iteration, one more at the end and where a residual is replaced, which ``restarts`` does not
    count. A solve that does not converge returns the best of the iterates whose true residual was
    computed, x₀ among them; from the first time that it goes on from a true residual this takes
    one more vector.

    References
    ----------
    .. [1] H. A. van der Vorst, Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the
       solution of nonsymmetric linear systems, SIAM J. Sci. Stat. Comput. 13 (1992).
    .. [2] H. A. van der Vorst, Q. Ye, Residual replacement strategies for Krylov subspace
       iterative methods for the convergence of true residuals, SIAM J. Sci. Comput. 22 (2000).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import bicgstab
    >>> x, info = bicgstab(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    >>> print(x.round(6), info)
    [1. 2.] 0
    """
    return solve_once(
        Bicgstab, A, b, x0, M, rtol, atol, maxiter, callback, batched, raise_on_failure
    )


class Bicgstab(KrylovMethod):
    """BiCGSTAB with a workspace that is kept from solve to solve; see `bicgstab`.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Bicgstab
    >>> solver = Bicgstab(2.0 * np.eye(2))
    >>> print(solver(np.ones(2)).x, solver(np.zeros(2)).x)
    [0.5 0.5] [0. 0.]
    """

    _recursion_type = _BicgstabRecursion
