"""Some eigenvalues of any operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, device_errors

from ..krylov.gmres import gmres
from ..krylov.systems.limits import check_count
from ..krylov.systems.result import Status
from ..products import Vector, norms_of
from ..rows import Multiplied, scaled, start_array
from .krylov_schur import RitzPairs, iterate_krylov, with_copies
from .result import EigenResult, finished

__all__ = ["check_k", "checked_tolerance", "eigs", "krylov_pairs"]

_ORDERS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "LM": lambda values: -np.abs(values),
    "SM": np.abs,
    "LR": lambda values: -values.real,
    "SR": lambda values: values.real,
    "LI": lambda values: -np.abs(values.imag),
    "SI": lambda values: np.abs(values.imag),
    "LIc": lambda values: -values.imag,
    "SIc": lambda values: values.imag,
    "LA": lambda values: -values.real,
    "SA": lambda values: values.real,
}
_INNER_RESTART = 100  # of gmres, in shift-invert; chosen by hand


def eigs(
    A: Any,
    k: int = 6,
    M: Any = None,
    sigma: complex | None = None,
    which: str = "LM",
    v0: Any = None,
    ncv: int | None = None,
    maxiter: int | None = None,
    tol: float | None = None,
    *,
    OPinv: Any = None,
    rng: int | np.random.Generator | None = 0,
    raise_on_failure: bool = False,
) -> EigenResult:
    """Compute k eigenvalues λ and eigenvectors v of A v = λ v, for any square A.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
    k : int
        How many, 1 … N.
    M : as A, optional
        With ``sigma``: a preconditioner, M ≈ (A - sigma I)⁻¹, of the inner solves. In SciPy's
        function of this name M is a mass matrix.
    sigma : number, optional
        Find eigenvalues near it, as those of (A - sigma I)⁻¹, which is applied by `gmres`.
    which : {"LM", "SM", "LR", "SR", "LI", "SI"}
        The largest or smallest modulus, real part, or imaginary part (its modulus, for a real A):
        of λ, with ``sigma`` of 1 / (λ - sigma). A conjugate pair of a real A may be cut. What lies
        inside the spectrum, as "SM" and "SI" mostly do, converges slowly, if at all, and others
        may come in its place: take ``sigma``.
    v0 : array_like, (N,), optional
        The vector to begin with; a random one by default.
    ncv : int, optional
        Vectors of the basis, k + 1 … N; max(2 k + 1, 20) by default.
    maxiter : int, optional
        The largest number of restarts; 10 N by default.
    tol : float, optional
        Of ‖A v - λ v‖ ≤ tol |λ| ‖v‖, with ``sigma`` tol max(|λ|, |λ - sigma|) ‖v‖; eps^(2/3) by
        default, 4e-11 in double precision. Residuals of 10 eps ‖A‖ count as none.
    OPinv : as A, optional
        (A - sigma I)⁻¹ itself, where it is known, in the place of inner solves.
    rng : int, Generator or None
        Of random vectors, for `numpy.random.default_rng`.
    raise_on_failure : bool
        Raise where a pair does not converge, instead of a `ConvergenceWarning`.

    Returns
    -------
    EigenResult
        ``values``, complex unless all are real, in the order of ``which``, ``vectors`` (N, k),
        ``residual_norms``, ``statuses``, ``products``; unpacks as ``values, vectors``.

    Raises
    ------
    ValueError
        If A is not one square operator, k, ncv, which or tol is out of range, or an option needs
        ``sigma`` and there is none.
    TypeError
        If an operand has no product with a vector, or A is distributed.
    RuntimeError
        If ``raise_on_failure`` and a pair did not converge.

    Notes
    -----
    The method of Krylov and Schur (G. W. Stewart, SIAM J. Matrix Anal. Appl. 23 (2002)). The true
    residuals are computed at the end, with k products (2 k for complex vectors of a real A), and
    decide what has converged. Storage: ncv + 2 vectors, and the k results; with ``sigma`` those of
    `gmres` with restart=100. One Krylov space does not tell how often an eigenvalue is repeated.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron import KroneckerSum
    >>> from batchkron.solvers import eigs
    >>> wind = 1.5 * np.eye(10, k=-1) - 2.0 * np.eye(10) + 0.5 * np.eye(10, k=1)
    >>> A = KroneckerSum(wind, wind)
    >>> values, vectors = eigs(A, 3, which="LR")
    >>> bool(np.abs(A @ vectors.real - vectors.real * values.real).max() < 1e-8)
    True
    >>> near = eigs(A, 1, sigma=-2.1)
    >>> print(near.status, near.values.round(6).real)
    converged [-2.091613]
    """
    with device_errors(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        result = krylov_pairs(
            A, k, M, sigma, which, v0, ncv, maxiter, tol, OPinv, rng, hermitian=False
        )
    return finished(result, "eigs", raise_on_failure)


def check_k(k: Any, size: int) -> int:
    """Return k; raise ValueError unless it is 1 … N."""
    count = check_count("k", k)
    if count > size:
        raise ValueError(f"k is {k}; expected at most N = {size}")
    return count


def krylov_pairs(
    A: Any,
    k: int,
    M: Any,
    sigma: complex | None,
    which: str,
    v0: Any,
    ncv: int | None,
    maxiter: int | None,
    tol: float | None,
    OPinv: Any,
    rng: Any,
    *,
    hermitian: bool,
) -> EigenResult:
    """Return eigenpairs by `iterate_krylov`; the parameters are those of `eigs` and `eigsh`."""
    generator = np.random.default_rng(rng)
    shift = np.complex64(0) if isinstance(sigma, (complex, np.complexfloating)) else None
    start = start_array(A, v0, "v0", 1, generator, shift)
    size, eps = start.shape[1], float(np.finfo(start.dtype).eps)
    k = check_k(k, size)
    own = ("LM", "SM", "LA", "SA", "BE") if hermitian else ("LM", "SM", "LR", "SR", "LI", "SI")
    if which not in own:
        raise ValueError(f"which is {which!r}; expected one of {', '.join(own)}")
    basis = min(max(2 * k + 1, 20), size) if ncv is None else check_count("ncv", ncv)
    if not min(k + 1, size) <= basis <= size:
        raise ValueError(f"ncv is {ncv}; expected {min(k + 1, size)} … {size}: k + 1 … N")
    restarts = 10 * size if maxiter is None else check_count("maxiter", maxiter)
    tol = eps ** (2 / 3) if tol is None else checked_tolerance(tol)
    if len(start) != 1 or not float(norms_of(start)[0]) > 0.0:
        raise ValueError("v0 has to be one vector, not zero")
    if sigma is None and (M is not None or OPinv is not None):
        raise ValueError("M and OPinv are of A - sigma I; pass sigma, too")
    direct = Multiplied(A, "A", start)
    inverse = None if sigma is None else _Inverse(direct, sigma, M, OPinv, 0.01 * tol, start)
    if which in ("LI", "SI") and start.dtype.kind == "c":
        which += "c"
    order = _both_ends if which == "BE" else lambda values: np.argsort(_ORDERS[which](values))
    options: dict[str, Any] = {
        "hermitian": hermitian,
        "inverse": inverse is not None,
        "size": basis,
        "tol": tol if inverse is None else 0.1 * tol,  # inner solves have errors, too
        "maxiter": restarts,
        "rng": generator,
    }
    pairs = iterate_krylov(inverse or direct, start, k, order, **options)
    if hermitian:
        ends = 2 if which == "BE" else 1
        pairs = with_copies(inverse or direct, pairs, order, ends, **options)
    return _checked(direct, pairs, sigma, inverse, tol, start.dtype)


def checked_tolerance(tol: float) -> float:
    """Return tol; raise ValueError unless it is in [0, 1)."""
    if not 0.0 <= tol < 1.0:
        raise ValueError(f"tol is {tol}; expected a number from 0 to 1")
    return float(tol)


def _both_ends(values: NDArray[Any]) -> NDArray[np.intp]:
    """Return indices of values, in turn from the upper and from the lower end."""
    order = np.argsort(values)
    turns = np.empty_like(order)
    turns[::2], turns[1::2] = order[::-1][: (len(order) + 1) // 2], order[: len(order) // 2]
    return turns


class _Shifted:
    """A - sigma I, an operator of `gmres`."""

    def __init__(self, product: Multiplied, sigma: complex, like: Vector) -> None:
        self.shape, self.dtype = (like.shape[1], like.shape[1]), like.dtype
        self._product, self._sigma = product, like.dtype.type(sigma)
        self.norm = abs(sigma)  # a lower bound of that of A

    def matvec(self, x: Vector) -> Vector:
        """Return A x - sigma x."""
        image = self._product(x[None])
        sizes = norms_of(array_module(x).stack([image[0], x]))
        self.norm = float(np.fmax(self.norm, sizes[0] / sizes[1]))
        return image[0] - self._sigma * x  # type: ignore[no-any-return]


class _Inverse:
    """(A - sigma I)⁻¹ of rows, by `gmres` or by an operator that is given."""

    def __init__(
        self, product: Multiplied, sigma: complex, M: Any, OPinv: Any, rtol: float, like: Vector
    ) -> None:
        if OPinv is not None and M is not None:
            raise ValueError("OPinv needs no M; pass one of them")
        self.preconditioned = 0
        self._given = None if OPinv is None else Multiplied(OPinv, "OPinv", like)
        self.shifted, self._M = _Shifted(product, sigma, like), M
        eps = float(np.finfo(like.dtype).eps)
        self._rtol, self._usable = max(rtol, 10 * eps), eps**0.5
        self.failure: Status | None = None  # of an inner solve, which ends the iteration

    def __call__(self, rows: Vector) -> Vector:
        if self._given is not None:
            return self._given(rows)
        out = array_module(rows).empty_like(rows)
        for row, target in zip(rows, out, strict=True):
            solved = gmres(self.shifted, row, rtol=self._rtol, restart=_INNER_RESTART, M=self._M)
            self.preconditioned += solved.preconditioner_applications
            target[...] = solved.x
            if not solved.converged and not solved.residual_norm <= self._usable:
                singular = solved.status in (Status.BREAKDOWN, Status.STAGNATED)
                self.failure = Status.BREAKDOWN if singular else solved.status
                target[...] = np.nan
        return out  # type: ignore[no-any-return]


def _checked(
    product: Multiplied,
    pairs: RitzPairs,
    sigma: complex | None,
    inverse: _Inverse | None,
    tol: float,
    dtype: np.dtype[Any],
) -> EigenResult:
    """Return the result with true residuals, which decide what has converged."""
    values, rows, failure, restarts, norm = pairs
    if inverse is not None and inverse.failure is not None:
        failure = inverse.failure
    if sigma is not None:
        values = sigma + 1.0 / values
    if rows.dtype.kind == "c" and dtype.kind != "c":
        images = product(rows.real.copy()) + 1j * product(rows.imag.copy())
    else:
        images = product(rows)
    norms = norms_of(images - scaled(rows, values)) / norms_of(rows)
    known = norm if inverse is None else inverse.shifted.norm
    largest = np.abs(values).max(initial=known)
    sizes = np.abs(values)
    if sigma is not None:
        sizes = np.maximum(sizes, np.abs(values - sigma))
    limits = np.maximum(tol * sizes, 10 * float(np.finfo(dtype).eps) * largest)
    failed = failure or Status.STAGNATED
    statuses = np.array([Status.CONVERGED if one else failed for one in norms <= limits], object)
    return EigenResult(
        values=values,
        vectors=rows.T,
        residual_norms=norms,
        statuses=statuses,
        iterations=restarts,
        products=product.products,
        preconditioner_applications=0 if inverse is None else inverse.preconditioned,
    )
