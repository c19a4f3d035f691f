"""The minimal residual method for Hermitian operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from batchkron.arrays import to_host

from ..products import Vector, norms_over, sum_over
from .iteration.docstrings import with_shared_parts
from .iteration.method import KrylovMethod
from .iteration.recursion import Recursion
from .iteration.workspace_cache import solve_once
from .systems.result import KrylovResult
from .systems.system import LinearSystem
from .vectors.passes import Pass
from .vectors.space import Field, Flag, Progress

_ROUNDINGS = 8  # of the root of rounding, below which ‖A r‖ / (‖A‖ ‖r‖) counts as zero


class MinresVectors(NamedTuple):
    """x; Lanczos' v and the one before it; w = A z; the direction d and the one before it, d2.

    z = M v and the next z; the residual r. Without M z is v, next is previous and r is v.
    """

    x: Vector
    v: Vector
    previous: Vector
    w: Vector
    d: Vector
    d2: Vector
    z: Vector
    next: Vector
    r: Vector


MinresBegin = Pass("MinresBegin", MinresVectors)  # v = r
MinresFirstNorm = Pass("MinresFirstNorm", MinresVectors)  # beta² = v* z
MinresDiagonal = Pass("MinresDiagonal", MinresVectors)  # alpha = z* w / beta²
MinresLanczos = Pass("MinresLanczos", MinresVectors)  # previous = w/β - α/β v - β/β₀ previous
MinresNextNorm = Pass("MinresNextNorm", MinresVectors)  # next beta² = previous* next; rotates
MinresUpdate = Pass("MinresUpdate", MinresVectors)  # d2 = (z/β - ρ₂ d - ρ₃ d2) / ρ, x += τ d2


class _MinresRecursion(Recursion):
    """Lanczos' recursion with a rotation of its matrix in each iteration."""

    measures = True
    flags = Flag.PERSISTS

    def allocate(self, preconditioned: bool) -> tuple[Vector, Vector, Vector]:
        space = self.space
        names = ("x", "v", "previous", "w", "d", "d2")
        x, v, previous, w, d, d2 = (space.vector(name) for name in names)
        z, following, r = v, previous, v
        if preconditioned:
            z, following, r = (space.vector(name) for name in ("z", "next", "r"))
        at = MinresVectors(x, v, previous, w, d, d2, z, following, r)
        # an iteration overwrites what the one before the last left
        exchanged = MinresVectors(x, previous, v, w, d2, d, following, z, r)
        self._turns = at, exchanged
        self._copy = space.passes((MinresBegin,), at)
        self._norm = space.passes((MinresFirstNorm,), at)
        lanczos = (MinresDiagonal, MinresLanczos)
        last = (MinresNextNorm, MinresUpdate) if preconditioned else (*lanczos, MinresUpdate)
        if preconditioned:
            self._lanczos = [space.passes(lanczos, turn) for turn in self._turns]
        self._last = [space.passes(last, turn) for turn in self._turns]
        return x, r, w

    def begin(self, system: LinearSystem) -> int:
        at = self._turns[0]
        super().begin(system)
        self._copy.run()  # v = r
        system.precondition(at.v, at.z)  # z = M v
        return self._norm.run()  # beta² = v* z

    def iterate(self, system: LinearSystem, steps: range) -> int:
        left = -1
        for step in steps:
            turn = step % 2
            at = self._turns[turn]
            system.apply(at.z, at.w)  # w = A z
            self.measure()
            if system.preconditioned:
                self._lanczos[turn].run()  # the next v, where the previous one is
                system.precondition(at.previous, at.next)  # the next z = M v
            left = self._last[turn].run()  # without M the next v; its norm, a rotation, d and x
            if left == 0:
                break
        return left

    def recognise(self, system: LinearSystem, progress: Any, scalars: Any) -> None:
        """Say which of the systems that could not go on are at a least-squares solution."""
        ended = np.isin(progress[0], (Progress.BREAKDOWN, Progress.STAGNATED))
        if ended.any():
            gradients = self._gradients(system, scalars)
            bound = _ROUNDINGS * np.sqrt(np.finfo(self.space.dtype).eps)
            optimal = gradients <= bound * scalars[:, Field.OPERATOR_NORM]
            progress[0, ended & optimal] = Progress.LEAST_SQUARES

    def _gradients(self, system: LinearSystem, scalars: Any) -> Any:
        """Return ‖A r‖ / ‖r‖ of each true residual in the units of products; with M, of M A."""
        at = self._turns[0]
        r, z, w = self.measured_residual(system), at.z, at.w
        rows = (-1, system.b.shape[-1])

        def scale(vectors: Vector, factors: Any) -> None:
            given = self.space.module.asarray(factors.astype(r.real.dtype))
            vectors.reshape(rows)[...] *= given[:, None]

        scale(r, 1 / scalars[:, Field.RESIDUAL])
        system.precondition(r, z)
        system.apply(z, w)
        scale(w, scalars[:, Field.OPERATOR])
        if not system.preconditioned:
            lengths = [norms_over(self.space.ranks, each.reshape(rows)) for each in (w, r)]
            return lengths[0] / lengths[1]
        image = at.next
        system.precondition(w, image)
        squares = [
            to_host((left.conj() * right).real.reshape(rows).sum(axis=1, dtype=float), "products")
            for left, right in ((w, image), (r, z))
        ]
        for each in squares:
            sum_over(self.space.ranks, each)
        return np.sqrt(squares[0] / squares[1])


