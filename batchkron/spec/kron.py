"""Validation of calls with Kronecker products, and the checks that all entry points share."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.sparse import issparse

from batchkron.arrays import (
    array_module,
    as_array,
    as_list,
    is_aligned,
    is_masked,
    is_plain,
    is_scalar,
    native_dtype,
    on_host_layout,
    overlaps_itself,
    refuse_masked,
    to_host,
)
from batchkron.spec.identities import (
    Factor,
    IdentityFactor,
    identity_matrix,
    merged_identities,
    multiple_of_identity,
    sizes_of,
    skipped_modes,
)

Array = NDArray[Any]
"""An array of NumPy or CuPy."""

Accumulation = Literal["auto", "owner", "atomic"]
"""How products with the same output are added, see `BatchSpec`."""

Precision = Literal["tf32", "tf32x3"]
"""How a device may multiply float32, see `batchkron.gekmm`."""

SUPPORTED_DTYPES = (
    np.dtype(np.float32),
    np.dtype(np.float64),
    np.dtype(np.complex64),
    np.dtype(np.complex128),
)
"""The dtypes that the backends have kernels for."""

_LARGEST = {char: float(np.finfo(char).max) for char in "fdFD"}


@dataclass(frozen=True, slots=True)
class KronSpec:
    """The shape of one multiply by a Kronecker product, y[o, :, i] = (A_1 ⊗ … ⊗ A_d) x[o, :, i].

    x has the shape ``(outer, prod(inputs), inner)`` and y ``(outer, prod(outputs), inner)``, both
    C-contiguous; factor k is a matrix of shape ``(outputs[k], inputs[k])``. ``precision`` says how
    much less precisely than in full a device may multiply float32; None: in full. ``skipped`` says
    which factors are identities, of which calls give the size only; if empty, none is. The first
    and the last one are not: they are part of ``outer`` and ``inner``.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    outer: int
    inner: int
    dtype: np.dtype[Any]
    precision: Precision | None = None
    skipped: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class KronCall:
    """One validated call of gekmm or gemkm: the spec, its arrays and the shape of the result.

    ``factors[k]`` is ``(..., outputs[k], inputs[k])``, transposed where that is needed, or the size
    of an identity that is skipped, and ``x`` is C-contiguous. ``systems`` is the shape to which the
    leading axes of x and the factors broadcast, () if no factor has leading axes. ``given`` are the
    factors and x as the user passed them: an output must not overlap them.
    """

    spec: KronSpec
    factors: list[Any]
    systems: tuple[int, ...]
    x: Array
    alpha: complex
    beta: complex
    y: Array | None
    given: list[Array]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """A validated batch list, y[outputs[b]] += weights[b] (⊗_k pools[k][ids[b, k]]) x[inputs[b]].

    ``pools``: pool of mode k, shape (systems or 1, count_k, P_k, Q_k), C-contiguous, of dtype
      ``dtype``. A system is one of several operators with the same indices; the first axis has
      length 1 if all systems share the matrices.
    ``factor_ids`` (ndarray of int64, shape (products, modes)).
    ``inputs``, ``outputs`` (ndarray of int64, shape (products,)).
    ``weights`` (ndarray of dtype ``dtype``, shape (systems or 1, products)).
    ``num_inputs``, ``num_outputs``: number of input and output blocks.
    ``batch_shape``: the leading axes that the user gave, whose product is the number of systems; ()
      for one.
    ``accumulation`` ({"auto", "owner", "atomic"}): how products with the same output are added: by
      one thread that owns the output, or with atomic additions.
    ``dtype``: of pools, weights and the result.
    ``identity`` (tuple of ndarray of bool, each (count_k,)): which matrices of each pool are
      identities that the multiply skips.
    """

    pools: tuple[Array, ...]
    factor_ids: NDArray[np.int64]
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    weights: Array
    num_inputs: int
    num_outputs: int
    batch_shape: tuple[int, ...]
    accumulation: Accumulation
    dtype: np.dtype[Any]
    identity: tuple[NDArray[np.bool_], ...] = field(repr=False)

    @property
    def systems(self) -> int:
        """The number of systems of this structure."""
        return math.prod(self.batch_shape)

    @property
    def input_size(self) -> int:
        """Elements of one input block."""
        return math.prod(pool.shape[3] for pool in self.pools)

    @property
    def output_size(self) -> int:
        """Elements of one output block."""
        return math.prod(pool.shape[2] for pool in self.pools)


