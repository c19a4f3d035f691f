"""The Python functions that XLA calls, with arrays in the memory of its buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import batchkron
from batchkron.array_kinds import cupy_stream
from batchkron.backends import backend_on
from batchkron.operators import KroneckerSum

__all__ = ["call"]


def call(
    name: str, inputs: list[Any], outputs: list[Any], transpose: bool, stream: int | None
) -> None:
    """Run a function on XLA's buffers; the compiled core calls it from threads of XLA.

    ``name``: a key of this module's table.
    ``inputs``, ``outputs``: arrays of NumPy in the buffers' memory; on a device tuples (address,
      dtype, shape).
    ``transpose``: the function's parameter.
    ``stream``: on a device the address of XLA's stream, on which all work is put.
    """
    function = _FUNCTIONS[name]
    if not inputs or not isinstance(inputs[0], tuple):
        function(inputs, outputs[0], transpose)
        return
    with _on_stream(inputs[0][0], stream or 0) as view:
        function([view(one) for one in inputs], view(outputs[0]), transpose)


@contextmanager
def _on_stream(address: int, stream: int) -> Iterator[Callable[[tuple[Any, ...]], Any]]:
    """Make a stream CuPy's current one, on the device of an address; yield how views are made."""
    cupy: Any = backend_on("cuda").array_module
    device = cupy.cuda.runtime.pointerGetAttributes(address).device
    with cupy.cuda.Device(device), cupy_stream(cupy, stream):
        yield lambda buffer: _device_view(cupy, device, *buffer)


def _device_view(cupy: Any, device: int, address: int, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return an array of CuPy in memory that XLA owns."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = cupy.cuda.UnownedMemory(address, size, None, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def _batched_kron(inputs: Sequence[Any], out: Any, transpose: bool) -> None:
    x, weights, *pools, ids, reads, writes = inputs
    out.fill(0)
    batchkron.batched_kron(pools, ids, x, reads, writes, out, weights=weights)


def _kronecker_sparse(inputs: Sequence[Any], out: Any, transpose: bool) -> None:
    x, values = inputs
    if x.shape[2] == 1:
        batchkron.kronecker_sparse_multiply(values, x[:, :, 0], out=out[:, :, 0])
        return
    for vectors, results in zip(x, out, strict=True):
        batchkron.kronecker_sparse_multiply(values, vectors, layout="batch-last", out=results)


def _solve_sum(inputs: Sequence[Any], out: Any, transpose: bool) -> None:
    """Solve (A_1 ⊕ … ⊕ A_d) x = b for each system; factors are factorised on the host."""
    b, *factors = inputs
    for system in range(len(b)):
        own = [_on_host(factor[system if len(factor) > 1 else 0]) for factor in factors]
        operator: Any = KroneckerSum([factor.T for factor in own] if transpose else own)
        if not isinstance(b, np.ndarray):
            operator = operator.to("cuda")
        vectors = b[system, :, :, 0]
        out[system, :, :, 0] = operator.factorise().solve(vectors.T).T


def _on_host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()


_FUNCTIONS: dict[str, Callable[[Sequence[Any], Any, bool], None]] = {
    "batched_kron": _batched_kron,
    "kronecker_sparse": _kronecker_sparse,
    "solve_sum": _solve_sum,
}
