"""Functions of any operator times vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, device_errors

from ..krylov.systems.limits import check_count, check_tolerances
from ..krylov.systems.result import Status, worst_of
from ..products import Vector, norm
from .exponential import exponential
from .restarted_arnoldi import any_function, inverse_root
from .result import FunctionResult, Outcome, finished, lift_of
from .scalar_functions import NAMES
from .two_pass_lanczos import hermitian_function
from .vector_product import VectorProduct, columns_of

__all__ = ["matrix_function"]


def matrix_function(
    f: Any,
    A: Any,
    b: Any,
    *,
    hermitian: bool = False,
    t: complex = 1.0,
    rtol: float = 1e-8,
    atol: float = 0.0,
    restart: int = 50,
    maxiter: int | None = None,
    raise_on_failure: bool = False,
) -> FunctionResult:
    """Compute f(t A) b for an operator A, from its products with vectors.

    Parameters
    ----------
    f : {"exp", "sqrt", "inverse-sqrt"} or callable
        The function, or one that returns f(X) of a small matrix X, such as `scipy.linalg.logm`.
        Square roots are the principal ones: A has no eigenvalues on the negative real axis, and for
        "inverse-sqrt" none at 0.
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
    b : array_like, (N,) or (N, K)
        Columns are taken one by one.
    hermitian : bool
        Whether A is Hermitian, which is not checked: then Lanczos's method takes fewer products and
        vectors.
    t : number
    rtol, atol : float
        The estimated error, ‖x - f(t A) b‖ ≤ max(rtol ‖x‖, atol), ends the method.
    restart : int
        The most vectors that are kept at a time.
    maxiter : int, optional
        The largest dimension of the Krylov space, over all restarts; 10 N by default, 2000 at most
        where f is a callable, or A Hermitian.
    raise_on_failure : bool
        Raise where a column does not converge, instead of a `ConvergenceWarning`.

    Returns
    -------
    FunctionResult
        ``x``, ``status``, ``error``, ``steps``, ``products``. x is NaN where f is not defined.

    Raises
    ------
    ValueError
        If A is not one square operator, shapes do not agree, an option is out of range, or f is a
        function of numbers, such as `numpy.exp`.
    TypeError
        If an operand has no product with a vector, or A is distributed.
    RuntimeError
        If ``raise_on_failure`` and a column did not converge.

    See Also
    --------
    expm_multiply : exp(A) B with SciPy's arguments, at several times.
    phi_multiply : φ-functions.
    KroneckerSum.expm_apply, batchkron.eigh : By factors, where the structure has it.

    Notes
    -----
    Of Hermitian operators f(t A) b ≈ ‖b‖ V f(t T) e_1 with the tridiagonal T of Lanczos's method;
    where more than ``restart`` vectors are needed, they are computed once more in a second pass,
    with as many products. Otherwise with Arnoldi's method: exp in substeps [1]_, square roots with
    restarts by the integral of resolvents [2]_, other functions with restarts [3]_. "sqrt" of an
    operator that is not Hermitian is A^(-½) (A b). Storage: restart + 4 vectors.

    References
    ----------
    .. [1] R. B. Sidje, Expokit, ACM Trans. Math. Softw. 24 (1998).
    .. [2] A. Frommer, S. Güttel and M. Schweitzer, Efficient and stable Arnoldi restarts for matrix
       functions based on quadrature, SIAM J. Matrix Anal. Appl. 35 (2014).
    .. [3] M. Eiermann and O. G. Ernst, A restarted Krylov subspace method for the evaluation of
       matrix functions, SIAM J. Numer. Anal. 44 (2006).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron import KroneckerProduct, Identity
    >>> from batchkron.solvers import matrix_function
    >>> K = KroneckerProduct([[2.0, 1.0], [1.0, 2.0]], np.diag([1.0, 4.0, 9.0])) + Identity(6)
    >>> b = np.arange(6.0)
    >>> root = matrix_function("sqrt", K, b, hermitian=True)
    >>> twice = matrix_function("sqrt", K, root.x, hermitian=True)
    >>> print(root.status, np.abs(twice.x - K @ b).max() < 1e-6)
    converged True
    """
    if not callable(f) and f not in NAMES:
        raise ValueError(f"f is {f!r}; expected {', '.join(map(repr, NAMES))} or a function")
    check_tolerances(rtol, atol)
    check_count("restart", restart, minimum=2)
    if not np.ndim(t) == 0 or not np.isfinite(t):
        raise ValueError(f"t is {t!r}; expected a finite number")
    if any_foreign(b):
        limits: dict[str, Any] = {"rtol": rtol, "atol": atol, "maxiter": maxiter}
        given = partial(matrix_function, f, hermitian=hermitian, t=t, restart=restart, **limits)
        return _in_kind(partial(given, raise_on_failure=raise_on_failure), A, b)
    with device_errors(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        rows, product, shape = columns_of(A, b, "b", t)
        most = max(10 * rows.shape[1], 1)
        most = min(most, 2000) if callable(f) or hermitian else most
        maximum = most if maxiter is None else check_count("maxiter", maxiter)
        eps = float(np.finfo(rows.dtype).eps)
        options = max(rtol, 10 * eps), atol, restart, maximum
        found = [_of_vector(f, product, row, hermitian, t, *options) for row in rows]
        result = _packed(found, shape, product.products, rows)
    return finished(result, "matrix_function", raise_on_failure)


def _of_vector(
    f: Any,
    product: VectorProduct,
    b: Vector,
    hermitian: bool,
    t: complex,
    rtol: float,
    atol: float,
    restart: int,
    maxiter: int,
) -> Outcome:
    """Return f(t A) b by the method for f and A."""
    lift = 1.0 if f == "exp" and not hermitian else lift_of(norm(b), b.dtype)
    if lift != 1.0:
        limits = rtol, min(atol * lift, 1e300), restart, maxiter
        lifted = b * b.dtype.type(lift)
        return _of_vector(f, product, lifted, hermitian, t, *limits).times(1.0 / lift)
    if hermitian:
        return hermitian_function(product, b, f, t, rtol, atol, restart, maxiter)
    if f == "exp":
        return exponential(product, b, t, rtol, restart, atol=atol)
    if callable(f):
        return any_function(product, b, f, t, rtol, atol, restart, maxiter)

    def scaled(x: Vector) -> Vector:
        image: Vector = product(x) * b.dtype.type(t)
        return image

    start = scaled(b) if f == "sqrt" else b
    return inverse_root(scaled, start, rtol, atol, restart, maxiter)


def _packed(
    found: list[Outcome], shape: tuple[int, ...], products: int, rows: Vector
) -> FunctionResult:
    module = array_module(rows)
    x = module.stack([one.row for one in found]) if found else rows
    errors, steps = (np.array([getattr(one, name) for one in found]) for name in ("error", "steps"))
    single = len(shape) == 1
    return FunctionResult(
        x=module.ascontiguousarray(x.T).reshape(shape),
        status=worst_of([one.failure or Status.CONVERGED for one in found]),
        error=float(errors[0]) if single else errors,
        steps=int(steps[0]) if single else steps,
        products=products,
    )


def _in_kind(compute: Callable[[Any, Any], FunctionResult], A: Any, b: Any) -> FunctionResult:
    """Compute with views of foreign arrays, and return x of their kind."""
    found: list[FunctionResult] = []

    def computed(A: Any, b: Any) -> Any:
        found.append(compute(A, b))
        return found[0].x

    x = in_kind(computed, common_kind(A=A, b=b), A, b)
    return replace(found[0], x=x)
