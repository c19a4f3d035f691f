"""The launches of XLA's calls on a device, which the compiled core keeps for each layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from batchkron.backends import backend_on
from batchkron.backends.cpu import native
from batchkron.backends.cuda.kernel_family import forget_by
from batchkron.spec.kron import KronSpec

if TYPE_CHECKING:
    from batchkron.backends.cuda.runtime.launch import LaunchSequence

__all__ = ["PLANNED", "planned"]

# What an address is of that is of no operand: csrc/bindings/jax/device_call.cpp.
_RESULT, _WORKSPACE, _NONE = -1, -2, -3
_Operand = tuple[np.dtype[Any], tuple[int, ...]]
_Plan = tuple["LaunchSequence", int, int, list[tuple[int, int]]]
forget_by(native.forget_jax_plans)


def planned(
    name: str, transpose: bool, device: int, operands: list[tuple[str, tuple[int, ...]]]
) -> tuple[Any, ...]:
    """Return what a call launches; the compiled core calls it from threads of XLA.

    Parameters
    ----------
    name : str
        One of `PLANNED`.
    transpose : bool
        The function's parameter.
    device : int
    operands : list of (str, tuple of int)
        Their dtypes and shapes; all are contiguous.

    Returns
    -------
    tuple
        A sequence of launches; the bytes of its workspace; the number of systems for which it is
        called; for each address of the sequence the number of the operand that it is of, or that of
        another thing, and the bytes from system to system; and the context of the device with the
        driver's functions that make it current.
    """
    from batchkron.backends.cuda.runtime.device import driver_context

    cupy: Any = backend_on("cuda").array_module
    given = [(np.dtype(dtype), shape) for dtype, shape in operands]
    with cupy.cuda.Device(device):
        return *_PLANS[name](transpose, device, given), driver_context()


def _kron_matmul(transpose: bool, device: int, operands: Sequence[_Operand]) -> _Plan:
    from batchkron.backends.cuda.kron.plan import PreparedMultiply, kron_program

    (dtype, (systems, outer, _, inner)), *factors = operands
    first, second = zip(*(shape[1:] for _, shape in factors), strict=True)
    inputs, outputs = (second, first) if transpose else (first, second)
    strides = [(columns, 1) if transpose else (1, columns) for columns in second]
    spec = KronSpec(inputs, outputs, outer, inner, dtype)
    prepared = PreparedMultiply(kron_program(spec, device), strides, device)
    vectors = outer * inner * dtype.itemsize
    sources = [(0, vectors * math.prod(inputs)), (_RESULT, vectors * math.prod(outputs))]
    sources += [(_NONE, 0), (_WORKSPACE, 0)]
    for k, (_, (sets, rows, columns)) in enumerate(factors):
        sources.append((k + 1, rows * columns * dtype.itemsize if sets > 1 else 0))
    return prepared.sequence, prepared.workspace, systems, sources


def _mode_gram(transpose: bool, device: int, operands: Sequence[_Operand]) -> _Plan:
    from batchkron.backends.cuda.gram.plan import GramPlan

    (dtype, (systems, outer, rows, inner)), (_, (_, _, columns, _)) = operands
    plan = GramPlan((outer, rows, columns, inner), dtype, device)
    pairs = outer * inner * dtype.itemsize
    sources = [
        (0, pairs * rows),
        (1, pairs * columns),
        (_RESULT, rows * columns * dtype.itemsize),
        (_WORKSPACE, 0),
    ]
    return plan.sequence(), plan.workspace, systems, sources


_PLANS: dict[str, Callable[[bool, int, Sequence[_Operand]], _Plan]] = {
    "kron_matmul": _kron_matmul,
    "mode_gram": _mode_gram,
}
PLANNED = frozenset(_PLANS)
"""The functions that have such plans."""
