"""The choice of a kernel where estimated times of families cannot be compared.

Each operation has its families in an order of preference, and the first that has a kernel for the
work is taken. A family has none where a later one was faster; its docstring says where that is, and
what it gains. Kron-Matmuls and Kronecker-sparse matrices compare seconds instead:
``kron/choose.py``, ``kron_sparse/choose.py``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from batchkron.backends.cuda.kernel import Family, Kernel, first_kernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

# Modules of each operation's folder with a family each, in capitals of the same name. Earlier ones
# were faster where both have a kernel (docs/results/gpu.md, docs/results/gpu-history.md).
ORDER = {
    "batch": ("matrix_units", "unit_slices", "slices", "registers", "unsorted", "general"),
    "explicit": ("bands", "tiles"),
    "kron_sum": ("systems",),
    "segmented": ("staged", "general"),
}


@cache
def families(operation: str) -> tuple[Family, ...]:
    """Return the families of an operation in `ORDER`, imported on the first request."""
    modules = (f"batchkron.backends.cuda.{operation}.{name}" for name in ORDER[operation])
    return tuple(getattr(import_module(one), one.rpartition(".")[2].upper()) for one in modules)


def kernel_of(operation: str, work: Any, device: DeviceLimits) -> Kernel | None:
    """Return the first family's kernel, None if there is none; `is_better` families come first."""
    order = sorted(families(operation), key=lambda one: not one.is_better(work))
    return first_kernel(tuple(order), work, device)


def needed_kernel(operation: str, work: Any, device: DeviceLimits) -> Kernel:
    """Return what `kernel_of` does; raises LookupError if no family has a kernel."""
    kernel = kernel_of(operation, work, device)
    if kernel is None:
        raise LookupError(f"no family of {operation} kernels takes this work: {work}")
    return kernel
