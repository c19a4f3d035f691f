"""What XLA calls: handlers of the compiled core, or Python functions on views of its buffers.

On a device the core launches kernels that Python plans once for each layout, where there is such a
plan; else XLA calls Python each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray

from batchkron.backends.cpu import native
from batchkron.jax.device_calls import PLANNED, planned, workspace_here
from batchkron.jax.python_calls import call

__all__ = ["PLATFORMS", "lowering"]

PLATFORMS = ("cpu", "cuda")

_HANDLERS = {
    "batched_kron": native.jax_batched_kron,
    "kron_gradients": native.jax_kron_gradients,
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
_captured = native.jax_captured_on_device
jax.ffi.register_ffi_target(
    "batchkron_captured", {"initialize": _captured, "execute": _captured}, platform="CUDA"
)


def lowering(name: str, platform: str) -> Any:
    """Return JAX's rule by which a primitive becomes a call of a function.

    ``platform`` ({"cpu", "cuda"}).
    """
    if platform == "cpu" and name in _HANDLERS:
        return _handled(name)
    if platform == "cuda" and name in PLANNED:
        return _planned(name)
    rule = jax.ffi.ffi_lowering("batchkron_python")

    def lower(ctx: Any, *operands: Any, transpose: bool = False, **_: Any) -> Any:
        return rule(ctx, *operands, function=name, transpose=transpose)

    return lower


def _handled(name: str) -> Any:
    """Return the rule for calls of a handler of the CPU."""
    rule = jax.ffi.ffi_lowering(f"batchkron_{name}")

    def lower(ctx: Any, *operands: Any, wanted: Sequence[int] = (), **attributes: Any) -> Any:
        if wanted:
            attributes["wanted"] = " ".join(map(str, wanted))
        return rule(ctx, *operands, **attributes)

    return lower


def _planned(name: str) -> Any:
    """Return the rule for calls whose launches are planned.

    Where the bytes of their workspace are known, it is one more result, so that XLA may capture the
    calls into CUDA graphs. Elsewhere, and in functions that are exported, each call allocates it.
    """
    allocating = jax.ffi.ffi_lowering("batchkron_planned")
    captured = jax.ffi.ffi_lowering("batchkron_captured")

    def lower(
        ctx: Any, *operands: Any, transpose: bool = False, wanted: Sequence[int] = (), **_: Any
    ) -> Any:
        numbers = " ".join(map(str, wanted))
        attributes = {"function": name, "transpose": transpose, "wanted": numbers}
        described = [(aval.dtype.name, aval.shape) for aval in ctx.avals_in]
        exported = ctx.module_context.lowering_parameters.for_export
        workspace = None if exported else workspace_here(name, transpose, numbers, described)
        if workspace is None:
            return allocating(ctx, *operands, **attributes, plans="")
        results = [*ctx.avals_out, ShapedArray((workspace.bytes,), np.dtype("uint8"))]
        changed = ctx.replace(avals_out=results)
        return captured(changed, *operands, **attributes, plans=workspace.plans)[:-1]

    return lower
