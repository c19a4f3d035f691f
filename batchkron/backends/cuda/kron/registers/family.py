"""The family of kernels for small factors: threads hold several modes of a tile in registers.

The kernel's contract is in ``csrc/cuda/kron/registers/kernel.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import product
from types import SimpleNamespace

from batchkron.backends.cuda.estimates import Count
from batchkron.backends.cuda.kernel import Kernel, LaunchShape
from batchkron.backends.cuda.kron.kernel import KronFamily
from batchkron.backends.cuda.kron.registers.cost import CONSTANTS, register_seconds, register_work
from batchkron.backends.cuda.kron.registers.passes import RegisterPass, staged_elements
from batchkron.backends.cuda.kron.registers.variants import (
    RegisterVariant,
    fits,
    may_be_constant,
    may_be_held,
    planner_of,
    tiles_of,
    usual_variants,
    variant_of_few_tiles,
)
from batchkron.backends.cuda.runtime.hardware import REGISTER_FILE, DeviceLimits, resident_blocks
from batchkron.backends.cuda.runtime.program import SCALARS, Program, template_type
from batchkron.backends.cuda.steps import ModeRun

# What tuning tries besides the values of the centre of its search; chosen by hand.
_MAX_HELD_BYTES = 512  # bytes of a tile in the registers of one thread
_THREAD_ELEMENTS = (8, 9, 16, 25, 27, 32, 36, 48, 64, 81, 96, 128)  # elements of a thread
_THREADS = (64, 128, 256, 512)  # threads of a thread block
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)  # thread blocks of a multiprocessor
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # columns of a tile
_MAX_SLICES = 64  # largest number of slices of a tile
_MIN_OTHER_REGISTERS = 16  # registers that a thread needs besides those of its elements


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The passes over a tile, the number of buffers in shared memory, and the elements of one."""

    passes: tuple[RegisterPass, ...]
    buffers: int
    buffer: int


class Registers(KronFamily):
    """Kernels for factors of up to 16 rows and columns, of any dtype."""

    name = "registers"
    variant_type = RegisterVariant
    constants = CONSTANTS

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether the factors are small enough."""
        return may_be_held(run)

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[RegisterVariant]:
        """Return the variant for few tiles if there are few, else the usual ones."""
        few = variant_of_few_tiles(run, device)
        variants = usual_variants(run, device) if few is None else [few]
        return [variant for variant in variants if fits(run, variant, device)]

    def work(
        self, run: ModeRun, variant: RegisterVariant, device: DeviceLimits
    ) -> SimpleNamespace | None:
        """Count what the kernel of a variant does; None if it does not fit."""
        return register_work(run, variant, device) if fits(run, variant, device) else None

    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch."""
        return register_seconds(work, costs)

    def kernel(self, run: ModeRun, variant: RegisterVariant, device: DeviceLimits) -> Kernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        if not (self.accepts(run, device) and fits(run, variant, device)):
            return None
        planner = planner_of(run, variant.slices, variant.columns, variant.held)
        constant, pads = may_be_constant(run), planner.pads()
        if planner.shared_bytes(pads, constant) > device.shared_bytes:
            pads = planner.unpadded()
        shared = planner.shared_bytes(pads, constant)
        resident = max(1, min(variant.blocks, resident_blocks(shared, device)))
        buffers = planner.buffers()
        tile = RegisterTile(planner.passes(pads), buffers, planner.buffer(pads) if buffers else 0)
        blocks = min(tiles_of(run.L, run.R, variant), resident * device.multiprocessors)
        launch = LaunchShape(blocks, variant.threads, resident, shared)
        return self.made(run, variant, device, _program(run, variant, tile, resident), launch, tile)

    def near(
        self,
        run: ModeRun,
        centre: RegisterVariant,
        changes: int,
        longer: float,
        device: DeviceLimits,
    ) -> Iterator[RegisterVariant]:
        """Yield variants with registers, of at most ``changes`` other numbers, nearest first."""
        now = astuple(centre)
        found = []
        for values in product(*_options(run, centre)):
            changed = sum(value != old for value, old in zip(values, now, strict=True))
            if not 0 < changed <= changes:
                continue
            one = RegisterVariant(*values)
            registers = REGISTER_FILE // (one.threads * one.blocks)
            room = registers >= one.held * run.itemsize // 4 + _MIN_OTHER_REGISTERS
            whole = one.columns == run.R or one.slices == 1
            if whole and (room or one.held == centre.held):
                pairs = zip(values, now, strict=True)
                found.append((changed, sum(abs(math.log2(a / b)) for a, b in pairs), values))
        yield from (RegisterVariant(*values) for _, _, values in sorted(found))


def _options(run: ModeRun, centre: RegisterVariant) -> list[tuple[int, ...]]:
    """Return the values to try for each field of a `RegisterVariant`."""
    widths = {centre.columns, *(width for width in _WIDTHS if width <= run.R)}
    if max(_WIDTHS) >= run.R:
        widths.add(run.R)
    slices = {centre.slices, *(1 << bit for bit in range(_MAX_SLICES.bit_length()))}
    largest = max(*run.inputs, *run.outputs)
    held = {centre.held, largest, largest**2, 3 * largest, *_THREAD_ELEMENTS}
    return [
        tuple(n for n in sorted(slices) if n <= run.L),
        tuple(sorted(widths)),
        tuple(n for n in sorted(held) if n * run.itemsize <= _MAX_HELD_BYTES),
        tuple(sorted({centre.threads, *_THREADS})),
        tuple(sorted({centre.blocks, *_BLOCKS})),
    ]


def _pass_type(one: RegisterPass) -> str:
    registers = (
        f"batchkron::RegisterAxis<{a.factor}, {a.C}, {a.K}, {a.from_}, {a.to}>"
        for a in one.registers
    )
    threads = (
        f"batchkron::ThreadAxis<{a.size}, {a.bound}, {a.from_}, {a.to}>" for a in one.threads
    )
    return (
        f"batchkron::Pass<batchkron::RegisterAxes<{', '.join(registers)}>, "
        f"batchkron::ThreadAxes<{', '.join(threads)}>>"
    )


def _program(run: ModeRun, variant: RegisterVariant, tile: RegisterTile, resident: int) -> Program:
    scalar = SCALARS[run.dtype]
    pairs = zip(run.inputs, run.outputs, strict=True)
    sizes = ", ".join(f"batchkron::FactorSize<{C}, {K}>" for C, K in pairs)
    constants, kind = 0, "Shared"
    if may_be_constant(run):
        constants, kind = staged_elements(run.inputs, run.outputs, run.itemsize), "Constant"
    R = run.R if run.fixed_columns else 0  # 0: known only when the kernel runs
    shape = variant.slices, variant.columns, R, math.prod(run.inputs), math.prod(run.outputs)
    room = tile.buffer, tile.buffers, variant.threads, resident
    factors = f"batchkron::{kind}Factors<{scalar}, {sizes}>"
    what = template_type("RegisterTile", *shape, *room), factors, *map(_pass_type, tile.passes)
    expression = template_type("kron_registers", scalar, *what)
    return Program("cuda/kron/registers/kernel.cuh", expression, constants, scalar)
