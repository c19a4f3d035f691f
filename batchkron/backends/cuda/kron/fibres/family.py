"""The family of kernels for larger factors: fibres of tiles in shared memory, multiplied in place.

Single precision uses ordinary cores, or matrix units if the user asked for TF32; double precision
uses matrix units. The variant of a run is that of the best rank (``rank``), corrected by its bank
conflicts (``layout``); its estimated time, which is compared with those of other families, is

    time = launch + factors + slowest(a thread group's tiles, a multiprocessor's work, memory)

where a thread group, several warps, computes its tiles one after another. The kernel's contract is
in ``csrc/cuda/kron/fibres/kernel.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import ClassVar

from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
)
from batchkron.backends.cuda.kernel import Kernel, LaunchShape
from batchkron.backends.cuda.kron.fibres.layout import fibre_program, fibre_tile
from batchkron.backends.cuda.kron.fibres.passes import (
    LANES,
    RING,
    FibreVariant,
    Share,
    adds_without_carry,
    alone,
    at_the_front,
    extents_of,
    factor_fragments,
    mode_steps,
    shares_of,
    word_of,
    writes_to_array,
)
from batchkron.backends.cuda.kron.fibres.rank import NARROW_BYTES, ranks, slower_by_conflicts
from batchkron.backends.cuda.kron.kernel import MEMORY, KronFamily
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


class Fibres(KronFamily):
    """Kernels for up to six modes with real factors."""

    name = "fibres"
    numbers = FibreVariant._fields
    variant_type = FibreVariant._make
    constants: ClassVar = {
        "launch": (1500, "a kernel launch in a CUDA graph, until the kernel loads its factors"),
        "factor_kilobyte": (30, "loading 1024 bytes of factors"),
        "factor_word": (100, "each 16-byte word of factors that a thread copies to shared memory"),
        "multiply_add": (0.4, "latency of a multiply-add in single precision"),
        "store": (7, "latency of a result of a thread in single precision"),
        "step": (8, "latency between two multiply-adds to the same sum"),
        "unit_store": (30, "latency of four results of a thread in double precision"),
        "tf32_load": (15, "latency of a word that a thread reads for TF32 multiply-adds"),
        "place": (30, "latency of an integer division, to find where a fibre begins"),
        "warp_multiply_add": (0.16, "a multiprocessor's time of a warp's multiply-add, float32"),
        "warp_unit": (1.2, "of a 16 x 8 x 4 multiply-add of float64 matrix units"),
        "warp_tf32_unit": (1.2, "of a 16 x 8 x 8 multiply-add in TF32"),
        "warp_convert": (0.5, "of a word of float32 that a warp converts to float64"),
        "warp_item": (20, "of an iteration of a warp over groups of fibres"),
        "thread_copy": (0.16, "of an element or word that a thread copies from or to the array"),
        "memory_latency": (1000, "latency of memory, for data that is in no cache"),
        **MEMORY,
        "narrow": (0.8, "relative increase of memory time by how short a tile's rows are"),
        "unaligned": (3, "the same where rows are not aligned to sectors"),
        "sharpness": (2.4, "see `slowest`"),
    }

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether the factors are real and large enough, and not too many."""
        fits = run.dtype.kind == "f" and len(run.inputs) <= _MAX_MODES
        return fits and max(*run.inputs, *run.outputs) >= _SMALLEST

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[FibreVariant]:
        """Return all variants that fit in shared memory, those of the best rank first."""
        ranked = [way for one in _ways(run) for way in _ranked(one, device)]
        ordered = sorted(ranked, key=lambda way: way[0])
        return list(dict.fromkeys(variant for _, variant, _ in ordered))

    def choose(self, run: ModeRun, device: DeviceLimits) -> tuple[float, FibreVariant] | None:
        """Return the variant with the best rank, bank conflicts included, and its estimated time.

        Ranks of matrix units and of ordinary cores cannot be compared, since they were not fitted
        together: of the best of each the one with the smaller estimated time is taken.
        """
        if not self.accepts(run, device):
            return None
        firsts = filter(None, (_first(one, device) for one in _ways(run)))
        timed = [(self.estimate(run, variant, device), variant) for variant in firsts]
        return min(timed, key=lambda one: one[0], default=None)

    def near(
        self, run: ModeRun, centre: FibreVariant, changes: int, longer: float, device: DeviceLimits
    ) -> Iterator[FibreVariant]:
        """Yield variants of rank up to ``longer`` times ``centre``'s, or their units' best."""
        found: dict[FibreVariant, None] = {}
        for one in _ways(run):
            ranked = _ranked(one, device)
            own = [rank for rank, variant, _ in ranked if variant == centre]
            bound = longer * min(own or [rank for rank, *_ in ranked], default=0.0)
            found |= dict.fromkeys(variant for rank, variant, _ in ranked if rank <= bound)
        yield from found

    def work(
        self, run: ModeRun, variant: FibreVariant, device: DeviceLimits
    ) -> SimpleNamespace | None:
        """Count what a kernel does; what a warp does is that of a tile."""
        shares = _shares(run, variant, device)
        if shares is None:
            return None
        one, size = variant, run.itemsize
        tiles = ceil_div(run.L, one.slices) * ceil_div(run.R, one.columns)
        rounds = ceil_div(tiles, device.multiprocessors)
        turns = ceil_div(rounds, one.teams)
        working = min(one.teams, rounds) * one.warps
        moved = math.prod(run.inputs) + math.prod(run.outputs)
        elements = one.slices * one.columns * moved
        word = word_of(run, one.columns)
        in_words = one.columns == 1 or run.R % word == 0
        width = one.columns * size
        whole = one.columns == run.R
        staged = sum(share.staged for share in shares) * size
        return SimpleNamespace(
            **_warp_work(run, variant, shares),
            warps=one.warps,
            rounds=rounds,
            turns=turns,
            overlapped=int(one.stages > 1 and turns > 1),
            uneven=ceil_div(working, 4) * 4 / working,
            copies=elements / word if in_words else elements,
            tile_bytes=elements * size,
            moved=run.L * run.R * moved * size,
            short=0 if whole else max(0.0, NARROW_BYTES / width - 1),
            cut=0 if whole or run.R * size % SECTOR == 0 else SECTOR / width,
            factor_bytes=sum(C * K for C, K in zip(run.inputs, run.outputs, strict=True)) * size,
            staged_words=staged / (16 * one.teams * one.warps * WARP),
            multiprocessors=device.multiprocessors,
        )

    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch."""
        multiplying = (
            costs.multiply_add * work.multiply_adds
            + costs.store * work.stores
            + costs.step * work.steps
            + costs.unit_store * work.unit_stores
            + costs.tf32_load * work.tf32_loads
            + costs.place * work.places
        )
        busy = work.warps * (
            costs.warp_multiply_add * work.multiply_adds
            + costs.warp_unit * work.units
            + costs.warp_tf32_unit * work.tf32_units
            + costs.warp_convert * work.converts
            + costs.warp_item * work.items
        )
        busy = (busy + costs.thread_copy * work.copies) * work.uneven
        share = share_of_memory(work.moved, costs.cache_bytes)
        narrow = 1 + costs.narrow * work.short + costs.unaligned * work.cut
        memory = narrow * moving(work.moved, share, costs.memory_rate, costs.cache_rate)
        loading = costs.memory_latency * share
        loading = loading + narrow * work.tile_bytes * work.multiprocessors / costs.cache_rate
        in_turn = multiplying + loading
        at_once = slowest(costs.sharpness, multiplying, loading)
        alone = work.overlapped * at_once + (1 - work.overlapped) * in_turn
        begin = (
            costs.launch
            + costs.factor_kilobyte * work.factor_bytes / 1024
            + costs.factor_word * work.staged_words
        )
        total = begin + slowest(costs.sharpness, work.turns * alone, work.rounds * busy, memory)
        return total * NANOSECOND

    def kernel(
        self, run: ModeRun, variant: FibreVariant, device: DeviceLimits, owners: int = 0
    ) -> Kernel | None:
        """Return a variant's kernel, None if it does not fit; it writes to ``owners``, 0: y."""
        shares = _shares(run, variant, device) if self.accepts(run, device) else None
        if shares is None:
            return None
        tile = fibre_tile(at_the_front(run), variant, shares, device)
        if owners and (tile.step == 0 or tile.modes[-1] != 0):
            return None
        tiles = ceil_div(run.L, variant.slices) * ceil_div(run.R, variant.columns)
        blocks = min(tiles, device.multiprocessors)
        threads = variant.warps * variant.teams * WARP
        modes = tuple(run.first + mode for mode in tile.modes)
        program = fibre_program(run, variant, tile, owners)
        launch = LaunchShape(blocks, threads, 1, tile.shared_bytes)
        return self.made(run, variant, device, program, launch, tile, modes)


