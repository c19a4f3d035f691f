"""Batched matrix multiplies, as batch lists of one mode.

What calls that multiply a[i] by b[i] for all i launch, without copy or conversion, is cached by
layouts and by the address of b. All other calls go through `batched_gemm`, which copies a list of
products to the device in each call.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.bound_list import BoundList
from batchkron.backends.cuda.batch.kernel import BatchShape, list_starts
from batchkron.backends.cuda.runtime.calls import KnownCalls, call_workspace
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    cupy,
    current_device,
    device_errors,
    place,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.launch import batch_scalars
from batchkron.backends.cuda.steps import Step, plan_steps
from batchkron.spec.kron import SUPPORTED_DTYPES, Array

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
            with _calls.making:
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
        shape = _shape(a.shape, self._shape, len(a), a.dtype)
        batch = _bound_gemm(shape, b, transpose_b, device, ids)
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


_calls = KnownCalls()

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


def batched_gemm(
    a: DeviceArray,
    b: DeviceArray,
    c: DeviceArray,
    alpha: complex,
    transpose_b: bool,
    ids: tuple[Array, Array, Array],
) -> None:
    """Add alpha * a[i] b[j] to c[k] for all (i, j, k) of ``ids``, a batch list of one mode."""
    a_ids, b_ids, c_ids = ids
    check_device(current_device(), a, b, c)
    if 0 in (c.size, a.shape[2], len(c_ids)):
        return
    if cupy.cuda.get_current_stream().is_capturing():
        raise RuntimeError(
            "a list of products cannot be copied to the device while a graph is captured; call "
            "batched_gemm once with the same shapes before the capture, with contiguous arrays of "
            "one dtype, and without ids and c, or capture a BatchedKron"
        )
    a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    order = np.argsort(c_ids, kind="stable")
    outputs = c_ids[order]
    with device_errors():
        lists = {
            "ids": b_ids[order].astype(np.int32),
            "inputs": a_ids[order],
            "outputs": outputs,
            "starts": list_starts(outputs, len(c)),
        }
        arrays = {key: cupy.asarray(value) for key, value in lists.items()}
        shape = _shape(a.shape, c.shape, len(c_ids), c.dtype)
        batch = _bound_gemm(shape, b, transpose_b, current_device(), arrays)
        batch.launch(a.data.ptr, c.data.ptr, 1, 1, alpha, True)


def _shape(
    a: tuple[int, int, int], c: tuple[int, int, int], products: int, dtype: np.dtype[Any]
) -> BatchShape:
    """Return the batch list of products of matrices a (count, m, k) into c (count, m, n)."""
    num_inputs, m, k = a
    num_outputs, _, n = c
    (step,) = plan_steps((k,), (n,), (0,), dtype)
    return BatchShape(
        steps=(Step(0, m, k, n, 1, step.tile),),
        dtype=dtype,
        products=products,
        systems=1,
        num_inputs=num_inputs,
        num_outputs=num_outputs,
        input_size=m * k,
        output_size=m * n,
        owner=True,
    )


def _bound_gemm(
    shape: BatchShape, b: DeviceArray, transpose_b: bool, device: int, lists: dict[str, DeviceArray]
) -> BoundList:
    """Return the batch list with contiguous matrices b."""
    _, first, second = b.shape
    row, column = (second, 1) if transpose_b else (1, second)
    batch = BoundList(shape, device, lists)
    batch.bind([(b.data.ptr, 0, first * second, row, column)])
    return batch
