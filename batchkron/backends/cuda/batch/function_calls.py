"""Calls of batched_gemm that multiply a[i] by b[i] for all i, without copy or conversion.

What such a call launches is cached by layouts and by the address of b. All other calls go through
`plan.batched_gemm`, which copies a list of products to the device in each call.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.any_vectors import ListBatch
from batchkron.backends.cuda.batch.plan import gemm_factor, gemm_shape
from batchkron.backends.cuda.kernel_family import forget_by
from batchkron.backends.cuda.runtime.calls import call_workspace
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    device_errors,
    place,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache, batch_scalars
from batchkron.spec.kron import SUPPORTED_DTYPES

_MAX_CACHED = 256  # calls that are cached; chosen by hand
_MIN_IDS = 4096  # smallest number of products for which ids are copied to a device; chosen by hand
_NUMBERS = (int, float)


def fast_batched_gemm(
    a: Any, b: Any, alpha: Any, beta: Any, transpose_b: bool
) -> DeviceArray | None:
    """Return alpha a[i] b[i], or alpha a[i] b[i]^T, for all i in a new array; or None.

    It applies to non-empty, C-contiguous CuPy arrays of one supported dtype on the current device,
    a finite real alpha, and beta = 0. It returns None, and has done nothing, for all other calls.
    """
    array = cupy.ndarray
    if (
        type(a) is not array
        or type(b) is not array
        or type(transpose_b) is not bool
        or type(alpha) not in _NUMBERS
        or type(beta) not in _NUMBERS
        or alpha - alpha != 0
        or beta != 0
    ):
        return None
    try:
        device, source, factor, dtype = runtime.getDevice(), a.data, b.data, a.dtype
        if not source.device_id == factor.device_id == device or b.dtype != dtype:
            return None
        key = (device, dtype, transpose_b, factor.ptr, a.shape, a.strides, b.shape, b.strides)
        call = _calls.get(key)
        if call is None:
            if not _is_plain(a, b, transpose_b):
                return None
            with _planning:
                ids = _ids(len(a), device)
                if ids is None:
                    return None
                call = _calls[key] = _Call(a, b, transpose_b, ids, device)
        return call.run(source.ptr, float(alpha))
    except Exception:
        with device_errors():
            raise


def _is_plain(a: DeviceArray, b: DeviceArray, transpose_b: bool) -> bool:
    """Whether both arrays are non-empty and contiguous, and their shapes fit."""
    return bool(
        a.ndim == b.ndim == 3
        and a.size
        and b.size
        and len(a) == len(b)
        and a.shape[2] == b.shape[2 if transpose_b else 1]
        and a.flags.c_contiguous
        and b.flags.c_contiguous
        and a.dtype in SUPPORTED_DTYPES
    )


class _Call:
    """The products with matrices b at a fixed address. Threads may share it."""

    def __init__(
        self,
        a: DeviceArray,
        b: DeviceArray,
        transpose_b: bool,
        ids: dict[str, DeviceArray],
        device: int,
    ) -> None:
        self._shape = len(a), a.shape[1], b.shape[1 if transpose_b else 2]
        self._dtype, self._device = a.dtype, device
        shape = gemm_shape(a.shape, self._shape, len(a), a.dtype)
        batch = ListBatch(shape, device, ids)
        batch.set_factors([gemm_factor(b, transpose_b)])
        self._launch, self._workspace = batch.prepared(1, 1)
        self._scalars = batch_scalars(a.dtype)

    def run(self, a: int, alpha: float) -> DeviceArray:
        """Return the products with the matrices at the address a."""
        size = self._workspace
        memory, _owner = call_workspace(size) if size else (0, None)
        result = cupy.ndarray(self._shape, self._dtype)
        addresses = a, result.data.ptr, memory
        self._launch(ready_stream(self._device), addresses, self._scalars(alpha, False))
        return result


_calls: BoundedCache[tuple[Any, ...], _Call] = BoundedCache(_MAX_CACHED)
forget_by(_calls.clear)
_planning = threading.Lock()

# Per device, the ids of the largest number of products so far, and all smaller ones: captured
# graphs read them, so they are never freed. Their numbers are powers of two, so that all together
# have at most 48 bytes for each product of the largest call.
_copied: dict[int, list[dict[str, DeviceArray]]] = {}


def _ids(products: int, device: int) -> dict[str, DeviceArray] | None:
    """Return the device arrays of a list in which product i has a[i], b[i] and c[i].

    They may be longer than the list. None if they would have to be copied while the stream captures
    a graph.
    """
    kept = _copied.setdefault(device, [])
    if not kept or len(kept[-1]["ids"]) < products:
        if cupy.cuda.get_current_stream().is_capturing():
            return None
        number = np.arange(max(_MIN_IDS, 1 << math.ceil(math.log2(products))) + 1)
        longs, shorts = place([number, number[:-1].astype(np.int32)])
        kept.append({"ids": shorts, "inputs": longs, "outputs": longs, "starts": longs})
    return kept[-1]
