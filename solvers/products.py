"""Products with operators of all supported types; products of vectors, also if ranks share them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, as_array, is_sparse, to_host
from batchkron.attributes import attribute
from batchkron.backends import host_backend
from batchkron.operators import Operator

Vector: TypeAlias = NDArray[Any]
Product: TypeAlias = Callable[[Vector, Vector], object]
ProductHook: TypeAlias = Callable[[], AbstractContextManager[Any]]

_PRECISIONS = "fdFD"  # dtype characters of the supported dtypes
# Size of a vector in bytes from which the array that an operator returns is used without a copy.
# Passing its address to the compiled vector operations takes 1.5 µs; copying less takes less time
# (measured in 40 iterations of cg).
_MIN_READ_IN_PLACE = 256 << 10
# Elements from which an inner product is the core's: BLAS has one thread for fewer than 10 000.
_MIN_OWN_PRODUCT = 1 << 13


class Products:
    """Counts products, of right-hand sides and of linear solves, and calls a hook around them.

    ``count``: number of products so far.
    ``hook``: returns a context manager, inside of which a product is done. It is not called for
      products that a CUDA graph or a call of the core does together with other work.
    """

    def __init__(self) -> None:
        self.count = 0
        self.hook: ProductHook | None = None

    def do(self, product: Callable[..., object], *arguments: Any) -> None:
        """Do a product, inside of the hook's context if there is a hook."""
        if self.hook is None:
            product(*arguments)
            return
        with self.hook():
            product(*arguments)

    def hooked(self, product: Callable[[Vector, Vector], object]) -> Callable[..., None]:
        """Return ``product(x, out)`` with the hook."""
        return lambda x, out: self.do(product, x, out)


def dot(x: Vector, y: Vector) -> complex:
    """Return (x, y) = Σ conj(x_i) y_i, of long vectors on the CPU with the same bits always.

    BLAS has threads of its own, which compete with those of the products before and after for the
    processors, and adds up what each of them has.

    Parameters
    ----------
    x, y : ndarray, shape (N,)
        Vectors; NaN and infinity propagate.
    """
    if type(x) is np.ndarray and x.size >= _MIN_OWN_PRODUCT:
        dtype = x.dtype if y.dtype == x.dtype else np.result_type(x, y)
        if dtype.char in _PRECISIONS:
            given = [as_array(each, "vectors").astype(dtype, copy=False) for each in (x, y)]
            rows = [np.ascontiguousarray(each) for each in given]
            return host_backend().inner_product(*rows)
    return complex(array_module(x).vdot(x, y))


