"""The family of kernels that keep small matrices in registers, such as factors of butterflies.

They are those of ``csrc/cuda/kron_sparse/registers.cuh``, and

    time = launch + slowest(a thread's latency x rounds, accesses of a multiprocessor, memory)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kernel import LaunchShape
from batchkron.backends.cuda.kron_sparse.kernel import (
    SparseFamily,
    SparseLaunch,
    SparseShape,
    common_pack,
    sum_dtype,
)
from batchkron.backends.cuda.runtime.hardware import SECTOR, WARP, DeviceLimits

_THREADS = 128  # of a thread block
_BLOCKS = 32  # thread blocks for each multiprocessor; with more, they take several turns
# Registers of a thread for its values and for what it reads of x, 4 bytes each; chosen by hand.
_MAX_REGISTERS = 112
_MAX_SIZE = 16  # largest number of rows or columns, as loops over them are unrolled
_WIDTHS = (1, 2, 4, 8)  # neighbouring places of a thread
_TURNS = (1, 4, 16)  # vectors that a thread multiplies by its values
_RESIDENT_THREADS = 512  # of a multiprocessor, with as many registers as these kernels may take


class Registers(SparseFamily):
    """Kernels for small b and c, of any dtype; a tile is the variant itself."""

    name = "registers"
    # neighbouring places of a thread, and vectors that it multiplies
    numbers = "width", "turns"

    def variants(self, shape: SparseShape, device: DeviceLimits) -> list[tuple[int, int]]:
        """Return the variants that fit in registers."""
        widths = [width for width in _WIDTHS if width <= shape.pack]
        variants = ((width, turns) for width in widths for turns in _TURNS)
        return [one for one in variants if self.tile(shape, one, device) is not None]

    def tile(
        self, shape: SparseShape, variant: tuple[int, int], device: DeviceLimits
    ) -> tuple[int, int] | None:
        """Return the variant itself, None if there is no such kernel."""
        width, turns = variant
        if width < 1 or turns not in _TURNS or max(shape.b, shape.c) > _MAX_SIZE:
            return None
        if shape.inner > 1 and shape.inner % width:
            return None
        if width != common_pack(max(1, shape.pack), width) or shape.d * shape.inner % width:
            return None
        if turns > 1 and turns >= 2 * shape.outer:
            return None
        of_sum = sum_dtype(shape.dtype).itemsize
        values = shape.b * shape.c * _values_apart(shape, width) * of_sum
        read = shape.c * width * shape.itemsize + 2 * width * of_sum
        return variant if (values + read) // 4 <= _MAX_REGISTERS else None

    def counts(
        self, shape: SparseShape, tile: tuple[int, int], device: DeviceLimits
    ) -> SimpleNamespace:
        """Count what a kernel does."""
        b, c, (width, most) = shape.b, shape.c, tile
        threads = _threads(shape, tile)
        warps = ceil_div(threads, WARP * device.multiprocessors)
        turns = min(most, shape.outer)
        real = 4 if shape.dtype.startswith("complex") else 1
        adds = turns * b * c * width * real * sum_dtype(shape.dtype).itemsize // 4
        values = threads * b * c * _values_apart(shape, width) * shape.itemsize
        return SimpleNamespace(
            # rounds of threads, and turns of each
            rounds=ceil_div(threads, _RESIDENT_THREADS * device.multiprocessors),
            turns=turns,
            # accesses and multiply-adds of a multiprocessor's warps, the latter in words of 4 bytes
            accesses=warps * (b * c + turns * (b + c)),
            multiply_adds=warps * adds,
            moved=shape.bytes + 0.5 * values + _beside(shape, width),
        )

    def seconds(self, work: Any, costs: Any) -> Count:
        """Return the estimated seconds; values and each turn wait for ``costs.memory_latency``."""
        total = costs.launch + slowest(
            costs.sharpness,
            costs.memory_latency * work.rounds * (1 + work.turns / 2),
            costs.access * work.accesses + costs.multiply_add * work.multiply_adds,
            work.moved / costs.memory_rate,
        )
        return total * NANOSECOND

    def launch(
        self, shape: SparseShape, tile: tuple[int, int], device: DeviceLimits
    ) -> SparseLaunch:
        """Return template arguments, launch and tiles: a thread for some places and vectors."""
        blocks = min(ceil_div(_threads(shape, tile), _THREADS), _BLOCKS * device.multiprocessors)
        width, turns = tile
        sizes = shape.b, shape.c, width, shape.inner > 1, turns, _THREADS
        return sizes, LaunchShape(blocks, _THREADS, 1, 0), (0, 1)


def _beside(shape: SparseShape, width: int) -> float:
    """Return the bytes of sectors that stores to y reach beside the elements that they write.

    A sector is written by each row k that has elements in it.
    """
    run = min(WARP * width, shape.d * shape.inner) * shape.itemsize  # bytes that lie together
    times = min(shape.b, ceil_div(run, SECTOR) * SECTOR / run)
    return (times - 1) * shape.columns * shape.a * shape.b * shape.d * shape.itemsize


def _values_apart(shape: SparseShape, width: int) -> int:
    """Return how many matrices the places of a thread have: one if they have one j."""
    return 1 if shape.inner > 1 else width


def _threads(shape: SparseShape, tile: tuple[int, int]) -> int:
    width, turns = tile
    return shape.a * shape.d * shape.inner // width * ceil_div(shape.outer, turns)
