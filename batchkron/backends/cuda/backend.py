"""The CUDA backend: plans that launch the kernels of ``csrc/cuda`` on CuPy's current stream.

Arrays are CuPy arrays on the current device; a plan's `run` never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from batchkron.backends.cuda.kron.plan import (
    KronPlan,
    KronProduct,
    kron_plan,
    kron_product,
    with_factors,
)
from batchkron.backends.cuda.runtime import device
from batchkron.backends.cuda.runtime.device import DeviceArray, Workspaces, empty, place
from batchkron.backends.cuda.runtime.device import cupy as array_module
from batchkron.backends.krylov_arguments import Stage
from batchkron.spec.kron import Array, BatchSpec
from batchkron.spec.segmented import SegmentedSpec
from batchkron.spec.sweeps import SweepList

if TYPE_CHECKING:
    from batchkron.backends.cuda.batch.plan import BatchPlan
    from batchkron.backends.cuda.diagonal.plan import DiagonalProduct
    from batchkron.backends.cuda.kron_sum.plan import SumPlan
    from batchkron.backends.cuda.krylov.passes import Iterations, Passes, Reader, Recorder
    from batchkron.backends.cuda.segmented.plan import SegmentedPlan, SweepPlan

name = "cuda"
workspace = Workspaces


def current_device() -> str:
    """Return the place where new operators will be, such as "cuda:0"."""
    return f"cuda:{device.current_device()}"


def reserve(plan: KronProduct | BatchPlan | SumPlan | SweepPlan, outer: int, inner: int) -> None:
    """Compile and allocate what a plan's `run` will need, so that it cannot fail halfway."""
    plan.reserve(outer, inner)


# Half of what a process waits for before its first product is modules: the rest when asked for.


def batch_plan(spec: BatchSpec) -> BatchPlan:
    """Return the plan of a batch list; it holds its own copy of the pools on the device."""
    from batchkron.backends.cuda.batch import plan as batch

    return batch.batch_plan(spec)


def kron_sum(factors: Sequence[Array]) -> None:
    """Return nothing: a sum is the products of its modes, each a launch."""


def sum_plan(factors: Sequence[Array]) -> SumPlan:
    """Return the plan of a Kronecker sum for each system; it holds its own copy of the factors."""
    from batchkron.backends.cuda.kron_sum import plan as sums

    return sums.SumPlan(factors)


def segmented_plan(spec: SegmentedSpec) -> SegmentedPlan:
    """Return the plan of a segmented mode multiply; it holds its own copy of the matrices."""
    from batchkron.backends.cuda.segmented import plan as segmented

    return segmented.segmented_plan(spec)


def sweep_plan(sweeps: SweepList, matrices: Sequence[Array]) -> SweepPlan:
    """Return the plan of a list of sweeps; it holds its own copy of the matrices."""
    from batchkron.backends.cuda.segmented import plan as segmented

    return segmented.sweep_plan(sweeps, matrices)


def batched_gemm(
    a: DeviceArray,
    b: DeviceArray,
    c: DeviceArray,
    alpha: complex,
    transpose_b: bool,
    ids: tuple[Array, Array, Array],
) -> None:
    """Add alpha * a[i] b[j] to c[k] for all (i, j, k) of ``ids``."""
    from batchkron.backends.cuda.batch import plan as batch

    batch.batched_gemm(a, b, c, alpha, transpose_b, ids)


def kron(factors: Sequence[DeviceArray], out: DeviceArray) -> None:
    """Write the explicit Kronecker product of matrices of one dtype to ``out``, C-contiguous."""
    from batchkron.backends.cuda.explicit import plan as explicit

    explicit.kron(factors, out)


def fast_kron() -> Callable[[Sequence[object], object], DeviceArray | None]:
    """Return what writes the explicit product of plain matrices, and returns None for others."""
    from batchkron.backends.cuda.explicit import plan as explicit

    return explicit.fast_kron


def check_capture(
    factors: Sequence[DeviceArray], out: DeviceArray | None, dtype: np.dtype[Any]
) -> None:
    """Refuse factors and a result of `kron` that would be copied while a graph is captured."""
    from batchkron.backends.cuda.explicit import plan as explicit

    explicit.check_capture(factors, out, dtype)


def diagonal_product(entries: DeviceArray) -> DiagonalProduct:
    """Return the product with diagonal matrices of entries (systems…, N) on the device."""
    from batchkron.backends.cuda.diagonal import plan as diagonal

    return diagonal.diagonal_product(entries)


def krylov_passes(
    names: tuple[str, ...], dtype: np.dtype[Any], n: int, systems: int, restart: int
) -> Passes:
    """Return passes of a Krylov method by their names in csrc/cuda/krylov_*.cuh."""
    from batchkron.backends.cuda.krylov import passes as krylov

    return krylov.krylov_passes(names, dtype, n, systems, restart)


def krylov_iterations(
    plan: SumPlan, stages: tuple[Stage, ...], kept: int, count: int
) -> Iterations | None:
    """Return whole iterations for systems of a plan, in one launch; None where they do not fit."""
    from batchkron.backends.cuda.krylov import passes as krylov

    return krylov.krylov_iterations(plan, stages, kept, count)


def krylov_parts(n: int, systems: int) -> int:
    """Return how many thread blocks share a system."""
    from batchkron.backends.cuda.krylov import passes as krylov

    return krylov.krylov_parts(n, systems)


def krylov_vectors(shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
    """Return uninitialised vectors; CuPy's memory is aligned."""
    return empty(shape, dtype)


def krylov_stream() -> tuple[tuple[int, int], object]:
    """Return device and address of the current stream, and the stream."""
    stream = device.cupy.cuda.get_current_stream()
    return (device.current_device(), int(stream.ptr)), stream


def krylov_reader() -> Reader:
    """Return what brings arrays to the host."""
    from batchkron.backends.cuda.krylov import passes as krylov

    return krylov.Reader()


def krylov_recorder() -> Recorder:
    """Return what repeats work by graphs."""
    from batchkron.backends.cuda.krylov import passes as krylov

    return krylov.Recorder()


def address(array: DeviceArray) -> int:
    """Return where an array lies."""
    return int(array.data.ptr)


__all__ = [
    "KronPlan",
    "KronProduct",
    "Workspaces",
    "address",
    "array_module",
    "batch_plan",
    "batched_gemm",
    "check_capture",
    "current_device",
    "diagonal_product",
    "empty",
    "fast_kron",
    "kron",
    "kron_plan",
    "kron_product",
    "kron_sum",
    "krylov_iterations",
    "krylov_parts",
    "krylov_passes",
    "krylov_reader",
    "krylov_recorder",
    "krylov_stream",
    "krylov_vectors",
    "name",
    "place",
    "reserve",
    "segmented_plan",
    "sum_plan",
    "sweep_plan",
    "with_factors",
    "workspace",
]