def norm(x: Vector) -> float:
    """Return ‖x‖₂ = (Σ |x_i|²)^½, without overflow or underflow of the squares.

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
    square = dot(x, x).real
    if limits.tiny / limits.eps < square < math.inf:
        return math.sqrt(square)
    largest = float(np.abs(x).max()) if x.size else 0.0
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    unit = max(largest, float(limits.tiny))  # the reciprocal of a subnormal number may overflow
    scaled = x / unit
    return unit * math.sqrt(float(np.vdot(scaled, scaled).real))


def norms_of(rows: Vector) -> NDArray[np.float64]:
    """Return the norms (k,) of rows (k, N), without overflow or underflow of the squares."""
    if rows.size == 0:
        return np.zeros(len(rows))
    largest = to_host(abs(rows).max(axis=1), "norms").astype(np.float64)
    least = float(np.finfo(rows.dtype).tiny)  # as in `norm`
    unit = np.where((largest > 0) & np.isfinite(largest), np.maximum(largest, least), 1.0)
    module = array_module(rows)
    scaled = rows / module.asarray(unit.astype(rows.real.dtype))[:, None]
    squares = (scaled.real**2).sum(axis=1, dtype=np.float64)
    if scaled.dtype.kind == "c":
        squares = squares + (scaled.imag**2).sum(axis=1, dtype=np.float64)
    return unit * np.sqrt(to_host(squares, "norms"))  # type: ignore[no-any-return]


def working_dtype(*operands: Any) -> np.dtype[Any]:
    """Return the dtype to solve in: ``np.result_type``, integers as float64, halves as float32.

    ``*operands``: operators and arrays; those without a ``dtype`` are ignored.

    Result: float32, float64, complex64 or complex128. Raises `TypeError` if there is no such common
    dtype.

    Examples
    --------
    >>> import numpy as np
    >>> print(working_dtype(np.ones(2, dtype=np.float32), np.ones(2, dtype=np.complex64)))
    complex64
    """
    dtypes = [o.dtype for o in operands if attribute(o, "dtype") is not None]
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


def refuse_complex(name: str, given: object, dtype: np.dtype[Any]) -> None:
    """Raise TypeError if an operand is complex and the system is real.

    ``name``: the operand's name in the error text.
    ``given``: the operand's dtype, if it has one.
    ``dtype``: the dtype of the system.

    Raises `TypeError` if ``given`` is complex and ``dtype`` is real.
    """
    if given is not None and np.dtype(given).kind == "c" and dtype.kind != "c":  # type: ignore[call-overload]
        raise TypeError(
            f"{name} has dtype {given}, but the system is real ({dtype}). Pass its real part, or "
            "A or b as complex arrays to solve in complex numbers."
        )


def as_product(operator: Any, name: str, like: Vector) -> Product:
    """Return ``product(x, out)`` that writes operator · x into ``out``.

    ``operator``: an array (N, N), or one matrix for each system; a SciPy sparse array, a
      ``LinearOperator``, or an object with ``matvec(x)``, ``matvec(x, out=None)`` or
      ``apply(x, out=None)``. If it has no ``apply``, several vectors are multiplied by its
      ``matmat``, or by ``matvec`` one by one.
    ``name``: the operator's name in error texts, ``"A"`` or ``"M"``.
    ``like`` (ndarray, shape (..., N)): a NumPy or CuPy array with the shape and dtype of ``x`` and
      ``out``; the leading axes are systems.

    Result: ``product(x, out)``, with x and out of the shape of ``like``. It allocates nothing if
    the operator accepts ``out=``, or is a dense array. Raises `TypeError` if the object has no
    product, or is complex and the system is real. `ValueError` if its shape is not (N, N).
    """
    size, dtype = like.shape[-1], like.dtype
    shape = tuple(attribute(operator, "shape", (size, size)))
    if shape != (size, size) and shape != (*like.shape, size):
        raise ValueError(
            f"{name} has shape {shape}; expected ({size}, {size}), square and as long as b"
            + (f", or {(*like.shape, size)}, a matrix for each system." if len(shape) > 2 else ".")
        )
    own = attribute(operator, "dtype")
    refuse_complex(name, own, dtype)
    if isinstance(operator, array_module(operator).ndarray):
        return _dense(as_array(operator, name, array_module(like)).astype(dtype, copy=False), like)
    if is_sparse(operator):
        return lambda x, out: np.copyto(
            out.reshape(-1, size).T, operator @ x.reshape(-1, size).T, casting="same_kind"
        )
    if isinstance(operator, Operator) and np.result_type(operator.dtype, dtype) == dtype:
        return operator.apply_flat if like.ndim > 1 else operator.matvec
    apply, matvec = (attribute(operator, part) for part in ("apply", "matvec"))
    product = apply if callable(apply) and (like.ndim > 1 or not callable(matvec)) else matvec
    if not callable(product):
        raise TypeError(
            f"{name} is a {type(operator).__name__}; expected an array, a sparse array, a "
            "LinearOperator or an object with matvec. Wrap a function in "
            "scipy.sparse.linalg.LinearOperator((N, N), matvec=function)."
        )
    if like.ndim > 1 and product is matvec:
        return _for_systems(operator, size)
    if _takes_out(product) and (own is None or np.dtype(own) == dtype):
        return lambda x, out: _take(product(x, out=out), out)
    return lambda x, out: _put(product(x), out)


def adjoint_product(operator: Any, like: Vector) -> Product | None:
    """Return ``product(x, out)`` for A^H, or None if the operator has no such product.

    ``operator``: an operator that `as_product` takes. Arrays, sparse arrays and operators of
      batchkron have an adjoint; for other objects their ``rmatvec`` is used.
    ``like`` (ndarray, shape (N,)): a vector such as x.
    """
    try:
        if is_sparse(operator) or isinstance(operator, array_module(like).ndarray):
            return as_product(operator.conj().T, "the adjoint", like)
        if isinstance(operator, Operator):
            return as_product(operator.H, "the adjoint", like)
        rmatvec = attribute(operator, "rmatvec")
        if not callable(rmatvec):
            return None
        rmatvec(like)  # SciPy's LinearOperator always has the method, which may only raise
    except (NotImplementedError, TypeError, ValueError):
        return None
    return lambda x, out: np.copyto(out, rmatvec(x), casting="same_kind")


def allocating_product(operator: Any, like: Vector) -> Callable[[Vector], Vector] | None:
    """Return ``matvec`` of an operator if using its returned arrays without a copy is faster.

    This is so for a single vector of at least `_MIN_READ_IN_PLACE` bytes, if the operator returns a
    new array for each product.

    ``operator``: an operator that `as_product` takes.
    ``like`` (ndarray, shape (..., N)): an array such as x.

    Result: ``product(x)``; None if the product of `as_product` is as fast.
    """
    if like.ndim > 1 or is_sparse(operator) or isinstance(operator, Operator):
        return None
    module = array_module(like)
    if isinstance(operator, module.ndarray) or (module is np and like.nbytes < _MIN_READ_IN_PLACE):
        return None
    matvec = attribute(operator, "matvec")
    return matvec if callable(matvec) and not _takes_out(matvec) else None


def _dense(matrix: Vector, like: Vector) -> Product:
    if like.ndim == 1:
        return lambda x, out: np.dot(matrix, x, out=out)
    if matrix.ndim == 2:
        return lambda x, out: np.matmul(x, matrix.T, out=out)
    return lambda x, out: np.matmul(matrix, x[..., None], out=out[..., None])


def _for_systems(operator: Any, size: int) -> Product:
    """Return the product of an operator without `apply` with several vectors."""
    matmat = attribute(operator, "matmat")

    def each(x: Vector, out: Vector) -> None:
        rows, targets = x.reshape(-1, size), out.reshape(-1, size)
        for row, target in zip(rows, targets, strict=True):
            _put(operator.matvec(row), target)

    def together(x: Vector, out: Vector) -> None:
        product = matmat(x.reshape(-1, size).T)
        np.copyto(out.reshape(-1, size), product.T, casting="same_kind")

    return together if callable(matmat) else each


def _takes_out(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    # Faster than inspect.signature.
    if code is not None and not hasattr(function, "__wrapped__"):
        return "out" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _take(product: Any, out: Vector) -> None:
    """Copy a product into ``out``, unless the operator has written it there."""
    if product is not None and product is not out:
        _put(product, out)


def is_alike(product: Any, out: Vector) -> bool:
    """Whether a product is an array of the type, dtype and shape of ``out``."""
    return bool(
        type(product) is type(out) and product.dtype == out.dtype and product.shape == out.shape
    )


def _put(product: Any, out: Vector) -> None:
    """Copy a product into ``out``; usual ones without the cost of NumPy's dispatch."""
    if is_alike(product, out):
        out[...] = product
    elif product is None:
        raise TypeError(f"matvec returned None; expected the product, {out.size} numbers")
    else:
        np.copyto(out, np.reshape(product, out.shape), casting="same_kind")


