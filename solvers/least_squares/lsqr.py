"""Least squares by LSQR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..products import norms_of
from ..rows import scaled
from .bidiagonal import Bidiagonal, Estimates, Numbers, Rows, rotation
from .driver import Request, minimise
from .result import LeastSquaresResult, in_kind_of, with_shared_parts

__all__ = ["LsqrResult", "lsqr"]


@dataclass(frozen=True, eq=False)
class LsqrResult(LeastSquaresResult):
    """A least-squares solution, why `lsqr` stopped, and what it cost.

    It stands for SciPy's tuple ``x, istop, itn, r1norm, r2norm, anorm, acond, arnorm, xnorm, var``.

    Attributes
    ----------
    x : ndarray, the layout of b, (N,) or with as many columns or leading axes
    istop : int, or ndarray of int, (...)
        0: zero is the solution; 1: A x = b within the tolerances; 2: least squares within atol; 3:
        the condition number has reached conlim; 4, 5, 6: as 1, 2, 3 with rounding in the place of
        the tolerance; 7: the limit of iterations; 8: the true residuals do not meet what 1 or 2
        said; 9: NaN or infinity in b or in a product.
    itn : int, or ndarray of int, (...)
        Iterations.
    r1norm, r2norm : float, or ndarray, (...)
        The true ‖b - A x‖, and (‖b - A x‖² + damp² ‖x - x0‖²)^½.
    anorm, acond : float, or ndarray, (...)
        Estimates, from below, of the Frobenius norm and condition number of [A; damp I].
    arnorm : float, or ndarray, (...)
        The true ‖A* (b - A x) - damp² (x - x0)‖.
    xnorm : float, or ndarray, (...)
        ‖x‖.
    var : ndarray, the layout of x
        With ``calc_var`` estimates of the diagonal of (A* A + damp² I)⁻¹, otherwise zero.
    products : int
        Vectors multiplied by A or A*, those for true residuals among them.
    """

    _tuple = ("x", "istop", "itn", "r1norm", "r2norm", "anorm", "acond", "arnorm", "xnorm", "var")

    x: NDArray[Any] = field(repr=False)
    istop: Any
    itn: Any
    r1norm: Any
    r2norm: Any
    anorm: Any
    acond: Any
    arnorm: Any
    xnorm: Any
    var: NDArray[Any] = field(repr=False)
    products: int


@with_shared_parts
def lsqr(
    A: Any,
    b: Any,
    damp: float = 0.0,
    atol: float = 1e-6,
    btol: float = 1e-6,
    conlim: float = 1e8,
    iter_lim: int | None = None,
    calc_var: bool = False,
    x0: Any = None,
    *,
    batched: str | None = None,
    raise_on_failure: bool = False,
) -> LsqrResult:
    """Minimise ‖b - A x‖² + damp² ‖x - x0‖² by conjugate gradients of the normal equations.

    Parameters
    ----------
    [A, b, damp]
    [tolerances]
    iter_lim : int, optional
        The largest number of iterations; 2 N by default.
    calc_var : bool
        Whether to estimate the diagonal of (A* A + damp² I)⁻¹.
    [x0, batched]

    Returns
    -------
    LsqrResult
        Unpacks as SciPy's tuple; ``converged``, ``products``.

    Raises
    ------
    [raises]

    See Also
    --------
    lsmr : ‖A* r‖ falls in each step, so that it may be stopped early.

    Notes
    -----
    [1]_: the same iterates as conjugate gradients of A* A x = A* b in exact arithmetic, from the
    bidiagonalisation of Golub and Kahan. ‖b - A x‖ falls in each step. Where A has not full rank, x
    is the solution of least length for x0 = 0. Storage: 2 vectors of M and 3 of N entries, and one
    more with ``calc_var``. One product with A and one with A* an iteration, and both once more at
    the end for true residuals.

    References
    ----------
    .. [1] C. C. Paige and M. A. Saunders, LSQR: an algorithm for sparse linear equations and sparse
       least squares, ACM Trans. Math. Softw. 8 (1982).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron import KroneckerProduct
    >>> from batchkron.solvers import lsqr
    >>> rng = np.random.default_rng(0)
    >>> A = KroneckerProduct(rng.standard_normal((8, 5)), rng.standard_normal((7, 4)))
    >>> b = rng.standard_normal(56)
    >>> found = lsqr(A, b, atol=1e-12, btol=1e-12)
    >>> print(found.istop, np.abs(found.x - np.linalg.pinv(A.to_dense()) @ b).max() < 1e-9)
    2 True
    """
    request = Request(damp, atol, btol, conlim, iter_lim, batched)

    def solve(A: Any, b: Any, x0: Any) -> LsqrResult:
        method = _VarianceRecurrence if calc_var else _Recurrence
        found = minimise(method, A, b, x0, request, lambda rows, columns: 2 * columns)
        return LsqrResult(
            x=found.x,
            istop=found.istop,
            itn=found.iterations,
            r1norm=found.residual,
            r2norm=found.damped,
            anorm=found.operator,
            acond=found.condition,
            arnorm=found.normal,
            xnorm=found.solution,
            var=np.zeros(found.x.shape, found.x.real.dtype) if found.more is None else found.more,
            products=found.products,
        )

    return in_kind_of(solve, A, b, x0).checked("lsqr", raise_on_failure)


class _Recurrence(Rows):
    """The QR factorisation of the bidiagonal matrix by rotations, a column a step."""

    def __init__(self, bases: Bidiagonal, damp: Numbers) -> None:
        self.damp = damp
        self.x, self.w = bases.v * 0, bases.v.copy()
        self.rho_bar, self.phi_bar = bases.alpha, bases.beta
        self.operator = bases.alpha  # ‖B‖, as far as it is known
        self.inverse = np.zeros(len(damp))  # ‖(w_1 / rho_1, …)‖
        self.damping = np.zeros(len(damp))  # the part of the residual that damp makes

    def step(self, bases: Bidiagonal) -> Estimates:
        # the row of damp is rotated into the diagonal first
        c, s, rho_bar = rotation(self.rho_bar, self.damp)
        psi, phi_bar = s * self.phi_bar, c * self.phi_bar
        c, s, rho = rotation(rho_bar, bases.beta)
        theta, self.rho_bar = s * bases.alpha, -c * bases.alpha
        phi, self.phi_bar = c * phi_bar, s * phi_bar
        unit = np.where(rho > 0, rho, 1.0)
        self.inverse = np.hypot(self.inverse, norms_of(self.w) / unit)
        self._use(unit)
        self.x = self.x + scaled(self.w, phi / unit)
        self.w = bases.v - scaled(self.w, theta / unit)
        self.damping = np.hypot(self.damping, psi)
        self.operator = np.hypot(np.hypot(self.operator, bases.beta), self.damp)
        damped = np.hypot(self.phi_bar, self.damping)
        normal = bases.alpha * np.abs(c * self.phi_bar)
        found = damped, normal, self.operator, self.operator * self.inverse
        self.operator = np.hypot(self.operator, bases.alpha)
        return found

    def _use(self, rho: Numbers) -> None:
        """Do nothing with w / rho."""


class _VarianceRecurrence(_Recurrence):
    """The same, with the diagonal of (A* A + damp² I)⁻¹, Σ |w_k / rho_k|²."""

    def __init__(self, bases: Bidiagonal, damp: Numbers) -> None:
        super().__init__(bases, damp)
        self.variances = abs(self.w) * 0

    def _use(self, rho: Numbers) -> None:
        self.variances = self.variances + abs(scaled(self.w, 1.0 / rho)) ** 2