def compute_dtype(*arrays: Array) -> np.dtype[Any]:
    """Return the dtype in which a product of arrays is computed.

    It is `numpy.result_type`, with integers and booleans taken as float64 and float16 as float32.

    Raises `TypeError` for dtypes without kernels, such as longdouble, object or strings.
    """
    dtypes: list[np.dtype[Any]] = []
    for array in arrays:
        if array.dtype.kind in "biu":
            dtypes.append(np.dtype(np.float64))
        elif array.dtype == np.float16:
            dtypes.append(np.dtype(np.float32))
        else:
            dtypes.append(array.dtype)
    if all(dtype.kind in "fc" for dtype in dtypes):
        dtype = native_dtype(np.result_type(*dtypes))
        if dtype in SUPPORTED_DTYPES:
            return dtype
    names = ", ".join(sorted({str(array.dtype) for array in arrays}))
    raise TypeError(
        f"expected arrays of float32, float64, complex64 or complex128 (or integers or float16, "
        f"which are converted), got {names}; convert them with astype first"
    )


def check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return a dtype that kernels exist for.

    Raises `TypeError` for any other.
    """
    wanted = np.dtype(dtype)
    if wanted not in SUPPORTED_DTYPES:
        raise TypeError(f"dtype is {wanted}; expected float32, float64, complex64 or complex128")
    return wanted


def check_precision(precision: str | None) -> Precision | None:
    """Return the precision of float32 multiplies on a device after checking its name.

    Raises `ValueError` for anything but None and the names of `Precision`.
    """
    if precision is not None and precision not in get_args(Precision):
        raise ValueError(
            f'precision is {precision!r}; expected None (full float32), "tf32x3" or "tf32"'
        )
    return precision  # type: ignore[return-value]


def ready(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return the array as the kernels read it: of ``dtype``, C-contiguous and aligned."""
    array = array_module(array).ascontiguousarray(array, dtype)
    return array if is_plain(array) else array.copy()


def given_factors(factors: Iterable[Factor] | Factor, more: Sequence[Factor]) -> list[Factor]:
    """Return the list of matrices that an operator is given as arguments ``factors, *more``.

    The user may pass one sequence of matrices, several matrices as arguments, or a single matrix.
    An array of up to two dimensions is a matrix. One of more dimensions holds matrices along its
    first axis, and so does a 1-D array of objects. Rows of plain numbers, [[1, 2], [3, 4]], are a
    matrix.

    Raises `TypeError` if several arguments are given and the first is a sequence of matrices.
    """
    rank = getattr(factors, "ndim", None)
    holds_matrices = isinstance(factors, np.ndarray) and rank == 1 and factors.dtype == np.object_
    if rank is not None and not holds_matrices and (more or rank <= 2):
        return [cast(ArrayLike, factors), *more]
    given: list[Factor] = as_list(factors, "factors[0]" if more else "factors")
    if given and all(isinstance(row, Sequence) and all(map(np.isscalar, row)) for row in given):
        return [cast(ArrayLike, given), *more]
    if more:
        raise TypeError(
            f"the first argument is a sequence of {len(given)} matrices, and {len(more)} more "
            "follow; put all of them into one sequence, or pass each as an argument"
        )
    return given


def dense_factors(factors: Any) -> Any:
    """Return a list or tuple of factors with sparse ones of SciPy as arrays; others unchanged.

    Factors are small: sparse ones come from codes that assemble all matrices alike.
    """
    if type(factors) not in (list, tuple):
        return factors
    return [factor.toarray() if issparse(factor) else factor for factor in factors]