class Ranks(Protocol):
    """What a method needs of the ranks that share its vectors (`batchkron.distributed`)."""

    @property
    def rank(self) -> int:
        """The number of this rank."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    @property
    def capturable(self) -> bool:
        """Whether what ranks do on a device may be captured in a CUDA graph."""
        ...

    def allreduce(self, values: NDArray[Any], *, maxima: bool = False) -> None:
        """Replace numbers by their sums over the ranks, or maxima, with the same bits on each."""
        ...

    def gather_into(self, values: Vector, gathered: Vector) -> None:
        """Write the values (n,) of all ranks to ``gathered``, (size, n), on a device."""
        ...


class OnRanks:
    """An operator of solvers whose vectors may be spread over ranks."""

    communicator: Ranks | None = None


def ranks_of(operator: Any) -> Ranks | None:
    """Return the ranks that share the vectors of an operator; None if it has them alone."""
    known = isinstance(operator, (Operator, OnRanks))
    ranks: Ranks | None = operator.communicator if known else None
    return None if ranks is None or ranks.size == 1 else ranks


def ranks_of_problem(problem: Any) -> Ranks | None:
    """Return the ranks that share the state of a problem in time; None if it has it alone.

    Its ``communicator`` counts if that is one of `batchkron.distributed`; otherwise those of the
    operators that it holds. Operators that are made for each question are not looked at.
    """
    given = attribute(problem, "communicator")
    if given is not None and _has_maxima(given):
        return None if given.size == 1 else given
    held = getattr(problem, "__dict__", {})
    found = (ranks_of(held.get(name)) for name in ("operator", "implicit_operator"))
    return next((ranks for ranks in found if ranks is not None), None)


def _has_maxima(ranks: Any) -> bool:
    """Whether an object's ``allreduce`` is that of `Ranks`; mpi4py's is not."""
    try:
        return "maxima" in inspect.signature(ranks.allreduce).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def sum_over(ranks: Ranks | None, values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers, (n,), or their sums over the ranks; they are overwritten."""
    if ranks is not None:
        ranks.allreduce(values)
    return values


def max_over(ranks: Ranks | None, value: float) -> float:
    """Return a number, or the largest one of all ranks."""
    if ranks is None:
        return value
    values = np.array([value], np.float64)
    ranks.allreduce(values, maxima=True)
    return float(values[0])


def any_over(ranks: Ranks | None, value: bool) -> bool:
    """Return whether a condition holds on any rank."""
    return bool(max_over(ranks, float(value)))


def dot_over(ranks: Ranks | None, x: Vector, y: Vector) -> complex:
    """Return (x, y) = Σ conj(x_i) y_i of vectors of which each rank has some elements."""
    return complex(sum_over(ranks, np.array([dot(x, y)]))[0])


def norm_over(ranks: Ranks | None, x: Vector) -> float:
    """Return ‖x‖₂ of a vector of which each rank has some elements; `norm` if one has all.

    Every rank has the same result, so that all of them decide alike.
    """
    if ranks is None:
        return norm(x)
    limits = np.finfo(x.dtype)
    square = dot_over(ranks, x, x).real
    if limits.tiny / limits.eps < square < math.inf:
        return math.sqrt(square)
    return float(norms_over(ranks, x[None])[0])


def norms_over(ranks: Ranks | None, rows: Vector) -> NDArray[np.float64]:
    """Return the norms (k,) of vectors (k, n) of which each rank has n elements.

    Squares neither overflow nor underflow.
    """
    norms = norms_of(rows)
    if ranks is None:
        return norms
    largest = norms.copy()
    ranks.allreduce(largest, maxima=True)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    squares = (norms / unit) ** 2
    ranks.allreduce(squares)
    return unit * np.sqrt(squares)
