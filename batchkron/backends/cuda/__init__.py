"""The CUDA backend: plans that launch the kernels of ``csrc/cuda`` on CuPy's current stream.

Arrays are CuPy arrays on the current device; a plan's `run` never waits for the device.
"""

from batchkron.backends.cuda import device, explicit
from batchkron.backends.cuda.batch import BatchPlan, batch_plan, batched_gemm
from batchkron.backends.cuda.device import Workspaces, empty, place
from batchkron.backends.cuda.device import cupy as array_module
from batchkron.backends.cuda.kron import (
    KronPlan,
    KronProduct,
    kron_plan,
    kron_product,
    with_factors,
)

name = "cuda"
workspace = Workspaces
kron = explicit.kron  # the function of the protocol, not the module of that name


def current_device() -> str:
    """Return the place where new operators will be, such as "cuda:0"."""
    return f"cuda:{device.current_device()}"


def reserve(plan: KronProduct | BatchPlan, outer: int, inner: int) -> None:
    """Compile and allocate what a plan's `run` will need, so that it cannot fail halfway."""
    plan.reserve(outer, inner)


__all__ = [
    "BatchPlan",
    "KronPlan",
    "KronProduct",
    "Workspaces",
    "array_module",
    "batch_plan",
    "batched_gemm",
    "current_device",
    "empty",
    "kron",
    "kron_plan",
    "kron_product",
    "name",
    "place",
    "reserve",
    "with_factors",
    "workspace",
]