def factor_list(
    factors: Sequence[Any], *, matrices: bool = False, module: Any = np, marks: bool = False
) -> list[Any]:
    """Return the factors as arrays of at least two dimensions, exactly two if ``matrices``.

    With ``marks`` a factor may also be an `IdentityFactor`, which stays as it is.

    Raises `ValueError` if there is no factor, or one has another number of dimensions.
    """
    arrays: list[Any] = [
        factor
        if marks and isinstance(factor, IdentityFactor)
        else as_array(factor, f"factors[{k}]", module)
        for k, factor in enumerate(factors)
    ]
    if not arrays:
        raise ValueError("factors is empty; a Kronecker product needs at least one factor")
    for k, array in enumerate(arrays):
        if marks and isinstance(array, IdentityFactor):
            continue
        if array.ndim < 2 or (matrices and array.ndim > 2):
            raise ValueError(
                f"factors[{k}] has shape {array.shape}; expected 2 dimensions, (rows, columns)"
            )
    return arrays


def read_only_copies(arrays: Sequence[Array], dtype: np.dtype[Any]) -> tuple[Array, ...]:
    """Copy arrays to ``dtype``, C-contiguous and read-only."""
    copies = tuple(np.array(array, dtype, order="C") for array in arrays)
    for copy in copies:
        copy.flags.writeable = False
    return copies


def structured_copies(factors: Sequence[Array], dtype: np.dtype[Any]) -> tuple[Array, ...]:
    """Return `read_only_copies`, in which identities are matrices of `identity_matrix`."""
    return tuple(
        identity_matrix(len(factor), dtype)
        if multiple_of_identity(factor) == 1
        else read_only_copies([factor], dtype)[0]
        for factor in factors
    )


def same_shapes(
    values: Sequence[ArrayLike], current: Sequence[Array], dtype: np.dtype[Any], name: str
) -> list[Array]:
    """Return new values in ``dtype`` after checking that they can replace the current ones.

    Raises `ValueError` if their number or a shape differs. `TypeError` if their dtype cannot be
    converted to ``dtype`` (casting "same_kind": not complex to real).
    """
    arrays = [to_host(value, f"{name}[{k}]") for k, value in enumerate(as_list(values, name))]
    if len(arrays) != len(current):
        raise ValueError(f"{name} has {len(arrays)} entries; expected {len(current)}")
    for k, (array, old) in enumerate(zip(arrays, current, strict=True)):
        check_replacement(array, old.shape, dtype, f"{name}[{k}]")
    return [array.astype(dtype, copy=False) for array in arrays]


def check_replacement(
    array: Array, shape: tuple[int, ...], dtype: np.dtype[Any], name: str
) -> None:
    """Check that new values have the old shape and a dtype that converts to the operator's.

    Raises `ValueError` if the shape differs. `TypeError` if the dtype cannot be converted to
    ``dtype`` (casting "same_kind": not complex to real).
    """
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(f"{name} has dtype {array.dtype}; the operator holds {dtype}")


