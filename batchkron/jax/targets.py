"""What XLA calls: handlers of the compiled core, or Python functions on views of its buffers.

On a device the core launches kernels that Python plans once for each layout, where there is such a
plan; else XLA calls Python each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from batchkron.backends.cpu import native
from batchkron.jax.device_calls import PLANNED, planned
from batchkron.jax.python_calls import call

__all__ = ["PLATFORMS", "lowering"]

PLATFORMS = ("cpu", "cuda")

_HANDLERS = {
    "batched_kron": native.jax_batched_kron,
    "kron_matmul": native.jax_kron_matmul,
    "kronecker_sparse": native.jax_kronecker_sparse,
}
"""Functions of the CPU that need no Python."""

native.set_jax_function(call)
native.set_jax_planner(planned)
for _name, _handler in _HANDLERS.items():
    jax.ffi.register_ffi_target(f"batchkron_{_name}", _handler, platform="cpu")
jax.ffi.register_ffi_target("batchkron_python", native.jax_python_on_host, platform="cpu")
jax.ffi.register_ffi_target("batchkron_python", native.jax_python_on_device, platform="CUDA")
jax.ffi.register_ffi_target("batchkron_planned", native.jax_planned_on_device, platform="CUDA")


def lowering(name: str, platform: str) -> Any:
    """Return JAX's rule by which a primitive becomes a call of a function.

    Parameters
    ----------
    name : str
    platform : {"cpu", "cuda"}

    Returns
    -------
    callable
    """
    if platform == "cpu" and name in _HANDLERS:
        return jax.ffi.ffi_lowering(f"batchkron_{name}")
    if platform == "cuda" and name in PLANNED:
        return _planned(name)
    rule = jax.ffi.ffi_lowering("batchkron_python")

    def lower(ctx: Any, *operands: Any, transpose: bool = False, **_: Any) -> Any:
        return rule(ctx, *operands, function=name, transpose=transpose)

    return lower


def _planned(name: str) -> Any:
    rule = jax.ffi.ffi_lowering("batchkron_planned")

    def lower(
        ctx: Any, *operands: Any, transpose: bool = False, wanted: Sequence[int] = (), **_: Any
    ) -> Any:
        numbers = " ".join(map(str, wanted))
        return rule(ctx, *operands, function=name, transpose=transpose, wanted=numbers)

    return lower
