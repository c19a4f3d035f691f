"""The CUDA backend: plans that launch the kernels of ``csrc/cuda`` on CuPy's current stream.

Arrays are CuPy arrays on the current device; a plan's `run` never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from batchkron.backends.cuda.kron import function_calls
from batchkron.backends.cuda.kron import plan as kron_matmul
from batchkron.backends.cuda.runtime import device
from batchkron.backends.cuda.runtime.device import DeviceArray, Workspaces
from batchkron.backends.kron_sum import SumOfModes
from batchkron.backends.krylov_arguments import Stage
from batchkron.backends.protocol import FastCall, KrylovBackend, Reduction, Repetition, unavailable
from batchkron.spec.interpolated import Windows
from batchkron.spec.kron import Array, BatchSpec, Precision
from batchkron.spec.segmented import SegmentedSpec
from batchkron.spec.sweeps import SweepList

if TYPE_CHECKING:
    from batchkron.backends.cuda.batch.plan import BatchPlan
    from batchkron.backends.cuda.diagonal.plan import DiagonalProduct
    from batchkron.backends.cuda.interpolated.plan import InterpolationPlan
    from batchkron.backends.cuda.kron_sparse.plan import KronSparsePlan
    from batchkron.backends.cuda.kron_sum.plan import SumPlan
    from batchkron.backends.cuda.krylov.passes import Iterations, Passes, RankPasses, Reader
    from batchkron.backends.cuda.runtime.recorder import Recorder
    from batchkron.backends.cuda.runtime.repeated_work import RepeatedWork
    from batchkron.backends.cuda.segmented.plan import SegmentedPlan, SweepPlan
    from batchkron.backends.cuda.step_sums.plan import StepTable


class GraphRepetition(Repetition):
    """Work is repeated by a CUDA graph after a few calls, if it can be captured."""

    note_move = staticmethod(device.note_move)

    def repeated(
        self,
        work: Callable[[Any, Any], None],
        sizes: tuple[int, int],
        dtype: np.dtype[Any],
        beside: RepeatedWork | None = None,
    ) -> RepeatedWork:
        """Return what does work that launches the same kernels in every call."""
        from batchkron.backends.cuda.runtime import repeated_work

        return repeated_work.RepeatedWork(work, sizes, dtype, beside)

    def recorder(self) -> Recorder:
        """Return an object that repeats work by a key."""
        from batchkron.backends.cuda.runtime import recorder

        return recorder.Recorder()


class CudaBackend(KrylovBackend):
    """Plans on CuPy's current device.

    Importing modules takes half of the time that a process needs before its first product. All but
    those of Kron-Matmuls are therefore imported on first use.
    """

    name = "cuda"
    has_half = True
    array_module = device.cupy

    empty = staticmethod(device.empty)
    workspace = Workspaces  # separate for each stream
    repetition = GraphRepetition()
    kron_plan = staticmethod(kron_matmul.kron_plan)
    kron_product = staticmethod(kron_matmul.kron_product)

    def current_device(self) -> str:
        """Return the device of new operators, such as "cuda:0"."""
        return f"cuda:{device.current_device()}"

    def place(
        self, arrays: Sequence[Array], known: Sequence[DeviceArray] = ()
    ) -> tuple[DeviceArray, ...]:
        """Return copies on the device: in the known arrays, or in new ones."""
        if not known:
            return device.place(arrays)
        device.upload(arrays, known)
        return tuple(known)

    @staticmethod
    @cache
    def fast_path(call: FastCall) -> Callable[..., Any]:
        """Return the function that does a call with plain arrays."""
        if call == "kron_multiply":
            return function_calls.fast_kron_multiply
        if call == "kron_sparse_multiply":
            from batchkron.backends.cuda.kron_sparse import function_calls as sparse_calls

            return sparse_calls.fast_kron_sparse_multiply
        if call == "formula_values":
            from batchkron.backends.cuda.formula import plan as formula

            return formula.FormulaValues
        if call == "batched_gemm":
            from batchkron.backends.cuda.batch import gemm

            return gemm.fast_batched_gemm
        if call == "batched_kron":
            from batchkron.backends.cuda.batch import list_calls

            return list_calls.fast_batched_kron
        if call == "triangular_sum":
            from batchkron.backends.cuda.kron_sum import triangular_plan

            return triangular_plan.TriangularSum
        return unavailable

    def batch_plan(self, spec: BatchSpec) -> BatchPlan:
        """Return the plan of a batch list; it holds its own copy of the pools on the device."""
        from batchkron.backends.cuda.batch import plan as batch

        return batch.batch_plan(spec)

    def sum_plan(self, factors: Sequence[Array]) -> SumPlan | SumOfModes:
        """Return the product with a Kronecker sum; it holds its own copy of the factors.

        Many systems take one launch; a single system takes one launch for each mode.
        """
        if all(factor.ndim == 2 for factor in factors):
            return SumOfModes(self, factors)
        from batchkron.backends.cuda.kron_sum import plan as sums

        return sums.SumPlan(factors)

    def diagonal_product(self, entries: DeviceArray) -> DiagonalProduct:
        """Return the product with diagonal matrices of entries (systems…, N) on the device."""
        from batchkron.backends.cuda.diagonal import plan as diagonal

        return diagonal.diagonal_product(entries)

    def sum_vectors(
        self, factors: Sequence[float], vectors: Sequence[DeviceArray], out: DeviceArray
    ) -> None:
        """Write Σ factors[k] vectors[k], contiguous, to ``out``, which may be one of them."""
        from batchkron.backends.cuda.vector_sum import plan as vector_sum

        vector_sum.sum_vectors(factors, vectors, out)

    def step_table(self, steps: int, width: int, columns: int) -> StepTable:
        """Return a table of numbers (steps, width) for sums of vectors, and of their results."""
        from batchkron.backends.cuda.step_sums import plan as step_sums

        return step_sums.StepTable(steps, width, columns)

    def segmented_plan(self, spec: SegmentedSpec) -> SegmentedPlan:
        """Return the plan of a segmented mode multiply; it holds its own copy of the matrices."""
        from batchkron.backends.cuda.segmented import plan as segmented

        return segmented.segmented_plan(spec)

    def sweep_plan(self, sweeps: SweepList, matrices: Sequence[Array]) -> SweepPlan:
        """Return the plan of a list of sweeps; it holds its own copy of the matrices."""
        from batchkron.backends.cuda.segmented import plan as segmented

        return segmented.sweep_plan(sweeps, matrices)

    def kron_sparse_product(
        self, values: Array, precision: Precision | None = None
    ) -> KronSparsePlan:
        """Return the product with a Kronecker-sparse matrix; it has a copy of the values."""
        from batchkron.backends.cuda.kron_sparse import plan as kron_sparse

        return kron_sparse.KronSparsePlan(values, precision)

    def multiply_kron_sparse(
        self,
        values: DeviceArray,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        precision: Precision | None = None,
    ) -> None:
        """Write the product of `kron_sparse_product` to y, without waiting for the device."""
        from batchkron.backends.cuda.kron_sparse import function_calls as sparse_calls

        sparse_calls.multiply_kron_sparse(values, x, y, outer, inner, precision)

    def interpolation_plan(
        self, windows: Windows, known: InterpolationPlan | None = None
    ) -> InterpolationPlan:
        """Return the plan of interpolation; it holds its own copy of the windows."""
        from batchkron.backends.cuda.interpolated import plan as interpolated

        if known is None:
            return interpolated.InterpolationPlan(windows)
        known.set_windows(windows)
        return known

    @cached_property
    def kron(self) -> Callable[[Sequence[Any], DeviceArray | None], DeviceArray]:
        """The function that returns the explicit Kronecker product, ``out`` if given."""
        from batchkron.backends.cuda.explicit import plan as explicit

        return explicit.kron  # not wrapped: small products take only a few microseconds

    def batched_gemm(
        self,
        a: DeviceArray,
        b: DeviceArray,
        c: DeviceArray,
        alpha: complex,
        transpose_b: bool,
        ids: tuple[Array, Array, Array],
    ) -> None:
        """Add alpha * a[i] b[j] to c[k] for all (i, j, k) of ``ids``; c holds beta * c on entry."""
        from batchkron.backends.cuda.batch import gemm

        gemm.batched_gemm(a, b, c, alpha, transpose_b, ids)

    def copy_views(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        """Copy arrays to others, all in few launches."""
        from batchkron.backends.cuda.exchange import copies

        copies.copy_views(pairs)

    def address(self, array: DeviceArray) -> int:
        """Return the device address of an array."""
        return int(array.data.ptr)

    def place_of_work(self) -> tuple[tuple[int, int], object]:
        """Return (device, address of the current stream), and the stream, to keep it alive."""
        stream = device.cupy.cuda.get_current_stream()
        return (device.current_device(), int(stream.ptr)), stream

    def krylov_vectors(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """Return uninitialised vectors; memory from CuPy is aligned."""
        return device.empty(shape, dtype)

    def krylov_passes(
        self,
        names: tuple[str, ...],
        dtype: np.dtype[Any],
        n: int,
        systems: int,
        restart: int,
        reduction: Reduction | None = None,
    ) -> Passes | RankPasses:
        """Return the passes of a Krylov method with these names in ``csrc/krylov``."""
        from batchkron.backends.cuda.krylov import passes as krylov

        return krylov.krylov_passes(names, dtype, n, systems, restart, reduction)

    def krylov_parts(self, n: int, systems: int) -> int:
        """Return how many thread blocks share a system."""
        from batchkron.backends.cuda.krylov import passes as krylov

        return krylov.krylov_parts(n, systems)

    def krylov_reader(self) -> Reader:
        """Return a function that copies arrays to the host."""
        from batchkron.backends.cuda.krylov import passes as krylov

        return krylov.Reader()

    def krylov_iterations(
        self, plan: SumPlan, stages: tuple[Stage, ...], kept: int, count: int
    ) -> Iterations | None:
        """Return whole iterations for the systems of a plan in one launch, None if too large."""
        from batchkron.backends.cuda.krylov import passes as krylov

        return krylov.krylov_iterations(plan, stages, kept, count)


CUDA = CudaBackend()
