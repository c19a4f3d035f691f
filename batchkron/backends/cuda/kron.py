"""Multiplies by one Kronecker product, and the product written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    place,
    upload,
)
from batchkron.backends.device_arguments import explicit_arguments, group_arguments
from batchkron.backends.device_programs import explicit_program, group_program
from batchkron.backends.device_tiling import Group, kron_groups
from batchkron.spec import Array, KronSpec

_EXPLICIT_THREADS = 256
_MOST_PLANS = 64


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

    @property
    def buffers(self) -> int:
        """How many intermediate results there are at a time."""
        return min(2, len(self.passes) - 1)

    @property
    def bytes(self) -> int:
        """All memory that a run needs."""
        return self.buffers * self.intermediate + self.workspace


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


class KronPlan:
    """y = alpha * (F_1 x ... x F_d) x + beta * y, one kernel per group of neighbouring modes.

    Works on the device that is current when it runs.
    """

    def __init__(self, spec: KronSpec, workspaces: Workspaces) -> None:
        self.spec = spec
        self._workspaces = workspaces
        self._is_empty = 0 in (spec.outer, spec.inner, *spec.inputs, *spec.outputs)

    def reserve(self) -> None:
        """Compile what `run` needs on the current device, and allocate its workspace."""
        if not self._is_empty:
            self._workspaces.pointer(_kron_program(self.spec, current_device()).bytes)

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
        device = current_device()
        check_device(device, x, out, *factors, *([] if y is None else [y]))
        if out.size == 0:
            return
        with device_errors():
            # everything is allocated before anything is written
            previous = None
            if beta != 0 and y is not None:
                previous = y if y is out else cupy.ascontiguousarray(y, dtype=self.spec.dtype)
            if self._is_empty:
                out[...] = 0 if previous is None else beta * previous
                return
            program = _kron_program(self.spec, device)
            self._launch(program, factors, x, alpha, beta, previous, out)

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
        memory = self._workspaces.pointer(program.bytes)
        source = x.data.ptr
        for number, one in enumerate(program.passes):
            arguments = one.arguments.copy()
            last = number == len(program.passes) - 1
            target = out.data.ptr if last else memory + number % 2 * program.intermediate
            arguments["x"], arguments["y"] = source, target
            arguments["workspace"] = memory + program.buffers * program.intermediate
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
    return KronPlan(spec, Workspaces())


class KronProduct:
    """y = alpha (F_1 x ... x F_d) x with factors on the current device, and one workspace."""

    def __init__(self, factors: Sequence[Array]) -> None:
        self._device = current_device()
        self._factors = place(factors)
        self._outputs, self._inputs = zip(*[factor.shape for factor in factors], strict=True)
        self._workspaces = Workspaces()
        self._plans: dict[tuple[int, int], KronPlan] = {}

    def set_values(self, factors: Sequence[Array]) -> None:
        """Overwrite the factors, so that captured graphs see the new ones."""
        upload(factors, self._factors)

    def apply(self, x: object, out: object) -> bool:
        """Leave every call to `run`."""
        return False

    def _plan(self, outer: int, inner: int) -> KronPlan:
        plan = self._plans.get((outer, inner))
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            spec = KronSpec(self._inputs, self._outputs, outer, inner, self._factors[0].dtype)
            plan = self._plans[outer, inner] = KronPlan(spec, self._workspaces)
        return plan

    def reserve(self, outer: int, inner: int) -> None:
        """Allocate what `run` will need."""
        self._plan(outer, inner).reserve()

    def run(
        self,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y or overwriting it."""
        check_device(self._device)
        previous = y if accumulate else None
        self._plan(outer, inner).run(self._factors, x, alpha, int(accumulate), previous, y)


def kron_product(factors: Sequence[Array]) -> KronProduct:
    """Return a product with these factors, host arrays of one dtype."""
    return KronProduct(factors)


def with_factors(product: KronProduct, factors: Sequence[Array]) -> KronProduct:
    """Return the product itself with new factors."""
    product.set_values(factors)
    return product


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
