"""The stabilised method of bi-conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..products import Vector
from .iteration.docstrings import with_shared_parts
from .iteration.method import KrylovMethod
from .iteration.workspace_cache import solve_once
from .systems.result import KrylovResult
from .systems.system import LinearSystem
from .vectors.passes import Pass, Product, SharedVectors, Stages
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
BicgstabSecondUpdate = Pass(
    "BicgstabSecondUpdate", BicgstabVectors
)  # x += ω y, r -= ω t; rho, beta
BicgstabDirection = Pass("BicgstabDirection", BicgstabVectors)  # p = r + beta (p - omega v)

_FIRST_HALF = (BicgstabProject, BicgstabFirstUpdate)  # after v = A M p
_SECOND_HALF = (BicgstabSmoothing, BicgstabSecondUpdate, BicgstabDirection)  # after t = A M r


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
    iteration, one more at the end and where a residual is replaced, which ``restarts`` counts not.
    A solve that does not converge returns the best of the iterates whose true residual was
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
        Bicgstab,
        A,
        b,
        x0,
        batched=batched,
        rtol=rtol,
        atol=atol,
        maxiter=maxiter,
        M=M,
        callback=callback,
        raise_on_failure=raise_on_failure,
    )


@with_shared_parts
class Bicgstab(KrylovMethod):
    """The workspace of BiCGSTAB, kept from solve to solve.

    Parameters
    ----------
    [size]
    [place]
    batched : {None, "columns", "leading"}
        The layout of right-hand sides, as for `bicgstab`.

    Raises
    ------
    [size raises]

    Notes
    -----
    Storage: 6 vectors, 7 with M. It is allocated in the first solve, and again where the shape of b
    changes. One solve at a time, else RuntimeError.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Bicgstab
    >>> solver = Bicgstab(2.0 * np.eye(2))
    >>> print(solver(np.ones(2)).x, solver(np.zeros(2)).x)
    [0.5 0.5] [0. 0.]
    """

    _measures = True

    def _flags(self, preconditioned: bool) -> Flag:
        return super()._flags(preconditioned) | Flag.RETRIES

    def _allocate(self, preconditioned: bool) -> SharedVectors:
        x, r, p, v, t = (self._vector(name) for name in ("x", "r", "p", "v", "t"))
        shadow = self._vector("shadow")
        y = self._vector("y") if preconditioned else None
        # y is M p in the first half of an iteration, M r in the second
        self._first = BicgstabVectors(x, r, shadow, p, v, t, p if y is None else y)
        self._second = BicgstabVectors(x, r, shadow, p, v, t, r if y is None else y)
        self._operands = p, self._first.y, v, r, self._second.y, t  # of products
        self._shadow = self._passes((BicgstabBegin, BicgstabDirection), self._first)
        self._first_half = self._passes(_FIRST_HALF, self._first)
        self._second_half = self._passes(_SECOND_HALF, self._second)
        return SharedVectors(r=r, x=x, w=v)

    def _begin(self, system: LinearSystem) -> int:
        self._scale.run()
        return self._shadow.run()

    def _iterate(self, system: LinearSystem, step: int) -> int:
        p, y, v, r, other_y, t = self._operands
        system.precondition(p, y)
        system.apply(y, v)
        if not self._measured:
            self._measure()
        left = self._first_half.run()
        if left == 0:
            return 0
        system.precondition(r, other_y)
        system.apply(other_y, t)
        return self._second_half.run()

    def _whole_iterations(self, A: Any) -> Passes | None:
        at, second = self._first, self._second
        stages: Stages = [
            (Product, (at.p, at.v)),
            *((each, at) for each in _FIRST_HALF),
            (Product, (at.r, at.t)),
            *((each, second) for each in _SECOND_HALF),
        ]
        assert self._space is not None
        kept = at.x, at.r, at.p, at.shadow, at.v
        return self._space.iterations(A, stages, kept, flags=self._flag)
