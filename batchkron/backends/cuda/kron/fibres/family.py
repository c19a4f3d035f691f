"""The family of kernels for larger factors: fibres of tiles in shared memory, multiplied in place.

Single precision uses ordinary cores, or matrix units if the user asked for TF32; double precision
uses matrix units. The estimated time is

    time = launch + factors + slowest(a thread group's tiles, a multiprocessor's work, memory)

where a thread group (a "team" of warps) computes its tiles one after another. Pure arithmetic on
sizes, no device needed; the kernel's contract is in ``csrc/cuda/kron/fibres/kernel.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
)
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron.fibres.layout import fibre_program, fibre_tile
from batchkron.backends.cuda.kron.fibres.passes import (
    RING,
    FibreVariant,
    Share,
    divisions_of,
    extents_of,
    shares_of,
    word_of,
    writes_to_array,
)
from batchkron.backends.cuda.kron.kernel import KronFamily, KronKernel, empty_arguments
from batchkron.backends.cuda.runtime.hardware import (
    MAX_THREAD_REGISTERS,
    REGISTER_FILE,
    SECTOR,
    WARP,
    DeviceLimits,
)
from batchkron.backends.cuda.steps import ModeRun

# Numbers below were chosen by hand.
_SMALLEST = 8  # rows or columns that the largest factor must have; smaller ones fit in registers
_MAX_MODES = 6  # largest number of modes of a run
# For each number of warps of a team, the choices for the teams of a thread block.
_TEAM_COUNTS = {
    1: (4, 6, 8, 12, 16),
    2: (2, 4, 6, 8),
    3: (4,),
    4: (1, 2, 3, 4, 5, 6),
    6: (2,),
    8: (1, 2),
    12: (1,),
    16: (1,),
}
_STAGES = (1, 2, RING)
_COLUMNS = (128, 64, 32, 16, 8, 4)  # choices for the columns of a tile, besides all
_MAX_WHOLE_ROW = 64  # longest rows of which tiles may have all columns
_MAX_SLICES = 128  # a power of two
_MAX_UNPADDED_SHARE = 0.98  # share of shared memory that tiles may fill before padding is added
# What no choice depends on.
_NOT_LOOKED_AT: dict[str, Any] = {
    "first": 0,
    "constant": False,
    "fixed_columns": False,
    "identities": (),
}
_STAGING_BATCH = 8  # values of a factor that a thread loads before it waits for them


class Fibres(KronFamily):
    """Kernels for up to six modes with real factors."""

    name = "fibres"
    variant_type = FibreVariant
    has_many_variants = True
    constants: ClassVar = {
        "launch": (1500, "a kernel launch in a CUDA graph, until the kernel loads its factors"),
        "factor_byte": (0.05, "latency of loading a byte of all factors"),
        "staging": (170, "latency of each batch of values of factors that a thread loads"),
        "single": (0.46, "a cycle of a pass in single precision, see `passes`"),
        "double": (0.5, "a cycle of a pass on float64 matrix units"),
        "tf32": (0.55, "a cycle of a pass in TF32"),
        "idle": (3, "warps that could issue while a multiprocessor issues nothing"),
        "uneven": (0.35, "power of (warps of the busiest of four schedulers over the mean)"),
        "copy": (6, "time of a multiprocessor for each copy instruction of a warp"),
        "ring": (0.75, "factor of the time of passes whose warps need not wait for each other"),
        "division": (50, "latency of an integer division, to find where a fibre begins"),
        "memory_latency": (600, "latency of memory, for data that is in no cache"),
        "memory_rate": (4000, "bandwidth of memory, bytes per nanosecond"),
        "cache_rate": (8000, "bandwidth of the second-level cache"),
        "cache_bytes": (4e6, "if this many bytes are read and written, half are in the cache"),
        "full": (0.3, "relative increase of memory time if tiles fill shared memory"),
        "row": (16, "extra time of each row of a tile, in bytes that it would transfer"),
        "unaligned": (
            2.5,
            "relative increase of memory time where rows are not aligned to "
            "sectors and as long as one; of longer ones less",
        ),
        "sharpness": (3, "see `slowest`"),
    }

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether the factors are real and large enough, and not too many."""
        fits = run.dtype.kind == "f" and len(run.inputs) <= _MAX_MODES
        return fits and max(*run.inputs, *run.outputs) >= _SMALLEST

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[FibreVariant]:
        """Return all variants that fit in shared memory, those of the smallest estimate first."""
        return [variant for _, variant in _timed(self, _at_the_front(run), device)]

    def choose(self, run: ModeRun, device: DeviceLimits) -> tuple[float, FibreVariant] | None:
        """Return the variant of the smallest estimate, and that."""
        timed = _timed(self, _at_the_front(run), device) if self.accepts(run, device) else ()
        return next(iter(timed), None)

    def near(
        self, run: ModeRun, centre: FibreVariant, changes: int, longer: float, device: DeviceLimits
    ) -> Iterator[FibreVariant]:
        """Yield the variants whose estimate is at most ``longer`` times that of ``centre``."""
        bound = longer * self.estimate(run, centre, device)
        timed = _timed(self, _at_the_front(run), device)
        yield from (variant for seconds, variant in timed if seconds <= bound)

    def work(
        self, run: ModeRun, variant: FibreVariant, device: DeviceLimits
    ) -> SimpleNamespace | None:
        """Count what a kernel does; cycles, copies and bytes are those of a tile."""
        shares = _shares(run, variant, device)
        if shares is None:
            return None
        one, size = variant, run.itemsize
        tiles = ceil_div(run.L, one.slices) * ceil_div(run.R, one.columns)
        rounds = ceil_div(tiles, device.multiprocessors)
        turns = ceil_div(rounds, one.teams)
        together = min(one.teams, rounds) * one.warps  # warps that have work
        moved = math.prod(run.inputs) + math.prod(run.outputs)
        elements = one.slices * one.columns * moved
        width = one.columns * size
        in_words = word_of(run, one.columns) > 1
        whole = one.columns == run.R
        aligned = whole or run.R * size % SECTOR == 0
        factor_bytes = sum(C * K for C, K in zip(run.inputs, run.outputs, strict=True)) * size
        staged = sum(share.staged for share in shares)
        in_registers = shares[0].factor_in_registers
        cycles = {"single": 0.0, "double": 0.0, "tf32": 0.0}
        for share in shares:
            units = "double" if size == 8 or share.split else "single"
            cycles["tf32" if share.products else units] += share.cycles
        return SimpleNamespace(
            **cycles,
            in_ring=int(one.stages == RING),
            divisions=divisions_of(run, one.slices, one.columns, one.warps, shares),
            copies=elements * size / (16 if in_words else size) / WARP,
            bytes=elements * size,
            moved=run.bytes,
            warps=one.warps,
            together=together,
            uneven=ceil_div(together, 4) * 4 / together,
            rounds=rounds,
            turns=turns,
            overlapped=int(one.stages > 1 and turns > 1),
            filled=_buffer_bytes(run, variant) / device.shared_bytes,
            rows=0 if whole else 1 / width,
            sectors_cut=0 if aligned else SECTOR / width,
            factor_bytes=factor_bytes,
            staged_bytes=staged * size + factor_bytes * in_registers,
            batches=ceil_div(staged, _STAGING_BATCH * one.teams * one.warps * WARP),
            multiprocessors=device.multiprocessors,
        )

    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch."""
        multiplying = costs.single * work.single + costs.double * work.double
        multiplying = multiplying + costs.tf32 * work.tf32
        multiplying = multiplying * (1 + work.in_ring * (costs.ring - 1))
        busy = (1 + costs.idle / work.together) * multiplying * work.warps / 4
        busy = (busy + costs.copy * work.copies) * work.uneven**costs.uneven
        share = share_of_memory(work.moved, costs.cache_bytes)
        narrow = 1 + costs.row * work.rows + costs.unaligned * work.sectors_cut
        transferred = narrow * work.bytes * work.multiprocessors
        memory = moving(transferred, share, costs.memory_rate, costs.cache_rate)
        memory = memory * (1 + costs.full * work.filled)
        loading = costs.memory_latency * share + transferred / costs.cache_rate
        at_once = slowest(costs.sharpness, multiplying, loading)
        alone = work.overlapped * at_once + (1 - work.overlapped) * (multiplying + loading)
        begin = (
            costs.launch
            + costs.factor_byte * work.factor_bytes
            + costs.staging * work.batches
            + work.staged_bytes * work.multiprocessors / costs.cache_rate
            + costs.division * work.divisions
        )
        parts = work.turns * alone, work.rounds * busy, work.rounds * memory
        return (begin + slowest(costs.sharpness, *parts)) * NANOSECOND

    def kernel(
        self, run: ModeRun, variant: FibreVariant, device: DeviceLimits, owners: int = 0
    ) -> KronKernel | None:
        """Return the kernel of a variant, None if it does not fit.

        ``owners``: over the memory of so many the results are spread (`spread`); 0 for one array.
        """
        shares = _shares(run, variant, device) if self.accepts(run, device) else None
        if shares is None:
            return None
        tile = fibre_tile(_at_the_front(run), variant, shares, device)
        if owners and (tile.step == 0 or tile.modes[-1] != 0):
            return None
        tiles = ceil_div(run.L, variant.slices) * ceil_div(run.R, variant.columns)
        blocks = min(tiles, device.multiprocessors)
        threads = variant.warps * variant.teams * WARP
        return KronKernel(
            self,
            run,
            variant,
            tuple(run.first + mode for mode in tile.modes),
            fibre_program(run, variant, tile, owners),
            LaunchShape(blocks, threads, 1, tile.shared_bytes),
            empty_arguments(run),
            self.estimate(run, variant, device),
            tile,
        )


def _at_the_front(run: ModeRun) -> ModeRun:
    """Return a run without what no choice depends on, so that choices are found again."""
    return replace(run, **_NOT_LOOKED_AT)


@lru_cache(maxsize=4096)
def _timed(
    family: Fibres, run: ModeRun, device: DeviceLimits
) -> tuple[tuple[float, FibreVariant], ...]:
    """Return all variants with their estimated seconds, the fastest first."""
    teams = [(count, warps) for warps, counts in _TEAM_COUNTS.items() for count in counts]
    found = []
    for (slices, columns), (count, warps), stages in product(
        _widths(run.L, run.R, run.itemsize), teams, _STAGES
    ):
        for units in (0, 1) if run.products else (0,):
            variant = FibreVariant(slices, columns, count, warps, stages, units)
            seconds = family.estimate(run, variant, device)
            if seconds < math.inf:
                found.append((seconds, variant))
    return tuple(sorted(found, key=lambda one: one[0]))


@lru_cache(maxsize=64)
def _widths(L: int, R: int, itemsize: int) -> tuple[tuple[int, int], ...]:
    """Return the choices for slices and columns of a tile."""
    found = []
    if R <= _MAX_WHOLE_ROW:
        found += [(1 << bit, R) for bit in range(min(_MAX_SLICES, L).bit_length())]
    found += [(1, width) for width in _COLUMNS if width < R and width * itemsize >= SECTOR]
    return tuple(found)


def _buffer_bytes(run: ModeRun, variant: FibreVariant) -> int:
    """Return the bytes of all tiles in shared memory, without padding."""
    tiles = variant.teams * variant.stages
    elements = variant.slices * math.prod(extents_of(run)) * variant.columns
    return tiles * elements * run.itemsize


def _shares(run: ModeRun, variant: FibreVariant, device: DeviceLimits) -> tuple[Share, ...] | None:
    """Return a warp's share of each pass, None if the variant does not fit."""
    one, buffers = variant, _buffer_bytes(run, variant)
    if (one.slices, one.columns) not in _widths(
        run.L, run.R, run.itemsize
    ) or one.stages not in _STAGES:
        return None
    if one.teams not in _TEAM_COUNTS.get(one.warps, ()) or buffers > device.shared_bytes:
        return None
    run = replace(run, L=1, products=run.products * one.units, **_NOT_LOOKED_AT)
    registers = min(MAX_THREAD_REGISTERS, REGISTER_FILE // (one.teams * one.warps * WARP) // 8 * 8)
    sizes = one.slices, one.columns, one.warps, registers
    shares = shares_of(run, *sizes, device.double_units)
    if shares is None or any(share.products for share in shares) != bool(one.units):
        return None
    if one.stages == RING and not _may_ring(run, variant, shares[-1]):
        return None
    staged = sum(share.staged for share in shares) * run.itemsize
    fits = staged + buffers <= _MAX_UNPADDED_SHARE * device.shared_bytes
    return shares if fits else None


def _may_ring(run: ModeRun, variant: FibreVariant, last: Share) -> bool:
    """Whether tiles may form a ring: one team, whose warps read tiles and write to the array."""
    is_shared = variant.teams == 1 and last.factor_in_registers
    return is_shared and writes_to_array(run, variant.columns, last.along)