def as_flag(value: object, name: str) -> bool:
    """Return a flag as a bool; numbers and strings are refused although Python would convert them.

    Raises `TypeError` if it is neither a bool nor a ``numpy.bool``.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} is {value!r}; expected a bool")


def per_factor(flag: bool | Sequence[bool], count: int, name: str) -> tuple[bool, ...]:
    """Return one flag per factor, where the user gives one for all or one for each.

    Raises `ValueError` if a sequence does not have one entry per factor. `TypeError` if it, or an
    entry, is not a bool; strings and numbers are not converted.
    """
    if isinstance(flag, (bool, np.bool_)):
        return (bool(flag),) * count
    if (
        isinstance(flag, str)
        or not isinstance(flag, (Sequence, np.ndarray))
        or getattr(flag, "ndim", 1) == 0
    ):
        raise TypeError(f"{name} is {flag!r}; expected a bool or a sequence of one per factor")
    for k, entry in enumerate(flag):
        if not isinstance(entry, (bool, np.bool_)):
            as_flag(entry, f"{name}[{k}]")  # raises TypeError
    flags = tuple(bool(entry) for entry in flag)
    if len(flags) != count:
        raise ValueError(
            f"{name} has {len(flags)} entries; expected a bool or one per factor, {count}"
        )
    return flags


def kron_call(
    factors: Sequence[Factor],
    x: ArrayLike,
    *,
    left: bool,
    alpha: complex,
    beta: complex,
    y: ArrayLike | None,
    transpose: bool | Sequence[bool],
    conj: bool | Sequence[bool],
    precision: Precision | None = None,
) -> KronCall:
    """Validate one call of gekmm (``left``: the Kronecker product stands left of x) or of gemkm.

    Raises `ValueError`, `TypeError` as `batchkron.gekmm` documents.
    """
    check_precision(precision)
    factors = as_list(factors, "factors")
    module = array_module(*factors, x, y)
    marked = factor_list(factors, module=module, marks=True)
    given = [factor for factor in marked if not isinstance(factor, IdentityFactor)]
    vector = as_array(x, "x", module)
    previous = None if y is None else as_array(y, "y", module)
    alpha, beta = as_scalar(alpha, "alpha"), as_scalar(beta, "beta")
    if beta != 0 and previous is None:
        raise ValueError(f"beta is {beta:g}, but y is missing; pass y, or beta=0 for no sum")
    operands = [*given, vector] if previous is None or beta == 0 else [*given, vector, previous]
    dtype = scaled_dtype(compute_dtype(*operands), alpha, beta)
    transposed = per_factor(transpose, len(marked), "transpose")
    conjugated = per_factor(conj, len(marked), "conj")
    oriented: list[Any] = []
    for array, swap, conjugate in zip(marked, transposed, conjugated, strict=True):
        if isinstance(array, IdentityFactor):
            oriented.append(array.shape[0])
            continue
        # gekmm sums over a factor's columns, gemkm over its rows; the spec has (output, input)
        matrix = array.swapaxes(-1, -2) if swap == left else array
        oriented.append(_strided(matrix.conj() if conjugate else matrix, dtype))
    call = _placed(oriented, vector, dtype, left, alpha, beta, previous, marked)
    return replace(call, spec=replace(call.spec, precision=precision))


def _strided(matrix: Array, dtype: np.dtype[Any]) -> Array:
    """Return the matrix in ``dtype``, aligned, with strides that are multiples of an element."""
    matrix = matrix.astype(dtype, copy=False)
    aligned = is_aligned(matrix) and all(s % dtype.itemsize == 0 for s in matrix.strides)
    return matrix if aligned else matrix.copy()


def as_scalar(value: object, name: str) -> complex:
    """Return a number as a Python float or complex.

    Raises `TypeError` if it is not a number.
    """
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, complex):
        return value
    if is_masked(value):
        pass
    elif isinstance(value, np.generic) or (not np.isscalar(value) and is_scalar(value)):
        kind = value.dtype.kind  # type: ignore[attr-defined]
        if kind in "biufc":
            number = value.item()  # type: ignore[attr-defined]
            return complex(number) if kind == "c" else float(number)
    elif isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"{name} is {value!r}; expected a number")


def is_finite(scale: complex, dtype: np.dtype[Any]) -> bool:
    """Whether a number is finite in a dtype: neither NaN nor beyond its largest number.

    Kernels for numbers of 16 bits compute in float32.
    """
    limit = _LARGEST.get(dtype.char, _LARGEST["f"])
    return abs(scale.real) <= limit and abs(scale.imag) <= limit


def times(scale: complex, product: Array) -> Array:
    """Return scale · product as NumPy computes it, for a scale that may be infinite or NaN.

    Kernels are not used for such scales: they skip empty sums, whose result must be inf · 0 = NaN
    and not 0.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return product * scale


def scaled_dtype(dtype: np.dtype[Any], alpha: complex, beta: complex) -> np.dtype[Any]:
    """Return ``dtype``, or the complex dtype of its precision if alpha or beta is complex."""
    is_complex = isinstance(alpha, complex) or isinstance(beta, complex)
    return np.result_type(dtype, np.complex64) if is_complex else dtype


