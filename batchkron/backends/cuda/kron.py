"""Multiplies by one Kronecker product, and the product written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.device import (
    DeviceArray,
    Workspaces,
    check_device,
    cupy,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    matrix_factor,
)
from batchkron.backends.device_arguments import explicit_arguments, group_arguments
from batchkron.backends.device_programs import explicit_program, group_program
from batchkron.backends.device_tiling import Group, kron_groups
from batchkron.spec import KronSpec

_EXPLICIT_THREADS = 256


@dataclass(frozen=True, slots=True)
class _Pass:
    """One kernel of a Kron-Matmul, and its arguments but for what a call brings."""

    group: Group
    kernel: Any
    blocks: int
    arguments: Any
    modes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _KronProgram:
    """All kernels of a Kron-Matmul, shared by plans of one spec."""

    passes: tuple[_Pass, ...]
    intermediate: int  # bytes of the largest result of all passes but the last
    workspace: int  # bytes for buffers that do not fit in shared memory


@lru_cache(maxsize=1024)
def _kron_program(spec: KronSpec, device: int) -> _KronProgram:
    limits = device_limits(device)
    groups = kron_groups(spec.inputs, spec.outputs, spec.outer, spec.inner, spec.dtype, limits)
    passes, workspace = [], 0
    for group in groups:
        tiling = group.tiling
        blocks = min(group.tiles(), tiling.most_blocks(limits))
        workspace = max(workspace, blocks * tiling.workspace_bytes)
        arguments = np.zeros(1, group_arguments(spec.dtype, len(tiling.steps)))
        arguments["columns"], arguments["R"] = group.columns, group.R
        arguments["staged"], arguments["buffer"] = tiling.staged_elements, tiling.buffer_elements
        arguments["input_size"] = tiling.input_size
        arguments["output_size"] = tiling.output_size
        arguments["alpha"] = 1
        kernel = load_kernel(group_program(spec.dtype, tiling), device)
        modes = tuple(step.mode for step in tiling.steps)
        passes.append(_Pass(group, kernel, blocks, arguments, modes))
    between = max((group.elements for group in groups[:-1]), default=0)
    return _KronProgram(tuple(passes), between * spec.dtype.itemsize, workspace)


@dataclass(frozen=True, slots=True)
class KronPlan:
    """y = alpha * (F_1 x ... x F_d) x + beta * y, one kernel per group of neighbouring modes."""

    spec: KronSpec
    device: int
    program: _KronProgram | None  # None where nothing is to be multiplied
    _workspaces: Workspaces = field(default_factory=Workspaces)

    def run(
        self,
        factors: Sequence[DeviceArray],
        x: DeviceArray,
        alpha: complex,
        beta: complex,
        y: DeviceArray | None,
        out: DeviceArray,
    ) -> None:
        """Write the result to ``out``, C-contiguous; y may be ``out`` itself."""
        check_device(self.device, x, out)
        if out.size == 0:
            return
        with device_errors():
            # everything is allocated before anything is written
            previous = None
            if beta != 0 and y is not None:
                previous = y if y is out else cupy.ascontiguousarray(y, dtype=self.spec.dtype)
            if self.program is None:
                out[...] = 0 if previous is None else beta * previous
                return
            self._launch(self.program, factors, x, alpha, beta, previous, out)

    def _launch(
        self,
        program: _KronProgram,
        factors: Sequence[DeviceArray],
        x: DeviceArray,
        alpha: complex,
        beta: complex,
        previous: DeviceArray | None,
        out: DeviceArray,
    ) -> None:
        buffers = min(2, len(program.passes) - 1)
        memory = self._workspaces.pointer(buffers * program.intermediate + program.workspace)
        source = x.data.ptr
        for number, one in enumerate(program.passes):
            arguments = one.arguments.copy()
            last = number == len(program.passes) - 1
            target = out.data.ptr if last else memory + number % 2 * program.intermediate
            arguments["x"], arguments["y"] = source, target
            arguments["workspace"] = memory + buffers * program.intermediate
            arguments["steps"]["factors"] = [matrix_factor(factors[mode]) for mode in one.modes]
            if last:
                arguments["alpha"] = alpha
                if previous is not None:
                    arguments["beta"], arguments["previous"] = beta, previous.data.ptr
            tiling = one.group.tiling
            one.kernel((one.blocks,), (tiling.block,), (arguments,), shared_mem=tiling.shared_bytes)
            source = target


def kron_plan(spec: KronSpec) -> KronPlan:
    """Return a plan of a multiply by one Kronecker product; its workspace is its own."""
    device = current_device()
    empty = 0 in (spec.outer, spec.inner, *spec.inputs, *spec.outputs)
    return KronPlan(spec, device, None if empty else _kron_program(spec, device))


def kron(factors: Sequence[DeviceArray], out: DeviceArray) -> None:
    """Write the explicit Kronecker product of matrices of one dtype to ``out``, C-contiguous.

    The right factors are multiplied first: all but the last product are small.
    """
    device = current_device()
    check_device(device, *factors, out)
    with device_errors():
        if len(factors) == 1:
            out[...] = factors[0]
            return
        matrices = list(factors)
        right = matrices.pop()
        while len(matrices) > 1:
            left = matrices.pop()
            shape = (left.shape[0] * right.shape[0], left.shape[1] * right.shape[1])
            product = cupy.empty(shape, out.dtype)
            _explicit(left, right, product, device)
            right = product
        _explicit(matrices[0], right, out, device)


def _explicit(a: DeviceArray, b: DeviceArray, out: DeviceArray, device: int) -> None:
    """Write a ⊗ b to ``out``."""
    if out.size == 0:
        return
    rows, columns = out.shape
    across = min(_EXPLICIT_THREADS, 1 << (columns - 1).bit_length())
    down = _EXPLICIT_THREADS // across
    blocks = min(-(-rows // down), 2**31 - 1)
    wanted = 8 * device_limits(device).multiprocessors
    chunks = min(-(-columns // across), max(1, wanted // blocks))
    arguments = np.zeros(1, explicit_arguments())
    for key, matrix in (("a", a), ("b", b)):
        pointer, _, _, row, column = matrix_factor(matrix)
        arguments[key] = (pointer, *matrix.shape, row, column)
    arguments["out"] = out.data.ptr
    kernel = load_kernel(explicit_program(out.dtype), device)
    kernel((blocks, chunks), (across, down), (arguments,))
