"""The CUDA backend: plans that launch the kernels of ``csrc/cuda`` on CuPy's current stream.

Arrays are CuPy arrays on the current device; a plan's `run` never waits for the device.
"""

from batchkron.backends.cuda.batch import BatchPlan, batch_plan, batched_gemm
from batchkron.backends.cuda.device import Workspaces, place, replace
from batchkron.backends.cuda.device import cupy as array_module
from batchkron.backends.cuda.kron import KronPlan, kron, kron_plan

name = "cuda"
workspace = Workspaces

__all__ = [
    "BatchPlan",
    "KronPlan",
    "Workspaces",
    "array_module",
    "batch_plan",
    "batched_gemm",
    "kron",
    "kron_plan",
    "name",
    "place",
    "replace",
    "workspace",
]