def _ways(run: ModeRun) -> list[ModeRun]:
    """Return a run with TF32 if the user asked for it, and on ordinary cores."""
    front = at_the_front(run)
    return [replace(front, products=products) for products in dict.fromkeys((run.products, 0))]


@lru_cache(maxsize=64)  # tuning requests many variants of few runs
def _ranked(
    run: ModeRun, device: DeviceLimits
) -> tuple[tuple[float, FibreVariant, tuple[Share, ...]], ...]:
    """Return all variants of a run with their ranks and a warp's shares, the best first."""
    tile = math.prod(extents_of(run)) * run.itemsize  # bytes of one slice and column
    found = [
        way
        for slices, columns in _widths(run.L, run.R, run.itemsize)
        if slices * columns * tile <= device.shared_bytes
        for warps, counts in _TEAM_COUNTS.items()
        for teams in counts
        for way in _fitting(run, slices, columns, teams, warps, device)
    ]
    ranked = zip(ranks(run, found, device), *zip(*found, strict=True), strict=True) if found else ()
    return tuple(sorted(ranked, key=lambda one: one[0]))


@lru_cache(maxsize=4096)
def _first(run: ModeRun, device: DeviceLimits) -> FibreVariant | None:
    """Return the variant with the best rank, bank conflicts included; None if no tile fits."""
    best: tuple[float, FibreVariant] | None = None
    for value, variant, shares in _ranked(run, device):
        if best is not None and value >= best[0]:
            break
        value *= slower_by_conflicts(fibre_tile(run, variant, shares, device).conflicts)
        if best is None or value < best[0]:
            best = value, variant
    return None if best is None else best[1]


