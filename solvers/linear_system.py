"""A linear system A x = b, checked once, with products that write into given arrays."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, as_array, is_sparse
from batchkron.solvers.krylov_result import KrylovResult, SolveLog, Status

Vector: TypeAlias = NDArray[Any]
Product: TypeAlias = Callable[[Vector, Vector], None]

_PRECISIONS = "fdFD"


def norm(x: Vector) -> float:
    """Return ‖x‖₂ = (Σ |x_i|²)^½, also where the squares leave the range of the dtype.

    Parameters
    ----------
    x : ndarray, shape (N,)
        A vector; NaN and infinity propagate.

    Returns
    -------
    float
        The norm.

    Examples
    --------
    >>> import numpy as np
    >>> print(f"{norm(np.array([3e200, 4e200])):.6g}")
    5e+200
    """
    limits = np.finfo(x.dtype)
    square = float(np.vdot(x, x).real)
    if limits.tiny / limits.eps < square < math.inf:
        return math.sqrt(square)
    largest = float(np.abs(x).max()) if x.size else 0.0
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    scaled = x / largest
    return largest * math.sqrt(float(np.vdot(scaled, scaled).real))


def working_dtype(*operands: Any) -> np.dtype[Any]:
    """Return the dtype to solve in: ``np.result_type``, integers as float64, halves as float32.

    Parameters
    ----------
    *operands : object
        Operators and arrays; those without a ``dtype`` do not count.

    Returns
    -------
    numpy.dtype
        float32, float64, complex64 or complex128.

    Raises
    ------
    TypeError
        If the common dtype is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> print(working_dtype(np.ones(2, dtype=np.float32), np.ones(2, dtype=np.complex64)))
    complex64
    """
    dtypes = [o.dtype for o in operands if getattr(o, "dtype", None) is not None]
    common = np.result_type(*dtypes) if dtypes else np.dtype(np.float64)
    if common.kind in "biu":
        return np.dtype(np.float64)
    if common == np.float16:
        return np.dtype(np.float32)
    if common.char not in _PRECISIONS:
        raise TypeError(
            f"A and b have the common dtype {common}; expected float32, float64, complex64 or "
            "complex128. Convert them before the solve."
        )
    return common


def _takes_out(function: Callable[..., Any]) -> bool:
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def as_product(operator: Any, name: str, like: Vector) -> Product:
    """Return ``product(x, out)`` that writes operator · x into ``out``.

    Parameters
    ----------
    operator : object
        An array, a SciPy sparse array, a ``LinearOperator``, or an object with
        ``matvec(x)``, ``matvec(x, out=None)`` or ``apply(x, out=None)``.
    name : str
        What errors call it, ``"A"`` or ``"M"``.
    like : ndarray, shape (N,)
        A vector such as ``x`` and ``out``: NumPy's or CuPy's.

    Returns
    -------
    callable
        ``product(x, out)``, x and out of shape (N,); it allocates nothing where the operator
        takes ``out=``, or is a dense array.

    Raises
    ------
    TypeError
        If the object has no product, or is complex where the system is real.
    ValueError
        If its shape is not (N, N).
    """
    size, dtype = like.size, like.dtype
    shape = getattr(operator, "shape", (size, size))
    if tuple(shape) != (size, size):
        raise ValueError(
            f"{name} has shape {tuple(shape)}; expected ({size}, {size}), square and as long as b."
        )
    own = getattr(operator, "dtype", None)
    if own is not None and np.dtype(own).kind == "c" and dtype.kind != "c":
        raise TypeError(
            f"{name} has dtype {own}, but the system is real ({dtype}). "
            "Pass b as a complex array to solve in complex numbers."
        )
    if isinstance(operator, array_module(operator).ndarray):
        matrix = as_array(operator, name, array_module(like)).astype(dtype, copy=False)
        return lambda x, out: _discard(np.dot(matrix, x, out=out))
    if is_sparse(operator):
        return lambda x, out: np.copyto(out, operator @ x, casting="same_kind")
    matvec = getattr(operator, "matvec", None) or getattr(operator, "apply", None)
    if not callable(matvec):
        raise TypeError(
            f"{name} is a {type(operator).__name__}; expected an array, a sparse array, a "
            "LinearOperator or an object with matvec. Wrap a function in "
            "scipy.sparse.linalg.LinearOperator((N, N), matvec=function)."
        )
    if _takes_out(matvec) and (own is None or np.dtype(own) == dtype):
        return lambda x, out: _take(matvec(x, out=out), out)
    return lambda x, out: np.copyto(out, np.reshape(matvec(x), -1), casting="same_kind")


def _discard(_: object) -> None:
    return None


def _take(product: Any, out: Vector) -> None:
    """Copy a product into ``out``, unless it was written there as asked."""
    if product is not None and product is not out:
        np.copyto(out, np.reshape(product, -1), casting="same_kind")


def check_tolerances(rtol: float, atol: float) -> None:
    """Raise ValueError unless rtol and atol are finite numbers ≥ 0.

    Parameters
    ----------
    rtol, atol : float
        The relative and the absolute tolerance.

    Raises
    ------
    ValueError
        If one is negative or not finite.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not (isinstance(value, (int, float, np.number)) and 0.0 <= float(value) < math.inf):
            raise ValueError(f"{name} is {value!r}; expected a finite number >= 0.")


