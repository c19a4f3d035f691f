"""Linear combinations of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import common_kind, in_kind, kind_of
from batchkron.arrays import array_module, as_array, is_plain, on_host_layout
from batchkron.backends import backend_for, host_backend
from batchkron.spec.kron import Array, as_scalar, check_output, check_writeable, overlap

__all__ = ["linear_combination"]


def linear_combination(
    factors: Sequence[float],
    vectors: Sequence[ArrayLike],
    out: Array,
    *,
    scratch: Array | None = None,
) -> Array:
    """Compute out = Σ_k factors[k] vectors[k], in one pass over memory.

    Parameters
    ----------
    factors : sequence of float
        Real numbers.
    vectors : sequence of array_like
        At least one; of the shape of ``out``, and of its dtype, in any byte order.
    out : ndarray
        Overwritten; may be one of the vectors, and shares no memory with the others.
    scratch : ndarray, optional
        Work array of the shape and dtype of ``out``, which may be overwritten. It may be one of the
        vectors, but not ``out``. If it is given, nothing is allocated where more than one pass is
        needed (for arrays that are not contiguous).

    Returns
    -------
    ndarray
        ``out``.

    Raises
    ------
    ValueError
        If there are not as many factors as vectors, or none; if shapes differ; if several of the
        vectors are ``out`` or ``scratch``; or if ``out`` or ``scratch`` is read-only, overlaps
        itself, or overlaps a vector without being that vector.
    TypeError
        If dtypes differ, a factor is not a real number, or an array is masked or on another device.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> bk.linear_combination([2.0, -1.0], [np.ones(2), np.arange(2.0)], np.empty(2))
    array([2., 1.])
    """
    if type(out) is not np.ndarray and kind_of(out) is not None:
        kind = common_kind(out=out, vectors=list(vectors), scratch=scratch)
        return in_kind(  # type: ignore[no-any-return]
            linear_combination, kind, factors, list(vectors), out, scratch=scratch
        )
    scales, given = _checked(factors, vectors, out)
    if _is_compiled(out) and all(map(is_plain, given)):
        # complex vectors as real ones of twice the length
        real = [vector.reshape(-1).view(vector.real.dtype) for vector in given]
        target = out.reshape(-1).view(out.real.dtype)
        on_host = type(out) is np.ndarray
        backend = host_backend() if on_host else backend_for(array_module(out))
        backend.sum_vectors(scales, real, target)  # checks that none overlaps out
    else:
        check_writeable(out, "out")
        _by_passes(scales, given, out, scratch)
    return out


def _is_compiled(out: Array) -> bool:
    """Whether the output's backend has a kernel that can write it."""
    dtype = out.dtype
    if dtype.char not in "fdFD" or not dtype.isnative:
        return False
    return bool(out.flags.carray if isinstance(out, np.ndarray) else out.flags.c_contiguous)


def _checked(
    factors: Sequence[float], vectors: Sequence[ArrayLike], out: Array
) -> tuple[list[float], list[Array]]:
    """Check shapes and dtypes; return the factors as float, and the vectors in ``out``'s dtype."""
    if len(factors) != len(vectors) or not len(vectors):
        raise ValueError(
            f"there are {len(factors)} factors and {len(vectors)} vectors; expected as many, at "
            f"least one"
        )
    module = array_module(out, *vectors)
    kind = type(out)
    if kind is not module.ndarray and as_array(out, "out", module) is not out:
        raise TypeError(f"out is a {kind.__name__}; expected an array")
    shape, dtype = out.shape, out.dtype
    given: list[Array] = []
    for k, vector in enumerate(vectors):
        array = vector if type(vector) is kind else _other(vector, k, out, module)
        if array.shape != shape:
            raise ValueError(f"vectors[{k}] has shape {array.shape}; out has {shape}")
        if array.dtype != dtype:
            if array.dtype.newbyteorder("=") != dtype.newbyteorder("="):
                raise TypeError(f"vectors[{k}] has dtype {array.dtype}; out has {dtype}")
            array = array.astype(dtype)
        given.append(array)
    _refuse_several(given, out, "out")
    scales = [
        factor if type(factor) is float else _real(factor, k) for k, factor in enumerate(factors)
    ]
    return scales, given


def _other(vector: ArrayLike, k: int, out: Array, module: Any) -> Array:
    """Return vector number ``k`` as an array of the module; refuse one of another library."""
    if kind_of(vector) is not None:
        common_kind(out=out, **{f"vectors[{k}]": vector})
    return as_array(vector, f"vectors[{k}]", module)


def _real(factor: object, k: int) -> float:
    """Return factor number ``k`` as a float; refuse one that is not a real number."""
    scale = as_scalar(factor, f"factors[{k}]")
    if isinstance(scale, complex):
        raise TypeError(f"factors[{k}] is {scale}; expected a real number")
    return scale


def _refuse_several(vectors: Sequence[Array], array: Array, name: str) -> None:
    """Raise ValueError if more than one vector is the array that will be overwritten."""
    if sum(vector is array for vector in vectors) > 1:
        raise ValueError(f"{name} is several of the vectors; add their factors up")


def _by_passes(
    factors: Sequence[float], vectors: Sequence[Array], out: Array, scratch: Array | None
) -> Array:
    """Scale and add one vector after another with NumPy or CuPy.

    A vector that is ``out`` or ``scratch`` itself is used first, before it is overwritten.
    """
    work: Any = array_module(out).empty_like(out) if scratch is None else scratch
    vectors = [_resolve_alias(vector, out, "out", k) for k, vector in enumerate(vectors)]
    _refuse_several(vectors, out, "out")
    if scratch is not None:
        check_output(work, out.shape, out.dtype, (out,), "scratch")
        vectors = [_resolve_alias(vector, work, "scratch", k) for k, vector in enumerate(vectors)]
        _refuse_several(vectors, work, "scratch")

    def rank(k: int) -> int:
        return 0 if vectors[k] is out else 1 if vectors[k] is work else 2

    first, *rest = sorted(range(len(vectors)), key=rank)
    np.multiply(vectors[first], factors[first], out=out)
    for k in rest:
        if factors[k] == 1.0:
            np.add(out, vectors[k], out=out)
        else:
            np.multiply(vectors[k], factors[k], out=work)
            np.add(out, work, out=out)
    return out


def _resolve_alias(vector: Array, written: Array, name: str, k: int) -> Array:
    """Return ``vector``, or ``written`` itself if both are views of exactly the same elements.

    Raises `ValueError` if they overlap in memory otherwise.
    """
    if vector is written or not array_module(written).may_share_memory(vector, written):
        return vector
    first, second = on_host_layout(vector), on_host_layout(written)
    if first.strides == second.strides and first.ctypes.data == second.ctypes.data:
        return written
    if overlap(vector, written):
        raise ValueError(f"{name} overlaps vectors[{k}] in memory; pass an array of its own")
    return vector
