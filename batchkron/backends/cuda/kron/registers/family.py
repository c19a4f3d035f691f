"""The family of kernels for small factors: threads hold several modes of a tile in registers.

The kernel's contract is in ``csrc/cuda/kron/registers/kernel.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from types import SimpleNamespace
from typing import ClassVar

from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
    warps_of,
)
from batchkron.backends.cuda.kernel import Kernel, LaunchShape
from batchkron.backends.cuda.kron.kernel import MEMORY, KronFamily
from batchkron.backends.cuda.kron.registers.passes import RegisterPass, ThreadAxis, staged_elements
from batchkron.backends.cuda.kron.registers.variants import (
    RegisterVariant,
    fits,
    is_in_cache,
    may_be_constant,
    may_be_held,
    planner_of,
    tile_planner,
    tiles_of,
    usual_variants,
    variant_of_few_tiles,
)
from batchkron.backends.cuda.runtime.hardware import (
    LINE,
    REGISTER_FILE,
    SECTOR,
    WARP,
    DeviceLimits,
    resident_blocks,
)
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


_Tile = tuple[tuple[RegisterPass, ...], int, int]
"""The passes over a tile, the number of buffers in shared memory, and the elements of one."""


class Registers(KronFamily):
    """Kernels for factors of up to 16 rows and columns, of any dtype."""

    name = "registers"
    numbers = RegisterVariant._fields
    variant_type = RegisterVariant._make
    constants: ClassVar = {
        "launch": (1000, "launch of an empty kernel in a CUDA graph"),
        "factor": (150, "latency of copying one factor to shared memory"),
        "factor_turn": (100, "one iteration of the loop in which a thread copies a factor"),
        "constant_line": (100, "latency of 128 bytes of factors from constant memory"),
        "turn": (
            120,
            "one iteration of a thread over the items of a pass: loads, barrier",
        ),
        "multiply_add": (0.6, "latency of a multiply-add that depends on the one before"),
        "tile": (20, "a multiprocessor's time for each tile"),
        "warp_multiply_add": (
            0.2,
            "its time for each multiply-add of a warp and word (4 bytes) of an element",
        ),
        "warp_factor": (
            0.1,
            "its time for each word of a factor that a warp reads (shared memory)",
        ),
        "line": (0.3, "its time for each 128-byte line of the array that a warp touches"),
        "memory_latency": (2500, "latency of memory, for data that is in no cache"),
        **MEMORY,
        "scattered": (
            0.1,
            "relative increase of the time of transfers if a warp writes to twice as many "
            "sectors as its data would fill",
        ),
        "sharpness": (1.7, "see `slowest`"),
    }

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
        """Count what a kernel does: a thread, and all warps for a tile; None if it does not fit."""
        if not fits(run, variant, device):
            return None
        size, threads = run.itemsize, variant.threads
        sizes = run.inputs, run.outputs, variant.slices, variant.columns
        passes, factors, buffers = _counted_tile(*sizes, size, variant.held, is_in_cache(run))
        constant = may_be_constant(run)
        factor_bytes = sum(factors) * size
        shared = buffers + (0 if constant else factor_bytes)
        blocks = max(1, min(variant.blocks, resident_blocks(shared, device)))
        tiles = ceil_div(run.L, variant.slices) * ceil_div(run.R, variant.columns)
        first, last = passes[0], passes[-1]
        turns = [ceil_div(one.items, threads) for one in passes]
        products = 4 if run.dtype.kind == "c" else 1  # real multiply-adds of one
        words = size / 4
        sectors = _pieces(last.threads, False, run.R, size, SECTOR)
        return SimpleNamespace(
            rounds=ceil_div(tiles, device.multiprocessors * blocks),
            tiles=ceil_div(tiles, device.multiprocessors),
            factors=0 if constant else len(run.inputs),
            factor_turns=0 if constant else sum(ceil_div(one, threads) for one in factors),
            constant_lines=factor_bytes / LINE if constant else 0,
            turns=sum(turns),
            multiply_adds=products
            * sum(turn * one.multiply_adds for turn, one in zip(turns, passes, strict=True)),
            warp_multiply_adds=math.sqrt(products)
            * words
            * sum(one.warps * one.multiply_adds for one in passes),
            warp_factors=0
            if constant
            else words * sum(one.warps * one.factor_elements for one in passes),
            lines=first.warps * first.inputs * _pieces(first.threads, True, run.R, size, LINE)
            + last.warps * last.outputs * _pieces(last.threads, False, run.R, size, LINE),
            moved=run.bytes,
            scattered=max(0.0, sectors * SECTOR / (min(WARP, last.items) * size) - 1),
        )

    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch."""
        share = share_of_memory(work.moved, costs.cache_bytes)
        latency = costs.turn * work.turns + costs.multiply_add * work.multiply_adds
        busy = (
            costs.tile
            + costs.warp_multiply_add * work.warp_multiply_adds
            + costs.warp_factor * work.warp_factors
            + costs.line * work.lines
        )
        memory = moving(work.moved, share, costs.memory_rate, costs.cache_rate)
        memory = memory * (1 + costs.scattered * work.scattered) + costs.memory_latency * share
        begin = (
            costs.launch
            + costs.factor * work.factors
            + costs.factor_turn * work.factor_turns
            + costs.constant_line * work.constant_lines
        )
        total = begin + slowest(costs.sharpness, work.rounds * latency, work.tiles * busy, memory)
        return total * NANOSECOND

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
        tile = planner.passes(pads), buffers, planner.buffer(pads) if buffers else 0
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
        found = []
        for values in product(*_options(run, centre)):
            changed = sum(value != old for value, old in zip(values, centre, strict=True))
            if not 0 < changed <= changes:
                continue
            one = RegisterVariant(*values)
            registers = REGISTER_FILE // (one.threads * one.blocks)
            room = registers >= one.held * run.itemsize // 4 + _MIN_OTHER_REGISTERS
            whole = one.columns == run.R or one.slices == 1
            if whole and (room or one.held == centre.held):
                pairs = zip(values, centre, strict=True)
                found.append((changed, sum(abs(math.log2(a / b)) for a, b in pairs), values))
        yield from (RegisterVariant(*values) for _, _, values in sorted(found))


