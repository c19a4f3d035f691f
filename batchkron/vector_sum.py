"""Linear combinations of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from batchkron.arrays import array_module, is_plain, on_host_layout
from batchkron.backends import backend
from batchkron.spec import Array

__all__ = ["linear_combination"]


def linear_combination(
    factors: Sequence[float], vectors: Sequence[Array], out: Array, *, scratch: Array | None = None
) -> Array:
    """Compute out = Σ_k factors[k] vectors[k], in one pass over memory.

    Parameters
    ----------
    factors : sequence of float
        Real numbers.
    vectors : sequence of ndarray
        At least one; of the shape and dtype of ``out``.
    out : ndarray
        Overwritten; may be one of the vectors, and shares no memory with the others.
    scratch : ndarray, optional
        May be overwritten, also if it is one of the vectors, but not ``out``: where one pass will
        not do (on a device, for arrays that are not contiguous), nothing is allocated then.

    Returns
    -------
    ndarray
        ``out``.

    Raises
    ------
    ValueError
        If there are not as many factors as vectors, or none, shapes differ, or several of the
        vectors are ``out``.
    TypeError
        If dtypes differ.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> bk.linear_combination([2.0, -1.0], [np.ones(2), np.arange(2.0)], np.empty(2))
    array([2., 1.])
    """
    _check(factors, vectors, out)
    if _is_compiled(out) and all(map(is_plain, vectors)):
        real = [vector.reshape(-1).view(vector.real.dtype) for vector in vectors]
        target = out.reshape(-1).view(out.real.dtype)
        backend().sum_vectors([float(factor) for factor in factors], real, target)
        return out
    return _by_passes(factors, vectors, out, scratch)


def _is_compiled(out: Array) -> bool:
    """Whether the backend has a kernel for an output."""
    return array_module(out) is np and out.dtype.char in "fdFD" and is_plain(out)


def _check(factors: Sequence[float], vectors: Sequence[Array], out: Array) -> None:
    """Check that all fits together."""
    if len(factors) != len(vectors) or not len(vectors):
        raise ValueError(
            f"there are {len(factors)} factors and {len(vectors)} vectors; expected as many, at "
            f"least one"
        )
    for k, vector in enumerate(vectors):
        if vector.shape != out.shape:
            raise ValueError(f"vectors[{k}] has shape {vector.shape}; out has {out.shape}")
        if vector.dtype != out.dtype:
            raise TypeError(f"vectors[{k}] has dtype {vector.dtype}; out has {out.dtype}")
    if sum(vector is out for vector in vectors) > 1:
        raise ValueError("out is several of the vectors; add their factors up")


def _by_passes(
    factors: Sequence[float], vectors: Sequence[Array], out: Array, scratch: Array | None
) -> Array:
    """Scale and add one vector after another: ``out`` itself and ``scratch`` come first."""
    work: Any = array_module(out).empty_like(out) if scratch is None else scratch

    def rank(k: int) -> int:
        return 0 if _are_same(vectors[k], out) else 1 if _are_same(vectors[k], work) else 2

    first, *others = sorted(range(len(vectors)), key=rank)
    np.multiply(vectors[first], factors[first], out=out)
    for k in others:
        if factors[k] == 1.0:
            np.add(out, vectors[k], out=out)
        else:
            np.multiply(vectors[k], factors[k], out=work)
            np.add(out, work, out=out)
    return out


def _are_same(a: Array, b: Array) -> bool:
    """Whether two arrays of one shape and dtype have the same elements in memory."""
    if a is b:
        return True
    first, second = on_host_layout(a), on_host_layout(b)
    return first.strides == second.strides and first.ctypes.data == second.ctypes.data
