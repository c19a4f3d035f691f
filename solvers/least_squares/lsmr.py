"""Least squares by LSMR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..rows import scaled
from .bidiagonal import Bidiagonal, Estimates, Numbers, Rows, rotation
from .driver import Request, minimise
from .result import LeastSquaresResult, in_kind_of, with_shared_parts

__all__ = ["LsmrResult", "lsmr"]


@dataclass(frozen=True, eq=False)
class LsmrResult(LeastSquaresResult):
    """A least-squares solution, why `lsmr` stopped, and what it cost.

    It stands for SciPy's tuple ``x, istop, itn, normr, normar, norma, conda, normx``.

    Attributes
    ----------
    x : ndarray, the layout of b, (N,) or with as many columns or leading axes
    istop : int, or ndarray of int, (...)
        As of `LsqrResult`.
    itn : int, or ndarray of int, (...)
        Iterations.
    normr : float, or ndarray, (...)
        The true ‖b - A x‖.
    normar : float, or ndarray, (...)
        The true ‖A* (b - A x) - damp² (x - x0)‖.
    norma, conda : float, or ndarray, (...)
        Estimates of the Frobenius norm of A, and of the condition number of [A; damp I].
    normx : float, or ndarray, (...)
        ‖x‖.
    products : int
        Vectors multiplied by A or A*, those for true residuals among them.
    """

    _tuple = ("x", "istop", "itn", "normr", "normar", "norma", "conda", "normx")

    x: NDArray[Any] = field(repr=False)
    istop: Any
    itn: Any
    normr: Any
    normar: Any
    norma: Any
    conda: Any
    normx: Any
    products: int


@with_shared_parts
def lsmr(
    A: Any,
    b: Any,
    damp: float = 0.0,
    atol: float = 1e-6,
    btol: float = 1e-6,
    conlim: float = 1e8,
    maxiter: int | None = None,
    x0: Any = None,
    *,
    batched: str | None = None,
    raise_on_failure: bool = False,
) -> LsmrResult:
    """Minimise ‖b - A x‖² + damp² ‖x - x0‖² by minimal residuals of the normal equations.

    Parameters
    ----------
    [A, b, damp]
    [tolerances]
    maxiter : int, optional
        The largest number of iterations; the smaller of M and N by default.
    [x0, batched]

    Returns
    -------
    LsmrResult
        Unpacks as SciPy's tuple; ``converged``, ``products``.

    Raises
    ------
    [raises]

    See Also
    --------
    lsqr : ‖b - A x‖ falls faster, ‖A* (b - A x)‖ less evenly.

    Notes
    -----
    [1]_: the same iterates as MINRES for A* A x = A* b in exact arithmetic, from the
    bidiagonalisation of Golub and Kahan. ‖A* (b - A x)‖ falls in each step. Where A has not full
    rank, x is the solution of least length for x0 = 0. Storage: 2 vectors of M and 4 of N entries.
    One product with A and one with A* an iteration, and both once more at the end for true
    residuals.

    References
    ----------
    .. [1] D. C.-L. Fong and M. A. Saunders, LSMR: an iterative algorithm for sparse least-squares
       problems, SIAM J. Sci. Comput. 33 (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron import KroneckerProduct
    >>> from batchkron.solvers import lsmr
    >>> rng = np.random.default_rng(0)
    >>> A = KroneckerProduct(rng.standard_normal((8, 5)), rng.standard_normal((7, 4)))
    >>> b = rng.standard_normal((56, 3))
    >>> found = lsmr(A, b, atol=1e-12, btol=1e-12, maxiter=100, batched="columns")
    >>> print(found.istop, np.abs(found.x - np.linalg.pinv(A.to_dense()) @ b).max() < 1e-9)
    [2 2 2] True
    """
    request = Request(damp, atol, btol, conlim, maxiter, batched)

    def solve(A: Any, b: Any, x0: Any) -> LsmrResult:
        found = minimise(_Recurrence, A, b, x0, request, min)
        return LsmrResult(
            x=found.x,
            istop=found.istop,
            itn=found.iterations,
            normr=found.residual,
            normar=found.normal,
            norma=found.operator,
            conda=found.condition,
            normx=found.solution,
            products=found.products,
        )

    return in_kind_of(solve, A, b, x0).checked("lsmr", raise_on_failure)


class _Recurrence(Rows):
    """Two QR factorisations, of the bidiagonal matrix and of its triangle, a column a step.

    Names are those of the paper; a residual's norm needs a third one, of what it calls R-tilde.
    """

    def __init__(self, bases: Bidiagonal, damp: Numbers) -> None:
        count = len(damp)
        zero, one = np.zeros(count), np.ones(count)
        self.damp = damp
        self.x, self.h, self.h_bar = bases.v * 0, bases.v.copy(), bases.v * 0
        self.alpha_bar, self.zeta_bar = bases.alpha, bases.alpha * bases.beta
        self.rho, self.rho_bar, self.c_bar, self.s_bar = one, one, one, zero
        self.zeta = zero
        self.largest, self.least, self.operator = zero, np.full(count, np.inf), bases.alpha
        # of the residual's norm
        self.beta_dd, self.beta_d, self.rho_d = bases.beta, zero, one
        self.tau, self.theta, self.damping = zero, zero, zero

    def step(self, bases: Bidiagonal) -> Estimates:
        c_hat, s_hat, alpha_hat = rotation(self.alpha_bar, self.damp)
        c, s, rho = rotation(alpha_hat, bases.beta)
        theta_new, self.alpha_bar = s * bases.alpha, c * bases.alpha
        theta_bar, before = self.s_bar * rho, self.rho_bar
        self.c_bar, self.s_bar, self.rho_bar = rotation(self.c_bar * rho, theta_new)
        zeta_before, self.zeta = self.zeta, self.c_bar * self.zeta_bar
        self.zeta_bar = -self.s_bar * self.zeta_bar
        self._move(bases, theta_bar * rho / _safe(self.rho * before), rho, theta_new)
        self.rho = rho
        damped = self._residual(c_hat, s_hat, c, s, theta_bar, zeta_before)
        self.operator = np.hypot(self.operator, bases.beta)
        self.largest = np.maximum(self.largest, self.rho_bar)
        self.least = np.minimum(self.least, self.rho_bar)
        found = damped, np.abs(self.zeta_bar), self.operator, self.largest / self.least
        self.operator = np.hypot(self.operator, bases.alpha)
        return found

    def _move(self, bases: Bidiagonal, back: Numbers, rho: Numbers, theta: Numbers) -> None:
        """Update x along h_bar, and the directions h_bar and h."""
        self.h_bar = self.h - scaled(self.h_bar, back)
        self.x = self.x + scaled(self.h_bar, self.zeta / _safe(rho * self.rho_bar))
        self.h = bases.v - scaled(self.h, theta / _safe(rho))

    def _residual(
        self,
        c_hat: Numbers,
        s_hat: Numbers,
        c: Numbers,
        s: Numbers,
        theta_bar: Numbers,
        zeta_before: Numbers,
    ) -> Numbers:
        """Return the norm of the damped system's residual."""
        acute, check = c_hat * self.beta_dd, -s_hat * self.beta_dd
        hat, self.beta_dd = c * acute, -s * acute
        theta = self.theta
        c_tilde, s_tilde, rho_tilde = rotation(self.rho_d, theta_bar)
        self.theta, self.rho_d = s_tilde * self.rho_bar, c_tilde * self.rho_bar
        self.beta_d = -s_tilde * self.beta_d + c_tilde * hat
        self.tau = (zeta_before - theta * self.tau) / _safe(rho_tilde)
        last = (self.zeta - self.theta * self.tau) / _safe(self.rho_d)
        self.damping = np.hypot(self.damping, check)
        return np.hypot(np.hypot(self.damping, self.beta_d - last), self.beta_dd)


def _safe(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(numbers != 0, numbers, 1.0)
