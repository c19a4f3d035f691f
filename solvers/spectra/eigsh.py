"""Some eigenvalues of a Hermitian operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.arrays import device_errors

from ..krylov.systems.limits import check_count
from ..products import Vector
from ..rows import Multiplied, orthonormalise, start_array
from .block_iteration import BlockProblem, iterate_block
from .eigs import check_k, checked_tolerance, krylov_pairs
from .result import EigenResult, finished

__all__ = ["eigsh"]

_SMOOTHINGS = 2  # times that M is applied to random vectors before the first product with A


def eigsh(
    A: Any,
    k: int = 6,
    M: Any = None,
    sigma: float | None = None,
    which: str | None = None,
    v0: Any = None,
    ncv: int | None = None,
    maxiter: int | None = None,
    tol: float | None = None,
    *,
    B: Any = None,
    OPinv: Any = None,
    rng: int | np.random.Generator | None = 0,
    raise_on_failure: bool = False,
) -> EigenResult:
    """Compute k eigenvalues λ and eigenvectors v of A v = λ v, or A v = λ B v, A Hermitian.

    With a preconditioner M ≈ A⁻¹ those next to 0 of a definite A take a few products each:
    ``eigsh(A, 4, M=preconditioners.make("auto", A))``. Without one, those at the ends of the
    spectrum are found by Lanczos's method, and those near sigma by it for (A - sigma I)⁻¹.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Hermitian, which is not checked.
    k : int
        How many, 1 … N.
    M : as A, optional
        The preconditioner, M ≈ A⁻¹, Hermitian and definite, of any sign; with ``sigma`` one of the
        inner solves, M ≈ (A - sigma I)⁻¹, any. In SciPy's function of this name M is a mass matrix,
        which here is B, as in `lobpcg`.
    sigma : float, optional
        Find eigenvalues near it.
    which : {"LM", "SM", "LA", "SA", "BE"}, optional
        The largest or smallest modulus, the algebraically largest or smallest, or from both ends;
        with ``sigma`` of 1 / (λ - sigma). "LM" by default, with M or B "SM". These allow "SA",
        "LA", and, where all eigenvalues have one sign, "SM".
    v0 : array_like, (N,) or (N, m), optional
        The vector to begin with; with M or B a block of m ≥ k vectors, of which more than k help
        where eigenvalue k + 1 is near. Random by default.
    ncv : int, optional
        Vectors of the basis without M or B; max(2 k + 1, 20) by default.
    maxiter : int, optional
        The largest number of restarts, 10 N by default; with M or B of iterations, by default
        max(1000, N / 10).
    tol : float, optional
        Of ‖A v - λ B v‖ ≤ tol |λ| ‖B v‖, with ``sigma`` of tol max(|λ|, |λ - sigma|). The error of
        λ is about the square of it, relative to gaps. By default it is eps^½ with M or B, 1.5e-8 in
        double precision, and eps^(2/3) without. Residuals of 10 eps ‖A‖ count as none.
    B : as A, optional
        Hermitian and positive definite.
    OPinv : as A, optional
        (A - sigma I)⁻¹ itself, where it is known.
    rng : int, Generator or None
        Of random vectors, for `numpy.random.default_rng`.
    raise_on_failure : bool
        Raise where a pair does not converge, instead of a `ConvergenceWarning`.

    Returns
    -------
    EigenResult
        ``values``, ascending, ``vectors`` (N, k), orthonormal (Vᴴ B V = I), ``residual_norms``,
        ``statuses``, ``products``; unpacks as ``values, vectors``.

    Raises
    ------
    ValueError
        If A is not one square operator, an option is out of range, or options exclude each other.
    TypeError
        If an operand has no product with a vector, or A is distributed.
    RuntimeError
        If ``raise_on_failure`` and a pair did not converge.

    See Also
    --------
    lobpcg : SciPy's interface of the method with M and B.
    batchkron.eigh : All eigenvalues, of Kronecker products and their sums, by factors.

    Notes
    -----
    With M or B: LOBPCG, see `lobpcg`, from random vectors to which M is applied twice. Storage: 10
    k vectors, and 5 k with B. Without: thick-restart Lanczos, see `eigs`; 2 ncv + k + 4 vectors. A
    Krylov space does not tell how often an eigenvalue is repeated: another one, orthogonal to what
    is found, looks for copies until none comes before the last of the pairs, which takes about as
    many products again.

    Examples
    --------
    >>> from batchkron.problems import gallery
    >>> from batchkron.solvers import eigsh, preconditioners
    >>> A = gallery.make("diffusion-2d", level=4).operator
    >>> found = eigsh(A, 4, M=preconditioners.make("auto", A), tol=1e-4)
    >>> print(found.status, found.values.round(4), found.products < 60)
    converged [-78.9703 -49.3482 -49.3482 -19.7392] True
    """
    with device_errors(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if sigma is None and (M is not None or B is not None):
            if OPinv is not None or ncv is not None:
                raise ValueError("OPinv and ncv are for calls without M and B, or with sigma")
            result = _by_blocks(A, k, M, B, which or "SM", v0, maxiter, tol, rng)
        else:
            if B is not None:
                raise ValueError("B and sigma exclude each other; lobpcg(A, X, B=B) has no sigma")
            chosen = which or "LM"
            result = krylov_pairs(
                A, k, M, sigma, chosen, v0, ncv, maxiter, tol, OPinv, rng, hermitian=True
            )
    return finished(result.ordered(np.argsort(result.values)), "eigsh", raise_on_failure)


def _by_blocks(
    A: Any,
    k: int,
    M: Any,
    B: Any,
    which: str,
    v0: Any,
    maxiter: int | None,
    tol: float | None,
    rng: Any,
) -> EigenResult:
    largest = {"SA": False, "LA": True, "SM": None}
    if which not in largest:
        raise ValueError(f"which is {which!r}; expected 'SM', 'SA' or 'LA' with M or B")
    start = start_array(A, v0, "v0", k, rng, B)
    size, eps = start.shape[1], float(np.finfo(start.dtype).eps)
    k = check_k(k, size)
    if len(start) < k:
        raise ValueError(f"v0 has {len(start)} columns; expected at least k = {k}")
    maximum = max(1000, size // 10) if maxiter is None else check_count("maxiter", maxiter)
    rtol = eps**0.5 if tol is None else checked_tolerance(tol)
    problem = BlockProblem(
        A=Multiplied(A, "A", start),
        B=Multiplied(B, "B", start),
        M=Multiplied(M, "M", start),
        constraints=start[:0],
        largest=largest[which],
        rtol=rtol,
        atol=0.0,
    )
    return iterate_block(problem, start if v0 is not None else _smooth(problem, start), k, maximum)


def _smooth(problem: BlockProblem, rows: Vector) -> Vector:
    """Return M M times random rows: they have more of the eigenvectors that M knows best."""
    none, given = rows[:0], rows
    for _ in range(0 if problem.M.is_identity else _SMOOTHINGS):
        images = problem.M(rows)
        rows = orthonormalise(images, images, none, none)[0]
    return rows if len(rows) == len(given) else given
