"""The launches of XLA's calls on a device, which the compiled core keeps for each layout."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import jax
import numpy as np

from batchkron.backends import backend_on
from batchkron.backends.cpu import native
from batchkron.backends.cuda.interface.host import forget_by
from batchkron.errors import BackendUnavailableError
from batchkron.spec.kron import KronSpec

if TYPE_CHECKING:
    from batchkron.backends.cuda.interface.device import LaunchSequence

__all__ = ["PLANNED", "Workspace", "planned", "workspace_here"]


class _Source(NamedTuple):
    """What an address is of: the number of an operand, or another number; csrc/bindings/jax.

    The address is ``offset`` bytes behind its first one, and ``step`` bytes more for each system.
    """

    number: int
    step: int = 0
    offset: int = 0


_WORKSPACE, _NONE, _FIRST_RESULT = -1, -2, -3  # result n has the number _FIRST_RESULT - n
_Operand = tuple[np.dtype[Any], tuple[int, ...]]
# What is planned: transpose, wanted and device, as `planned` says, and the operands.
_Call = tuple[bool, tuple[int, ...], int, tuple[_Operand, ...]]

# Of a call: the sequence, bytes of workspace, systems, and of what each of its addresses is.
_Plan: TypeAlias = "tuple[LaunchSequence, int, int, Sequence[_Source]]"


_times_forgotten = itertools.count(1)
_present = "0"  # which plans functions are compiled with


def _forget() -> None:
    """Plan new calls again; functions that were compiled with their workspace keep their plans."""
    global _present
    _present = str(next(_times_forgotten))
    native.forget_jax_plans()


forget_by(_forget)


def planned(
    name: str,
    transpose: bool,
    wanted: str,
    device: int,
    operands: Sequence[tuple[str, tuple[int, ...]]],
    plans: str,
) -> tuple[Any, ...]:
    """Return what a call launches; the compiled core calls it from threads of XLA.

    ``name``: one of `PLANNED`.
    ``transpose``: the function's parameter.
    ``wanted``: the numbers of the results that are wanted, with spaces between; "" for a function
      of one.
    ``operands``: their dtypes and shapes; all are contiguous.
    ``plans``: which plans the call was compiled with, as `Workspace` says; "" if it is planned anew
      after all plans were forgotten.

    Returns a sequence of launches; the bytes of its workspace; the number of systems for which it
    is called; for each address of the sequence the number of the operand that it is of, or that of
    another thing, the bytes from system to system and those before the first one; and the context
    of the device with the driver's functions that make it current.
    """
    given = tuple((np.dtype(dtype), shape) for dtype, shape in operands)
    call = transpose, tuple(map(int, wanted.split())), device, given
    return _kept(name, call, plans) if plans else _planned(name, call)


def _planned(name: str, call: _Call) -> tuple[Any, ...]:
    from batchkron.backends.cuda.interface.device import driver_context

    cupy: Any = backend_on("cuda").array_module
    _, _, device, _ = call
    with cupy.cuda.Device(device):
        return *_PLANS[name](call), driver_context()


@functools.cache
def _kept(name: str, call: _Call, plans: str) -> tuple[Any, ...]:
    return _planned(name, call)


class Workspace(NamedTuple):
    """What a function is compiled with: bytes, and a name for the plans that need so many."""

    bytes: int
    plans: str


def workspace_here(
    name: str, transpose: bool, wanted: str, operands: Sequence[tuple[str, tuple[Any, ...]]]
) -> Workspace | None:
    """Return the workspace of a call that suffices on each CUDA device of this process.

    ``name``, ``transpose``, ``wanted``, ``operands``: as for `planned`; sizes may be symbols.

    Result: None if there is no such device, or sizes are not known.
    """
    devices = _devices_here()
    if not devices or not all(isinstance(n, int) for _, shape in operands for n in shape):
        return None
    plans = _present  # once: another thread may forget them meanwhile
    sizes = [planned(name, transpose, wanted, one, operands, plans)[1] for one in devices]
    return Workspace(max(sizes), plans)


def _devices_here() -> list[int]:
    """Return CUDA's numbers of JAX's devices in this process.

    Plans are made on all of them, also on equal ones: one that were to run later for the first time
    could have plans by then that need more memory.
    """
    try:
        devices = jax.local_devices(backend="cuda")
        backend_on("cuda")
    except (RuntimeError, BackendUnavailableError):  # JAX has no such backend, or there is no CuPy
        return []
    return [one.local_hardware_id for one in devices]


def _kron_matmul(call: _Call) -> _Plan:
    from batchkron.backends.cuda.interface.device import PreparedMultiply, kron_program

    transpose, _, device, ((dtype, (systems, outer, _, inner)), *factors) = call
    rows, columns, strides = _sides(factors, transpose)
    spec = KronSpec(rows, columns, outer, inner, dtype)
    turned = [(across, along) for along, across in strides]
    prepared = PreparedMultiply(kron_program(spec, device), turned, device)
    vectors = outer * inner * dtype.itemsize
    sources = [
        _Source(0, vectors * math.prod(rows)),
        _Source(_FIRST_RESULT, vectors * math.prod(columns)),
        _Source(_NONE),
        _Source(_WORKSPACE),
    ]
    for k, (_, (sets, *shape)) in enumerate(factors):
        sources.append(_Source(k + 1, math.prod(shape) * dtype.itemsize if sets > 1 else 0))
    return prepared.sequence, prepared.workspace, systems, sources


def _sides(
    factors: Sequence[_Operand], transpose: bool
) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]]]:
    """Return the P_k, the Q_k, and elements from row to row and column to column of each A_k."""
    first, second = zip(*(shape[1:] for _, shape in factors), strict=True)
    if transpose:
        return second, first, [(1, columns) for columns in second]
    return first, second, [(columns, 1) for columns in second]


def _kron_gradients(call: _Call) -> _Plan:
    """Of one system, all by kernels: see `batchkron.jax.kron_primitives`."""
    from batchkron.backends.cuda.interface.device import gradients_plan

    transpose, wanted, device, ((dtype, (_, outer, _, inner)), _, *factors) = call
    rows, columns, strides = _sides(factors, transpose)
    spec = KronSpec(rows, columns, outer, inner, dtype)
    needed = tuple(k + 1 in wanted for k in range(len(factors)))
    with_x = 0 in wanted
    plan = gradients_plan(spec, tuple(strides), needed, with_x, transpose, device)
    ((sequence, _),) = plan.parts
    results = [_Source(_FIRST_RESULT - n) for n in range(len(wanted))]
    of_x = results.pop(0) if with_x else _Source(_NONE)
    given = [_Source(k + 2) for k in range(len(factors))]
    memory = _Source(_WORKSPACE), _Source(_WORKSPACE, offset=plan.kept)
    sources = plan.addresses(_Source(0), _Source(1), *memory, of_x, given, given, results)
    return cast("LaunchSequence", sequence), plan.kept + plan.scratch, 1, sources


def _mode_gram(call: _Call) -> _Plan:
    from batchkron.backends.cuda.interface.device import GramPlan

    _, _, device, ((dtype, (systems, outer, rows, inner)), (_, (_, _, columns, _))) = call
    plan = GramPlan((outer, rows, columns, inner), dtype, device)
    pairs = outer * inner * dtype.itemsize
    sources = [
        _Source(0, pairs * rows),
        _Source(1, pairs * columns),
        _Source(_FIRST_RESULT, rows * columns * dtype.itemsize),
        _Source(_WORKSPACE),
    ]
    return plan.sequence(), plan.workspace, systems, sources


_PLANS: dict[str, Callable[[_Call], _Plan]] = {
    "kron_gradients": _kron_gradients,
    "kron_matmul": _kron_matmul,
    "mode_gram": _mode_gram,
}
PLANNED = frozenset(_PLANS)
"""The functions that have such plans."""