@lru_cache(maxsize=64)
def _widths(L: int, R: int, itemsize: int) -> tuple[tuple[int, int], ...]:
    """Return the choices for slices and columns of a tile."""
    found = []
    if R <= _MAX_WHOLE_ROW:
        found += [(1 << bit, R) for bit in range(min(_MAX_SLICES, L).bit_length())]
    found += [(1, width) for width in _COLUMNS if width < R and width * itemsize >= SECTOR]
    return tuple(found)


def _shares(run: ModeRun, variant: FibreVariant, device: DeviceLimits) -> tuple[Share, ...] | None:
    """Return a warp's share of each pass, None if the variant does not fit."""
    slices, columns, teams, warps, stages, units = variant
    if (slices, columns) not in _widths(run.L, run.R, run.itemsize):
        return None  # such as numbers from a file
    if stages not in _STAGES or teams not in _TEAM_COUNTS.get(warps, ()):
        return None
    run = replace(run, products=run.products * units)
    return dict(_fitting(run, slices, columns, teams, warps, device)).get(variant)


def _fitting(
    run: ModeRun, slices: int, columns: int, teams: int, warps: int, device: DeviceLimits
) -> Iterator[tuple[FibreVariant, tuple[Share, ...]]]:
    """Yield the variants that fit, with a warp's share of each pass, in TF32 if the run has that.

    There is one variant for each number of stages, from the fewest.
    """
    buffers = teams * slices * math.prod(extents_of(run)) * columns * run.itemsize
    if buffers > device.shared_bytes:
        return
    registers = min(MAX_THREAD_REGISTERS, REGISTER_FILE // (teams * warps * WARP) // 8 * 8)
    shares = shares_of(alone(run), slices, columns, warps, registers, device.double_units)
    if shares is None:
        return
    units = int(any(share.products for share in shares))
    staged = sum(share.staged for share in shares) * run.itemsize
    for stages in _STAGES:
        variant = FibreVariant(slices, columns, teams, warps, stages, units)
        if staged + stages * buffers > _MAX_UNPADDED_SHARE * device.shared_bytes:
            return
        if stages != RING or _may_ring(run, variant, shares[-1]):
            yield variant, shares


def _may_ring(run: ModeRun, variant: FibreVariant, last: Share) -> bool:
    """Whether tiles may form a ring: one team, whose warps read tiles and write to the array."""
    is_shared = variant.teams == 1 and last.factor_in_registers
    return is_shared and writes_to_array(run, variant.columns, last.along)


_COUNTED = (
    *("multiply_adds", "stores", "steps", "units", "unit_stores"),
    *("converts", "tf32_units", "tf32_loads", "items", "places"),
)


def _warp_work(run: ModeRun, variant: FibreVariant, shares: Sequence[Share]) -> dict[str, float]:
    """Return what a warp does for a tile, by names.

    Multiply-adds and results of a thread in single precision; steps, one multiply-add after another
    to the same sum; multiply-adds of matrix units in double precision and in TF32, and a thread's
    stores of four results and loads; conversions; iterations; integer divisions.
    """
    total = dict.fromkeys(_COUNTED, 0.0)
    for (mode, sizes), share in zip(mode_steps(run), shares, strict=True):
        C, K, rows = run.inputs[mode], run.outputs[mode], share.rows
        fibres = variant.slices * math.prod(sizes) // C * variant.columns
        if share.products:
            steps, tiles = ceil_div(C, 8), ceil_div(ceil_div(K, 8), share.split)
            items = ceil_div(ceil_div(fibres, 16 * rows), variant.warps // share.split)
            total["tf32_units"] += items * steps * share.products * rows * tiles
            total["tf32_loads"] += items * steps * (4 * rows + 2 * tiles)
        elif share.split:
            steps, mine = factor_fragments(C, K, variant.warps)
            items = ceil_div(fibres, 8 * rows)
            total["steps"] += items * steps
            total["units"] += items * steps * max(rows // 2 * mine, 1)
            total["unit_stores"] += items * rows * mine
            total["converts"] += items * steps * rows if run.itemsize == 4 else 0
        elif run.itemsize == 8:
            steps, tiles = ceil_div(C, 4), ceil_div(K, 8)
            items = ceil_div(ceil_div(fibres, 8 * rows), variant.warps)
            axes = [size for m, size in enumerate(sizes) if m != mode and size > 1][::-1]
            total["steps"] += items * tiles * steps / share.columns
            total["units"] += items * tiles * steps * (rows // 2)
            total["unit_stores"] += items * tiles * rows
            if not adds_without_carry(axes, 8 * rows):
                total["places"] += items * rows * (len(axes) - 1)
        else:
            lanes = next(lanes for lanes in LANES if lanes * share.columns >= K)
            items = ceil_div(ceil_div(fibres, WARP // lanes * rows), variant.warps)
            sums = rows * share.columns
            total["multiply_adds"] += items * C * sums
            total["stores"] += items * sums
            total["steps"] += items * C
        total["items"] += items
    return total