@with_shared_parts
def minres(
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
    """Solve A x = b, A Hermitian, minimising ‖b - A x‖_M over x₀ + K_k(M A, M r₀).

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Hermitian, definite or not; that it is Hermitian is not checked.
    [rhs]
    [maxiter]
    M : as A, optional
        The preconditioner, M ≈ |A|⁻¹, Hermitian and positive definite. The residual is minimal in
        its norm, (r* M r)^½; the test is on the 2-norm all the same.
    [callback]
    [batched]

    Returns
    -------
    KrylovResult
        ``x``, ``status``, ``iterations`` and more; unpacks as ``x, info``. A vector v with
        v* M v < 0 ends a solve as ``Status.INDEFINITE``. A system without a solution ends as
        ``Status.LEAST_SQUARES``, with ``info`` > 0.

    Raises
    ------
    [raises]

    See Also
    --------
    cg : For positive definite A: a vector or two less.
    Minres : The same with a workspace that is kept between solves.

    Notes
    -----
    The method is that of [1]_. Where the recursion's residual meets the tolerance, the true one
    is computed and decides; if it is larger, the method begins again from it, as long as it
    shrank to half since the last time. So it does where the bound of the steps' rounding,
    ε ‖A‖ Σ ‖step‖, exceeds 32 times the recursion's residual, which then says little of b - A x.

    A singular system without a solution ends as ``Status.LEAST_SQUARES`` at one of its
    least-squares solutions. There A r = 0 (with M, where the norm of the residual is that of M,
    A M r = 0). The recursion, which knows ‖A r‖ [2]_, stops where it is rounding beside ‖A‖ ‖r‖,
    or below √ε ‖A‖ ‖r‖ and the next step's rounding is more than it takes off the residual, or
    where that is about as much of a step that is longer than all before it together; the status
    says that ‖A r‖ ≤ 8 √ε ‖A‖ ‖r‖ was seen to hold of the true r = b - A x.

    Storage: 6 vectors, 9 with M, beside b and the returned x, and one more from the first time that
    the method begins again: of the iterates whose true residual was computed, x₀ among them, the
    best one is returned. One product with A (and M) an iteration, and one more at the end; where
    that is no solution, two more (and two with M) for ‖A r‖.

    References
    ----------
    .. [1] C. C. Paige, M. A. Saunders, Solution of sparse indefinite systems of linear equations,
       SIAM J. Numer. Anal. 12 (1975).
    .. [2] S.-C. T. Choi, C. C. Paige, M. A. Saunders, MINRES-QLP: a Krylov subspace method for
       indefinite or singular symmetric systems, SIAM J. Sci. Comput. 33 (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import minres
    >>> x, info = minres(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([5.0, 4.0]))
    >>> print(x.round(6), info)
    [1. 2.] 0
    """
    return solve_once(Minres, A, b, x0, M, rtol, atol, maxiter, callback, batched, raise_on_failure)


class Minres(KrylovMethod):
    """MINRES with a workspace that is kept from solve to solve; see `minres`.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Minres
    >>> solver = Minres(2.0 * np.eye(2))
    >>> print(solver(np.ones(2)).x, solver(np.zeros(2)).x)
    [0.5 0.5] [0. 0.]
    """

    _recursion_type = _MinresRecursion
