"""Multiplies by one Kronecker product."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.device import (
    ConstantKernel,
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
from batchkron.backends.device_arguments import (
    group_arguments,
    kron_arguments,
)
from batchkron.backends.device_fibres import FibreGroup, fibre_groups
from batchkron.backends.device_programs import (
    fibre_program,
    group_program,
    register_program,
)
from batchkron.backends.device_registers import (
    RegisterGroup,
    RegisterTile,
    factor_words,
    register_groups,
)
from batchkron.backends.device_tiling import Group, kron_groups
from batchkron.spec import Array, KronSpec

_MOST_PLANS = 64


@dataclass(frozen=True, slots=True)
class _Pass:
    """One kernel of a Kron-Matmul, and its arguments but for what a call brings."""

    kernel: Any
    modes: tuple[int, ...]
    elements: int  # of the result of all rows
    blocks: int
    threads: int
    shared_bytes: int
    arguments: Any


@dataclass(frozen=True, slots=True)
class _KronProgram:
    """All kernels of a Kron-Matmul."""

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


def _program(spec: KronSpec, passes: tuple[_Pass, ...], workspace: int = 0) -> _KronProgram:
    between = max((one.elements for one in passes[:-1]), default=0)
    return _KronProgram(passes, between * spec.dtype.itemsize, workspace)


@lru_cache(maxsize=1024)
def _kron_program(spec: KronSpec, device: int) -> _KronProgram:
    """Return the kernels for any factors, shared by all plans of a spec."""
    limits = device_limits(device)
    shape = (spec.inputs, spec.outputs, spec.outer, spec.inner, spec.dtype)
    in_fibres = fibre_groups(*shape, limits)
    if in_fibres is not None:
        return _program(spec, tuple(_fibre_pass(spec, one, device) for one in in_fibres))
    in_registers = register_groups(*shape, False, limits)
    if in_registers is not None:
        return _program(spec, tuple(_register_pass(spec, one, device) for one in in_registers))
    groups = kron_groups(*shape, limits)
    workspace = max(
        min(group.tiles(), group.tiling.most_blocks(limits)) * group.tiling.workspace_bytes
        for group in groups
    )
    return _program(spec, tuple(_general_pass(spec, one, device) for one in groups), workspace)


class _OwnKernels:
    """Kernels whose constants are the factors of one operator, on one device.

    They stay as long as the operator, since captured graphs call them.
    """

    def __init__(self, factors: Sequence[Array], device: int) -> None:
        self._factors, self._device = factors, device
        self._kernels: dict[RegisterTile, ConstantKernel] = {}
        self._changing = threading.Lock()

    def function(self, tile: RegisterTile, dtype: np.dtype[Any]) -> Any:
        """Return the kernel of a tile."""
        with self._changing:
            kernel = self._kernels.get(tile)
            if kernel is None:
                kernel = ConstantKernel(register_program(dtype, tile), self._device)
                self._set(kernel, tile)
                self._kernels[tile] = kernel
            return kernel.function

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Take new factors; no kernel may be running."""
        with self._changing:
            self._factors = factors
            for tile, kernel in self._kernels.items():
                self._set(kernel, tile)

    def _set(self, kernel: ConstantKernel, tile: RegisterTile) -> None:
        kernel.set_constants(factor_words([self._factors[mode] for mode in tile.modes]))

    def program(self, spec: KronSpec) -> _KronProgram | None:
        """Return the kernels of a Kron-Matmul, None where the factors are too large."""
        shape = (spec.inputs, spec.outputs, spec.outer, spec.inner, spec.dtype)
        limits = device_limits(self._device)
        groups = register_groups(*shape, True, limits)
        if groups is None or fibre_groups(*shape, limits) is not None:
            return None
        return _program(
            spec, tuple(_register_pass(spec, one, self._device, self) for one in groups)
        )


