"""Calls of gekmm and gemkm on a backend's fast path, with identities at the ends of products."""

from __future__ import annotations

import math
from typing import Any

from batchkron.arrays import array_module
from batchkron.backends import backend_for
from batchkron.spec.identities import IdentityFactor, merged_identities, sizes_of
from batchkron.spec.kron import Array

__all__ = ["fast_multiply"]


def fast_multiply(
    factors: Any, x: Any, left: bool, alpha: Any, beta: Any, y: Any, out: Any, precision: Any
) -> Array | None:
    """Return the result of gekmm (``left``) or gemkm by a backend's fast path, None without it.

    Identities before and behind the other factors become axes of the vectors.
    """
    fast = backend_for(array_module(x)).fast_path("kron_multiply")
    result: Array | None = fast(factors, x, left, alpha, beta, y, out, precision)
    if result is not None or type(factors) not in (list, tuple):
        return result
    if not any(isinstance(factor, IdentityFactor) for factor in factors):
        return None
    native = array_module(x).ndarray
    kept = [one.shape[0] if isinstance(one, IdentityFactor) else one for one in factors]
    before, kept, behind = merged_identities(kept)
    vectors = [x, *(array for array in (y, out) if array is not None)]
    if not all(type(array) is native and array.flags.c_contiguous for array in vectors):
        return None
    if not kept or not all(type(one) is native and one.ndim == 2 for one in kept):
        return None
    outputs, inputs = sizes_of(kept if left else [one.T for one in kept])
    rows, columns = math.prod(outputs), math.prod(inputs)
    axis = max(x.ndim - 2, 0) if left else x.ndim - 1
    if x.ndim == 0 or x.shape[axis] != before * columns * behind:
        return None
    shape = (*x.shape[:axis], before * rows * behind, *x.shape[axis + 1 :])
    if not x.size or not rows or any(array.shape != shape for array in vectors[1:]):
        return None
    inner = behind * math.prod(x.shape[axis + 1 :])
    target = None if out is None else out.reshape(-1, rows, inner)
    added = None if y is None else target if y is out else y.reshape(-1, rows, inner)
    given = kept if left else [one.T for one in kept], x.reshape(-1, columns, inner), True
    result = fast(*given, alpha, beta, added, target, precision)
    if result is None or out is not None:
        return None if result is None else out
    return result.reshape(shape)
