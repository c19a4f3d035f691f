"""The CUDA backend: plans that launch the kernels of ``csrc/cuda`` on CuPy's current stream.

Arrays are CuPy arrays on the current device; a plan's `run` never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from batchkron.backends.cuda.kron import plan as kron_matmul
from batchkron.backends.cuda.runtime import device
from batchkron.backends.cuda.runtime.device import DeviceArray, Workspaces
from batchkron.backends.kron_sum import ListedSum, SumOfModes
from batchkron.backends.protocol import FastCall, KrylovBackend, Repetition, unavailable
from batchkron.spec.kron import Array

if TYPE_CHECKING:
    from batchkron.backends.cuda.kron_sum.plan import SumPlan
    from batchkron.backends.cuda.runtime.recorder import Recorder
    from batchkron.backends.cuda.runtime.repeated_work import RepeatedWork

_FAST_PATHS: dict[FastCall, str] = {
    "kron_multiply": "kron.function_calls.fast_kron_multiply",
    "kron_sparse_multiply": "kron_sparse.function_calls.fast_kron_sparse_multiply",
    "formula_values": "formula.plan.FormulaValues",
    "batched_gemm": "batch.gemm.fast_batched_gemm",
    "batched_kron": "batch.list_calls.fast_batched_kron",
    "triangular_sum": "kron_sum.triangular_plan.TriangularSum",
}


def _imported(place: str) -> Any:
    """Return a function or class by its place below this folder."""
    module, _, name = place.rpartition(".")
    return getattr(import_module(f"batchkron.backends.cuda.{module}"), name)


def _on_first_use(place: str) -> Any:
    """Return a method that is what `_imported` returns; the protocol describes it."""
    return cached_property(lambda _: _imported(place))


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

    empty = krylov_vectors = staticmethod(device.empty)  # memory from CuPy is aligned
    workspace = Workspaces  # separate for each stream
    repetition = GraphRepetition()
    kron_plan = staticmethod(kron_matmul.KronPlan)
    kron_product = staticmethod(kron_matmul.kron_product)
    kron = _on_first_use("explicit.plan.kron")
    batch_plan = _on_first_use("batch.plan.batch_plan")
    batched_gemm = _on_first_use("batch.gemm.batched_gemm")
    diagonal_product = _on_first_use("diagonal.plan.DiagonalProduct")
    segmented_plan = _on_first_use("segmented.plan.segmented_plan")
    sweep_plan = _on_first_use("segmented.plan.sweep_plan")
    kron_sparse_product = _on_first_use("kron_sparse.plan.KronSparsePlan")
    multiply_kron_sparse = _on_first_use("kron_sparse.function_calls.multiply_kron_sparse")
    interpolation_plan = _on_first_use("interpolated.plan.interpolation_plan")
    sum_vectors = _on_first_use("vector_sum.plan.sum_vectors")
    step_table = _on_first_use("step_sums.plan.StepTable")
    copy_views = _on_first_use("exchange.copies.copy_views")
    krylov_passes = _on_first_use("krylov.passes.krylov_passes")
    krylov_parts = _on_first_use("krylov.passes.krylov_parts")
    krylov_reader = _on_first_use("krylov.passes.Reader")
    krylov_iterations = _on_first_use("krylov.passes.krylov_iterations")

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
        return _imported(_FAST_PATHS[call]) if call in _FAST_PATHS else unavailable

    def sum_plan(self, factors: Sequence[Array]) -> SumPlan | ListedSum | SumOfModes:
        """Return the product with a Kronecker sum; it holds its own copy of the factors.

        Many systems take one launch; a single system takes one launch for each mode.
        """
        is_single = all(factor.ndim == 2 for factor in factors)
        if is_single:
            return SumOfModes(self, factors)
        plan: SumPlan | ListedSum = _imported("kron_sum.plan.sum_plan")(factors)
        return plan

    def address(self, array: DeviceArray) -> int:
        """Return the device address of an array."""
        return int(array.data.ptr)

    def place_of_work(self) -> tuple[tuple[int, int], object]:
        """Return (device, address of the current stream), and the stream, to keep it alive."""
        stream = device.cupy.cuda.get_current_stream()
        return (device.current_device(), int(stream.ptr)), stream


CUDA = CudaBackend()