def _placed(
    oriented: list[Any],
    x: Array,
    dtype: np.dtype[Any],
    left: bool,
    alpha: complex,
    beta: complex,
    y: Array | None,
    given: list[Any],
) -> KronCall:
    """Find the axis of x that the product acts on, and split x's shape into (outer, axis, inner).

    ``oriented`` are the factors as (..., output, input) or the size of an identity, ``given`` as
    the user passed them. Identities at the ends become part of outer and inner.
    """
    outputs, inputs = sizes_of(oriented)
    size = math.prod(inputs)
    if x.ndim == 0:
        raise ValueError("x is a scalar; expected at least one dimension")
    axis = -2 if left and x.ndim > 1 else -1
    if x.shape[axis] != size:
        raise ValueError(_size_message(x, axis, inputs, size, left, given))
    systems: tuple[int, ...] = ()
    if any(getattr(matrix, "ndim", 0) > 2 for matrix in oriented):
        eye = array_module(x).eye
        oriented = [eye(one, dtype=dtype) if isinstance(one, int) else one for one in oriented]
        systems = _broadcast_systems(oriented, x.shape[:-2])
        x = array_module(x).broadcast_to(x, systems + x.shape[-2:])
    shape = list(x.shape)
    shape[axis] = math.prod(outputs)
    inner = x.shape[-1] if axis == -2 else 1
    outer = math.prod(x.shape[:axis])
    if y is not None and y.shape != tuple(shape):
        raise ValueError(f"y has shape {y.shape}; expected the result's shape {tuple(shape)}")
    before, kept, behind = merged_identities(oriented)
    kept = kept or [array_module(x).ones((1, 1), dtype)]
    outputs, inputs = sizes_of(kept)
    sizes = outer * before, behind * inner
    spec = KronSpec(inputs, outputs, *sizes, dtype, skipped=skipped_modes(kept))
    if y is not None and beta != 0:
        y = y.astype(dtype, copy=False)
    arrays = [*(one for one in given if not isinstance(one, IdentityFactor)), x]
    return KronCall(spec, kept, systems, ready(x, dtype), alpha, beta, y, arrays, tuple(shape))


def _broadcast_systems(factors: list[Array], leading: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which the leading axes of the factors and of x broadcast."""
    shapes = [factor.shape[:-2] for factor in factors] + [leading]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = ", ".join(str(shape) for shape in shapes)
        raise ValueError(
            f"the leading axes of the factors and x, {text}, do not broadcast together"
        ) from None


def _size_message(
    x: Array, axis: int, inputs: tuple[int, ...], size: int, left: bool, given: list[Any]
) -> str:
    """Say which size x should have, and whether transposed factors would have it."""
    contracted = "columns" if left else "rows"
    factors = "*".join(str(n) for n in inputs)
    text = (
        f"x has shape {x.shape}; expected {size} = {factors} along axis {axis}, "
        f"one for each combination of the factors' {contracted}."
    )
    other = math.prod(m.shape[-2 if left else -1] for m in given)
    if other == x.shape[axis]:
        text += " Pass transpose=True if the factors are stored transposed."
    return text


def check_output(
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    inputs: Sequence[Array],
    name: str = "out",
) -> Array:
    """Check an array that a result is written to.

    Raises `TypeError` if it is not an array of ``dtype`` in the same memory (CPU or device) as the
    inputs, or is masked. `ValueError` if its shape differs, it is read-only, or it overlaps an
    input or itself.
    """
    module = array_module(*inputs)
    if type(out) is not module.ndarray:
        refuse_masked(out, name)
    if not isinstance(out, module.ndarray):
        kind = "NumPy" if module is np else "CuPy"
        raise TypeError(f"{name} is a {type(out).__name__}; expected a {kind} array of {dtype}")
    if out.dtype != dtype:
        raise TypeError(f"{name} has dtype {out.dtype}; expected the result's dtype {dtype}")
    if out.shape != shape:
        raise ValueError(f"{name} has shape {out.shape}; expected the result's shape {shape}")
    check_writeable(out, name)
    for array in inputs:
        if module.may_share_memory(out, array) and overlap(out, array):
            raise ValueError(f"{name} overlaps an input in memory; pass an array of its own")
    return out  # type: ignore[no-any-return]


def check_writeable(out: Array, name: str) -> None:
    """Check that each element of an array can be written without changing another one.

    Raises `ValueError` if the array is read-only, or several of its elements share memory.
    """
    flags = out.flags
    if isinstance(out, np.ndarray) and not flags.writeable:
        raise ValueError(f"{name} is read-only; pass a writeable array")
    if not flags.c_contiguous and overlaps_itself(out):
        raise ValueError(
            f"{name} overlaps itself in memory: several of its elements are one; pass an array "
            f"whose elements lie apart, such as {name}.copy()"
        )


def overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share memory; also True if an exact answer takes too long to compute."""
    try:
        layouts = on_host_layout(a), on_host_layout(b)
        return bool(np.shares_memory(*layouts, max_work=100_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