@lru_cache(maxsize=4096)
def _counted_tile(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    slices: int,
    columns: int,
    itemsize: int,
    held: int,
    cached: bool,
) -> tuple[tuple[SimpleNamespace, ...], tuple[int, ...], int]:
    """Return passes, elements of each factor in shared memory, and bytes of buffers."""
    planner = tile_planner(inputs, outputs, slices, columns, itemsize, held, cached)
    pads = planner.unpadded()
    passes = tuple(map(_counted, planner.passes(pads)))
    factors = tuple(
        staged_elements((C,), (K,), itemsize) for C, K in zip(inputs, outputs, strict=True)
    )
    return passes, factors, planner.shared_bytes(pads, constant=True)


def _counted(one: RegisterPass) -> SimpleNamespace:
    """Return the counts of a pass: items of a tile, and for each its elements and the work."""
    inputs = elements = math.prod(axis.C for axis in one.registers)
    multiply_adds = factor_elements = 0
    for axis in one.registers:
        if axis.factor >= 0:
            elements = elements // axis.C * axis.K
            multiply_adds += elements * axis.C
            factor_elements += axis.C * axis.K
    return SimpleNamespace(
        items=one.items,
        warps=warps_of(one.items),
        inputs=inputs,
        outputs=elements,
        multiply_adds=multiply_adds,
        factor_elements=factor_elements,
        threads=one.threads,
    )


def _pieces(axes: Sequence[ThreadAxis], reads: bool, R: int, itemsize: int, piece: int) -> int:
    """Return how many aligned pieces of ``piece`` bytes of the array a warp touches at once."""
    places = [0]
    for axis in axes:
        stride = (axis.from_ if reads else axis.to) * (1 if axis.bound == 2 else R)
        count = min(axis.size, WARP // len(places))
        if count > 1:
            places = [n * stride + place for n in range(count) for place in places]
        if count < axis.size:
            break
    return len({place * itemsize // piece for place in places})


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


def _program(run: ModeRun, variant: RegisterVariant, tile: _Tile, resident: int) -> Program:
    scalar, (passes, buffers, buffer) = SCALARS[run.dtype], tile
    pairs = zip(run.inputs, run.outputs, strict=True)
    sizes = ", ".join(f"batchkron::FactorSize<{C}, {K}>" for C, K in pairs)
    constants, kind = 0, "Shared"
    if may_be_constant(run):
        constants, kind = staged_elements(run.inputs, run.outputs, run.itemsize), "Constant"
    R = run.R if run.fixed_columns else 0  # 0: known only when the kernel runs
    shape = variant.slices, variant.columns, R, math.prod(run.inputs), math.prod(run.outputs)
    room = buffer, buffers, variant.threads, resident
    factors = f"batchkron::{kind}Factors<{scalar}, {sizes}>"
    what = template_type("RegisterTile", *shape, *room), factors, *map(_pass_type, passes)
    expression = template_type("kron_registers", scalar, *what)
    return Program("cuda/kron/registers/kernel.cuh", expression, constants, scalar)
