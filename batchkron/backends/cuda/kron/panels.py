"""Kernels of Kron-Matmuls for one factor of any size, which may be larger than shared memory.

As in a matrix product, panels of the factor and of the fibres pass through shared memory; the
kernel's contract is in ``csrc/cuda/kron/panels.cuh``. Double precision uses matrix units, single
precision and complex numbers use ordinary cores. The estimated time is

    time = launch + slowest(a tile's latency x rounds, a multiprocessor's work, memory)

where rounds is the number of tiles that a thread block computes one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np

from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
)
from batchkron.backends.cuda.kernel import Kernel, LaunchShape
from batchkron.backends.cuda.kron.kernel import MEMORY, KronFamily
from batchkron.backends.cuda.runtime.hardware import SECTOR, WARP, DeviceLimits, resident_blocks
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.backends.cuda.steps import ModeRun


@dataclass(frozen=True, slots=True)
class PanelCut:
    """How the work of a thread block is divided."""

    # fibres, results: a tile is this many fibres by this many results (rows of the factor)
    fibres: int
    results: int
    depth: int  # entries of each fibre and row in one panel
    # rows, columns: fibres and results of a thread; in double precision, those of a warp
    rows: int
    columns: int
    threads: int  # threads of a thread block
    stages: int  # panels in shared memory at the same time
    blocks: int  # thread blocks of a multiprocessor


_COMPLEX = (PanelCut(32, 32, 8, 4, 4, 64, 3, 4),)
# By dtype, and whether the entries of a fibre are contiguous in memory.
_CUTS = {
    (np.dtype(np.float32), True): (
        PanelCut(64, 64, 16, 4, 8, 128, 3, 4),
        PanelCut(32, 32, 32, 2, 4, 128, 3, 4),
        PanelCut(128, 72, 16, 8, 9, 128, 3, 2),
        PanelCut(32, 16, 32, 2, 2, 128, 3, 4),
    ),
    (np.dtype(np.float32), False): (
        PanelCut(64, 64, 16, 4, 8, 128, 3, 4),
        PanelCut(32, 32, 32, 4, 2, 128, 3, 4),
        PanelCut(128, 72, 16, 4, 9, 256, 3, 2),
        PanelCut(32, 16, 32, 4, 1, 128, 3, 4),
    ),
    (np.dtype(np.float64), True): (
        PanelCut(64, 64, 16, 32, 32, 128, 3, 3),
        PanelCut(32, 32, 32, 16, 16, 128, 3, 4),
        PanelCut(128, 72, 16, 64, 24, 192, 3, 2),
        PanelCut(32, 16, 32, 16, 8, 128, 3, 4),
    ),
    (np.dtype(np.float64), False): (
        PanelCut(64, 64, 16, 32, 32, 128, 3, 3),
        PanelCut(32, 32, 32, 16, 16, 128, 3, 4),
        PanelCut(64, 80, 16, 80, 16, 128, 3, 3),
        PanelCut(32, 16, 32, 16, 8, 128, 3, 4),
    ),
    (np.dtype(np.complex64), True): _COMPLEX,
    (np.dtype(np.complex64), False): _COMPLEX,
    (np.dtype(np.complex128), True): _COMPLEX,
    (np.dtype(np.complex128), False): _COMPLEX,
}
# Multiply-adds counted for one in this dtype, in units of one in float32.
_MULTIPLY_ADDS = {"float32": 1, "complex64": 4, "complex128": 8}


class Panels(KronFamily):
    """Kernels for one factor: panels of it and of the fibres pass through shared memory."""

    name = "panels"
    numbers = ("cut",)  # the index in `cuts_of`
    constants: ClassVar = {
        "launch": (1300, "a kernel launch in a CUDA graph"),
        "multiply_add": (
            1.5,
            "latency of a multiply-add in single precision; a complex one is four, "
            "in double precision eight",
        ),
        "unit": (11, "latency of a multiply-add 8 x 8 x 4 of matrix units, in double precision"),
        "tile": (280, "a multiprocessor's time for each tile"),
        "warp_multiply_add": (0.16, "its time for each multiply-add of a warp in single precision"),
        "factor_word": (0.25, "its time for each 16-byte copy of the factor to shared memory"),
        "result_word": (0.4, "its time for each 16-byte store of results"),
        "complex": (0.65, "factor of the time of multiply-adds with complex numbers"),
        "memory_latency": (500, "latency of memory, for data that is in no cache"),
        **MEMORY,
        "unaligned": (
            2,
            "relative increase of the time of transfers of rows as long as a sector that "
            "are not aligned to sectors; of longer ones less",
        ),
        "sharpness": (3, "see `slowest`"),
    }

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether the run is one mode."""
        return len(run.inputs) == 1

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[tuple[int]]:
        """Return the cuts that fit in shared memory."""
        return [
            (number,)
            for number, cut in enumerate(cuts_of(run))
            if resident_blocks(_shared_bytes(run, cut), device) > 0
        ]

    def work(
        self, run: ModeRun, variant: tuple[int], device: DeviceLimits
    ) -> SimpleNamespace | None:
        """Count what a kernel does; multiply-adds and words are of all warps for a tile."""
        if variant not in self.variants(run, device):
            return None
        cut, size, ((C,), (K,)) = cuts_of(run)[variant[0]], run.itemsize, (run.inputs, run.outputs)
        along, pack, warps = run.R == 1, 16 // size, cut.threads // WARP
        entries = ceil_div(C, cut.depth) * cut.depth
        multiply_adds = units = 0.0
        if run.dtype == np.float64:
            units = warps * entries / 4 * ceil_div(cut.rows, 8) * ceil_div(cut.columns, 8)
        else:
            products = _MULTIPLY_ADDS[run.dtype.name]
            multiply_adds = warps * entries * products * cut.rows * cut.columns
        results = cut.fibres * min(K, cut.results)
        aligned = along or run.R * size % SECTOR == 0
        tiles = ceil_div(tiles_of(run, cut), device.multiprocessors)
        return SimpleNamespace(
            rounds=ceil_div(tiles, _blocks(run, cut, device)),
            tiles=tiles,
            warps=warps,
            multiply_adds=multiply_adds,
            units=units,
            factor_words=_words(entries * cut.results, C, pack),
            result_words=_words(results, K if along else run.R, pack),
            is_complex=int(run.dtype.kind == "c"),
            moved=run.bytes,
            sectors_cut=0 if aligned else SECTOR / (min(run.R, cut.fibres) * size),
        )

    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch."""
        share = share_of_memory(work.moved, costs.cache_bytes)
        less = work.is_complex * costs.complex + 1 - work.is_complex
        latency = (
            costs.memory_latency * share
            + (less * costs.multiply_add * work.multiply_adds + costs.unit * work.units)
            / work.warps
        )
        busy = (
            costs.tile
            + less * costs.warp_multiply_add * work.multiply_adds
            + costs.factor_word * work.factor_words
            + costs.result_word * work.result_words
        )
        memory = moving(work.moved, share, costs.memory_rate, costs.cache_rate)
        memory = memory * (1 + costs.unaligned * work.sectors_cut)
        total = slowest(costs.sharpness, work.rounds * latency, work.tiles * busy, memory)
        return (costs.launch + total) * NANOSECOND

    def kernel(self, run: ModeRun, variant: tuple[int], device: DeviceLimits) -> Kernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        if not self.accepts(run, device) or variant not in self.variants(run, device):
            return None
        cut = cuts_of(run)[variant[0]]
        resident = _blocks(run, cut, device)
        blocks = min(tiles_of(run, cut), resident * device.multiprocessors)
        launch = LaunchShape(blocks, cut.threads, resident, _shared_bytes(run, cut))
        return self.made(run, variant, device, _program(run, cut, resident), launch, cut)


def cuts_of(run: ModeRun) -> tuple[PanelCut, ...]:
    """Return the tilings for a run of one mode."""
    return _CUTS[run.dtype, run.R == 1]


def tiles_of(run: ModeRun, cut: PanelCut) -> int:
    """Return the number of tiles."""
    (K,) = run.outputs
    return ceil_div(run.L * run.R, cut.fibres) * ceil_div(K, cut.results)


def _blocks(run: ModeRun, cut: PanelCut, device: DeviceLimits) -> int:
    """Return how many thread blocks a multiprocessor holds."""
    return min(cut.blocks, resident_blocks(_shared_bytes(run, cut), device))


def _shared_bytes(run: ModeRun, cut: PanelCut) -> int:
    """Return the bytes of shared memory of a thread block."""
    pad = 4 if run.dtype == np.float64 else 16 // run.itemsize
    fibres = cut.fibres * (cut.depth + pad) if run.R == 1 else cut.depth * (cut.fibres + pad)
    return cut.stages * (fibres + cut.results * (cut.depth + pad)) * run.itemsize


def _words(elements: int, row: int, pack: int) -> float:
    """Return the number of words of ``pack`` elements, 0 if rows are not whole words."""
    return 0 if row % pack else elements / pack


def _program(run: ModeRun, cut: PanelCut, resident: int) -> Program:
    sizes = *run.inputs, *run.outputs, run.R == 1, cut.fibres, cut.results, cut.depth
    share = cut.rows, cut.columns, cut.threads, cut.stages, resident
    return device_program(
        "kron/panels", "kron_panels", run.dtype, template_type("PanelCut", *sizes, *share)
    )