def _register_pass(
    spec: KronSpec, group: RegisterGroup, device: int, own: _OwnKernels | None = None
) -> _Pass:
    """Return the kernel of a group of small factors."""
    tile = group.tile
    arguments = np.zeros(1, kron_arguments(spec.dtype, len(tile.modes)))
    arguments["L"], arguments["R"], arguments["alpha"] = group.L, group.R, 1
    return _Pass(
        own.function(tile, spec.dtype)
        if own is not None and tile.constant
        else load_kernel(register_program(spec.dtype, tile), device),
        tile.modes,
        group.elements,
        min(group.tiles(), tile.blocks * device_limits(device).multiprocessors),
        tile.threads,
        tile.shared_bytes,
        arguments,
    )


def _fibre_pass(spec: KronSpec, group: FibreGroup, device: int) -> _Pass:
    """Return the kernel of a group of large factors."""
    tile = group.tile
    arguments = np.zeros(1, kron_arguments(spec.dtype, len(tile.modes)))
    arguments["L"], arguments["R"], arguments["alpha"] = group.L, group.R, 1
    return _Pass(
        load_kernel(fibre_program(spec.dtype, tile), device),
        tile.modes,
        group.elements,
        group.blocks(device_limits(device)),
        tile.threads * tile.teams,
        tile.shared_bytes,
        arguments,
    )


def _general_pass(spec: KronSpec, group: Group, device: int) -> _Pass:
    """Return the kernel of a group of factors of any size."""
    tiling = group.tiling
    arguments = np.zeros(1, group_arguments(spec.dtype, len(tiling.steps)))
    arguments["columns"], arguments["R"] = group.columns, group.R
    arguments["staged"], arguments["buffer"] = tiling.staged_elements, tiling.buffer_elements
    arguments["input_size"] = tiling.input_size
    arguments["output_size"] = tiling.output_size
    arguments["alpha"] = 1
    return _Pass(
        load_kernel(group_program(spec.dtype, tiling), device),
        tuple(step.mode for step in tiling.steps),
        group.elements,
        min(group.tiles(), tiling.most_blocks(device_limits(device))),
        tiling.block,
        tiling.shared_bytes,
        arguments,
    )


class KronPlan:
    """y = alpha * (F_1 x ... x F_d) x + beta * y, one kernel per group of neighbouring modes.

    Works on the device that is current when it runs; with ``own`` kernels, on theirs.
    """

    def __init__(
        self, spec: KronSpec, workspaces: Workspaces, own: _OwnKernels | None = None
    ) -> None:
        self.spec = spec
        self._workspaces = workspaces
        self._is_empty = 0 in (spec.outer, spec.inner, *spec.inputs, *spec.outputs)
        self._own = None if own is None or self._is_empty else own.program(spec)

    def _program(self) -> _KronProgram:
        return self._own or _kron_program(self.spec, current_device())

    def reserve(self) -> None:
        """Compile what `run` needs on the current device, and allocate its workspace."""
        if not self._is_empty:
            self._workspaces.pointer(self._program().bytes)

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
            self._launch(self._program(), factors, x, alpha, beta, previous, out)

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
            matrices = [matrix_factor(factors[mode]) for mode in one.modes]
            if "factors" in arguments.dtype.fields:
                arguments["factors"] = matrices
            else:
                arguments["steps"]["factors"] = matrices
                arguments["workspace"] = memory + program.buffers * program.intermediate
            if last:
                arguments["alpha"] = alpha
                if previous is not None:
                    arguments["beta"], arguments["previous"] = beta, previous.data.ptr
            one.kernel((one.blocks,), (one.threads,), (arguments,), shared_mem=one.shared_bytes)
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
        self._kernels = _OwnKernels(self._on_host(), self._device)
        self._plans: dict[tuple[int, int], KronPlan] = {}

    def set_values(self, factors: Sequence[Array]) -> None:
        """Overwrite the factors, so that captured graphs see the new ones."""
        upload(factors, self._factors)
        self._kernels.set_factors(self._on_host())

    def _on_host(self) -> list[Array]:
        return [cupy.asnumpy(factor) for factor in self._factors]

    def apply(self, x: object, out: object) -> bool:
        """Leave every call to `run`."""
        return False

    def _plan(self, outer: int, inner: int) -> KronPlan:
        plan = self._plans.get((outer, inner))
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            spec = KronSpec(self._inputs, self._outputs, outer, inner, self._factors[0].dtype)
            plan = self._plans[outer, inner] = KronPlan(spec, self._workspaces, self._kernels)
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
