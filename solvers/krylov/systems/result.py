"""What a Krylov solver returns: the solution, why it stopped, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Status(StrEnum):
    """Why a Krylov solver stopped; ``advice`` says what to do about it.

    Only ``CONVERGED`` means that the true residual ‖b - A x‖ was computed and found small enough.

    Examples
    --------
    >>> from batchkron.solvers import Status
    >>> print(Status.STAGNATED)
    stagnated
    >>> Status.STAGNATED.advice.split(":")[0]
    'The true residual stopped shrinking'
    """

    CONVERGED = "converged"
    MAX_ITERATIONS = "max-iterations"
    STAGNATED = "stagnated"
    BREAKDOWN = "breakdown"
    NOT_FINITE = "not-finite"
    INDEFINITE = "indefinite"
    LEAST_SQUARES = "least-squares"

    @property
    def advice(self) -> str:
        """What the status means for the caller, in a sentence or two."""
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: "The true residual is within the tolerance: nothing to do.",
    Status.MAX_ITERATIONS: (
        "The residual was still shrinking: raise maxiter or restart, loosen rtol, "
        "or give a preconditioner M."
    ),
    Status.STAGNATED: (
        "The true residual stopped shrinking: rtol may be below what the dtype can reach on "
        "this system; otherwise raise restart or give a better preconditioner M."
    ),
    Status.BREAKDOWN: (
        "The search space was exhausted before the tolerance was met: A or M is singular to "
        "working precision, or b is outside the range of A; check boundary conditions and M. "
        "bicgstab can also break down on a regular system: use gmres there."
    ),
    Status.NOT_FINITE: (
        "NaN or infinity appeared in b, in x0, or in a product with A or M: check the operator "
        "and the data; x is the best iterate whose residual was finite."
    ),
    Status.INDEFINITE: (
        "A or M is not positive definite, which cg needs (and minres, of M): use minres for a "
        "Hermitian A, gmres or bicgstab for any, or solve with -A if A is negative definite."
    ),
    Status.LEAST_SQUARES: (
        "A x = b has no solution that the working precision tells: A is singular and b outside "
        "its range, or the condition of A exceeds 1/√ε (3000 in single precision, 7·10⁷ in "
        "double). x has the least residual but for that (with M, in the norm (r* M r)^½). Check "
        "boundary conditions, take the part of b in the null space of A out of b, or compute in "
        "double precision."
    ),
}

_WORST_FIRST = (
    Status.NOT_FINITE,
    Status.BREAKDOWN,
    Status.INDEFINITE,
    Status.STAGNATED,
    Status.MAX_ITERATIONS,
    Status.LEAST_SQUARES,
    Status.CONVERGED,
)


def worst_of(statuses: Iterable[Status]) -> Status:
    """Return the worst of several statuses, in the order of `KrylovResult.status`."""
    return min(statuses, key=_WORST_FIRST.index, default=Status.CONVERGED)


def raise_if_failed(result: KrylovResult, rtol: float, atol: float) -> None:
    """Raise RuntimeError, with what may help, unless a solve converged."""
    if result.converged:
        return
    statuses = () if result.statuses is None else result.statuses.ravel()
    failed = sum(status is not Status.CONVERGED for status in statuses)
    which = "The solve" if len(statuses) < 2 else f"{failed} of {len(statuses)} systems"
    raise RuntimeError(
        f"{which} stopped with status '{result.status}' after {np.max(result.iterations)} "
        f"iterations at a residual of {np.max(result.residual_norm):.3e}; expected at most "
        f"max(rtol ‖b‖, atol) with rtol = {rtol:g}, atol = {atol:g}. {result.status.advice}"
    )


_INFO = {Status.CONVERGED: 0, Status.BREAKDOWN: -1, Status.NOT_FINITE: -2, Status.INDEFINITE: -3}


@dataclass(frozen=True, eq=False)
class KrylovResult:
    """A solution of A x = b, why the solver stopped there, and what it cost.

    It stands for SciPy's pair, so ``x, info = gmres(A, b)`` and ``gmres(A, b)[0]`` work.

    Parameters
    ----------
    x : ndarray, of b's shape, (N,) for b of shape (N, 1); a tensor if b is one
        The solution; without one the iterate of the least residual that was computed: of x₀,
        where the method began again or took the true residual, and of the last iterate.
    status : Status
        Why it stopped; of several systems the worst, in the order not-finite, breakdown,
        indefinite, stagnated, max-iterations, least-squares, converged.
    residual_norm : float, or ndarray of float64, shape (...)
        The true residual ‖b - A x‖ of ``x``, of each system.
    residual_norms : ndarray of float64, shape (iterations + 1,) or (most iterations + 1, ...)
        The initial true residual norm, then the solver's estimate after each inner iteration; of
        several systems NaN after a system's last. Of a solve that did not converge the last one is
        ``residual_norm``, of the x that is returned.
    iterations : int, or ndarray of int, shape (...)
        Inner iterations, over all restarts.
    restarts : int, or ndarray of int, shape (...)
        Times the search space was thrown away and begun again.
    applications : int
        Products with A; one with several vectors counts once.
    preconditioner_applications : int
        Products with M, likewise.
    statuses : ndarray of Status, shape (...), or None
        Of each system; None for a single one.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import gmres
    >>> result = gmres(np.diag([1.0, 2.0, 4.0]), np.ones(3))
    >>> print(result.status, result.iterations, result.x)
    converged 3 [1.   0.5  0.25]
    >>> x, info = result
    >>> info
    0
    """

    x: NDArray[Any] = field(repr=False)
    status: Status
    residual_norm: Any
    residual_norms: NDArray[np.float64] = field(repr=False)
    iterations: Any
    restarts: Any
    applications: int
    preconditioner_applications: int
    statuses: NDArray[Any] | None = field(default=None, repr=False)

    @property
    def converged(self) -> bool:
        """Whether ‖b - A x‖ ≤ max(rtol ‖b‖, atol) was seen to hold, for all systems."""
        return self.status is Status.CONVERGED

    @property
    def info(self) -> int:
        """SciPy's code: 0 converged, > 0 the iterations of a run that did not, < 0 a breakdown.

        > 0 also for a least-squares solution, which does not meet the tolerance.
        """
        return _INFO.get(self.status, max(int(np.max(self.iterations, initial=1)), 1))

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.info))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return (self.x, self.info)[index]