def check_count(name: str, value: Any, *, least: int = 1) -> int:
    """Return ``value`` as an int ≥ ``least``.

    Parameters
    ----------
    name : str
        What the error calls it.
    value : int
        The count.
    least : int
        The smallest one allowed.

    Returns
    -------
    int
        The count.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If it is below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}; expected an integer >= {least}.")
    if value < least:
        raise ValueError(f"{name} is {value}; expected an integer >= {least}.")
    return int(value)


class LinearSystem:
    """A x = b with its products counted: the part that every Krylov method shares.

    Parameters
    ----------
    A : object
        The operator, anything that `as_product` takes, (N, N).
    b : array_like, shape (N,) or (N, 1)
        The right-hand side; never written.
    M : object, optional
        The preconditioner, M ≈ A⁻¹, as A; None for the identity.
    dtype : numpy.dtype
        What the system is solved in.
    rtol, atol : float
        The solve stops at ‖b - A x‖ ≤ ``tolerance`` = max(rtol ‖b‖, atol).

    Raises
    ------
    ValueError
        If a shape or a tolerance is wrong.
    TypeError
        If a kind of object or a dtype is wrong.
    """

    def __init__(
        self, A: Any, b: Any, M: Any, dtype: np.dtype[Any], *, rtol: float, atol: float
    ) -> None:
        check_tolerances(rtol, atol)
        self.b = right_hand_side(b, dtype)
        self.size = self.b.size
        self.dtype = dtype
        self._product = as_product(A, "A", self.b)
        self._precondition = None if M is None else as_product(M, "M", self.b)
        self._M = M
        self.applications = 0
        self.preconditioner_applications = 0
        self.b_norm = norm(self.b)
        self.tolerance = max(float(rtol) * self.b_norm, float(atol))

    @property
    def preconditioned(self) -> bool:
        """Whether there is an M."""
        return self._precondition is not None

    def apply(self, x: Vector, out: Vector) -> None:
        """Write A x into ``out``."""
        self.applications += 1
        self._product(x, out)

    def precondition(self, x: Vector, out: Vector) -> Vector:
        """Return M x, written into ``out``; without M it is ``x`` itself."""
        if self._precondition is None:
            return x
        self.preconditioner_applications += 1
        self._precondition(x, out)
        return out

    def residual(self, x: Vector, out: Vector) -> float:
        """Write b - A x into ``out`` and return its norm."""
        self.apply(x, out)
        np.subtract(self.b, out, out=out)
        return norm(out)

    def start(self, x0: Any, x: Vector, residual: Vector) -> float:
        """Write the initial guess into ``x`` and its residual into ``residual``.

        Parameters
        ----------
        x0 : array_like of shape (N,) or (N, 1), "Mb", or None
            The guess; "Mb" is M b, None is zero. With b = 0 the answer, 0, is taken at once.
        x, residual : ndarray, shape (N,)
            Overwritten.

        Returns
        -------
        float
            The norm of the residual.
        """
        if isinstance(x0, str) and x0 != "Mb":
            raise ValueError(f"x0 is {x0!r}; expected an array, None or 'Mb'.")
        guess = x0
        if x0 is not None and not isinstance(x0, str):
            guess = initial_guess(x0, self.b)
        if guess is None or self.b_norm == 0.0:
            x.fill(0.0)
            np.copyto(residual, self.b)
            return self.b_norm
        np.copyto(x, self.precondition(self.b, x) if isinstance(guess, str) else guess)
        return self.residual(x, residual)

    def verdict(self, residual_norm: float) -> Status | None:
        """Return CONVERGED or NOT_FINITE if the true residual norm says so, else None."""
        if not math.isfinite(residual_norm):
            return Status.NOT_FINITE
        return Status.CONVERGED if residual_norm <= self.tolerance else None

    def result(
        self, x: Vector, status: Status, log: SolveLog, *, raise_on_failure: bool
    ) -> KrylovResult:
        """Return the result of a solve that stopped with ``status`` at ``x``.

        Parameters
        ----------
        x : ndarray, shape (N,)
            The solution.
        status : Status
            Why the solve stopped.
        log : SolveLog
            What was written down.
        raise_on_failure : bool
            Whether anything but CONVERGED raises.

        Returns
        -------
        KrylovResult
            The result.

        Raises
        ------
        RuntimeError
            If ``raise_on_failure`` and the status is not CONVERGED.
        """
        if raise_on_failure and status is not Status.CONVERGED:
            raise RuntimeError(
                f"The solve stopped with status '{status}' after {log.iterations} iterations at a "
                f"residual of {log.residual_norm:.3e}; expected at most {self.tolerance:.3e}. "
                f"{status.advice}"
            )
        return KrylovResult(
            x=x,
            status=status,
            residual_norm=log.residual_norm,
            residual_norms=np.array(log.residual_norms),
            iterations=log.iterations,
            restarts=log.restarts,
            applications=self.applications,
            preconditioner_applications=self.preconditioner_applications,
        )


def right_hand_side(b: Any, dtype: np.dtype[Any] | None = None) -> Vector:
    """Return b as a vector of shape (N,), without a copy where it is one already.

    Parameters
    ----------
    b : array_like, shape (N,) or (N, 1)
        The right-hand side.
    dtype : numpy.dtype, optional
        The dtype to convert to.

    Returns
    -------
    ndarray, shape (N,)
        The vector.

    Raises
    ------
    ValueError
        If b has another shape.
    TypeError
        If b is complex and ``dtype`` is not.
    """
    array = as_array(b, "b", array_module(b))
    if array.ndim != 1 and not (array.ndim == 2 and array.shape[1] == 1):
        raise ValueError(
            f"b has shape {array.shape}; expected (N,) or (N, 1), one right-hand side."
        )
    if dtype is not None:
        _refuse_complex("b", array, dtype)
        array = array.astype(dtype, copy=False)
    return array.reshape(-1)


def initial_guess(x0: Any, b: Vector) -> Vector:
    """Return x0 as a vector of shape (N,).

    Parameters
    ----------
    x0 : array_like, shape (N,) or (N, 1)
        The guess.
    b : ndarray, shape (N,)
        The right-hand side, of the dtype that the system is solved in.

    Returns
    -------
    ndarray, shape (N,)
        The vector; may share memory with x0.

    Raises
    ------
    ValueError
        If x0 has another shape.
    TypeError
        If x0 is complex and the system is real, or x0 is not where b is.
    """
    array = as_array(x0, "x0", array_module(b))
    if array.shape not in ((b.size,), (b.size, 1)):
        raise ValueError(f"x0 has shape {array.shape}; expected ({b.size},), the shape of b.")
    _refuse_complex("x0", array, b.dtype)
    return array.astype(b.dtype, copy=False).reshape(-1)


def _refuse_complex(name: str, array: Vector, dtype: np.dtype[Any]) -> None:
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(
            f"{name} has dtype {array.dtype}, but the system is real ({dtype}). "
            "Pass its real part, or A or b as complex arrays."
        )
