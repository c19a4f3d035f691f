"""How products of a batch list in double precision are cut for matrix units.

Pure arithmetic on sizes, without any device: the kernel's contract is in
``csrc/cuda/batched_units.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.device_batches import record_words
from batchkron.backends.device_tiling import DeviceLimits, Step

WIDE = (12, 16)  # entries of a mode that is a matrix of two halves
_WARP = 32
_MOST_SUMS = 32  # of a lane, two registers each
_MOST_CHUNK = 16  # elements of a block that a lane loads at a time, of all parts of a split mode
# Warps of an output, so that a lane can have 255 registers: with 16, which leave it 128, blocks of
# (6,4) took 1326 µs on an H200 instead of 393.
_MOST_WARPS = 8
_WARPS_WANTED = 8  # of a multiprocessor, so that one computes while others wait
_FILLS = 4  # waves of them, so that the last one matters little
_PIPELINED = 8  # products one after another, so that the first one's latency matters little
_BLOCK_WARPS = 4


@dataclass(frozen=True)
class UnitTiling:
    """How a kernel evaluates products on matrix units.

    Attributes
    ----------
    steps : tuple of Step
    split : int or None
        The step along a leading mode whose results are different warps'.
    lanes : int or None
        The step along the next mode, which each lane multiplies.
    slow, fast : tuple of int
        Steps of the two matrices: one of 8, 12 or 16, or two of 4.
    crew : int
        Warps, or groups of them for a split mode, that share the products of an output.
    outputs : int
        Outputs of a thread block.
    chunk : int
        Entries of the lanes' mode that are loaded at a time.
    short_ids : bool
        Whether ids have 16 bits.
    """

    steps: tuple[Step, ...]
    split: int | None
    lanes: int | None
    slow: tuple[int, ...]
    fast: tuple[int, ...]
    crew: int
    outputs: int
    chunk: int
    short_ids: bool

    @property
    def warps(self) -> int:
        """Warps that evaluate one product."""
        return 1 if self.split is None else self.steps[self.split].C

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return _WARP * self.warps * self.crew * self.outputs

    @property
    def record_words(self) -> int:
        """Words of 4 bytes of a product's record in the list."""
        return record_words(len(self.steps), self.short_ids)

    @property
    def size(self) -> int:
        """Elements of a block."""
        return math.prod(step.C for step in self.steps)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block: matrices of the lanes' mode, or the sums."""
        matrix = 0 if self.lanes is None else self.steps[self.lanes].C ** 2
        staged = self.block // _WARP * 2 * matrix
        sums = 0 if self.crew == 1 else self.outputs * self.crew * self.size
        return 8 * max(staged, sums)

    @property
    def carveout(self) -> int:
        """Percentage of the memory on chip that should be shared memory; caches use the rest."""
        blocks = max(1, 16 * _WARP // self.block)
        return min(100, -(-100 * blocks * (self.shared_bytes + 1024) // (228 << 10)))


def unit_tiling(
    steps: tuple[Step, ...],
    dtype: np.dtype[np.generic],
    outputs: int,
    products: int,
    short_ids: bool,
    identities: bool,
    limits: DeviceLimits,
) -> UnitTiling | None:
    """Return how products of single vectors are evaluated on matrix units, or None if they are not.

    ``outputs`` and ``products`` are the numbers of the whole call, with all systems. Lists with
    identities have other kernels: on matrix units an infinity would meet zeros.
    """
    if dtype != np.float64 or identities or any(step.C != step.K for step in steps):
        return None
    modes = sorted(range(len(steps)), key=lambda s: steps[s].mode)
    each = _modes_of_matrix([steps[s].C for s in modes])
    if each is None or len(modes) > 2 * each + 2:
        return None
    leading, slow, fast = modes[: -2 * each], modes[-2 * each : -each], modes[-each:]
    lanes, split = leading[-1] if leading else None, leading[0] if len(leading) == 2 else None
    held, warps = (1 if s is None else steps[s].C for s in (lanes, split))
    slice_sums = math.prod(_padded(steps[s].C) for s in (*slow, *fast)) // _WARP
    if any(steps[s].C not in (2, 4, 8) for s in leading) or warps == 8:
        return None
    if held * slice_sums > _MOST_SUMS:
        return None
    crew = _crew(warps, outputs, products, limits)
    if crew * warps * outputs < _WARPS_WANTED * limits.multiprocessors:
        return None  # others share an output between more threads
    tiling = UnitTiling(
        steps=steps,
        split=split,
        lanes=lanes,
        slow=tuple(slow),
        fast=tuple(fast),
        crew=crew,
        outputs=max(1, _BLOCK_WARPS // (warps * crew)),
        chunk=max(1, min(held // 2, _MOST_CHUNK // (slice_sums * warps))),
        short_ids=short_ids,
    )
    return tiling if tiling.shared_bytes <= limits.shared_bytes else None


def _modes_of_matrix(sizes: Sequence[int]) -> int | None:
    """Return how many of the last modes each of the two matrices takes, None if there are none."""
    last = sizes[-2:]
    if last == [8, 8] or (len(last) == 2 and all(size in WIDE for size in last)):
        return 1
    return 2 if sizes[-4:] == [4, 4, 4, 4] else None


def _padded(size: int) -> int:
    """Return the rows of fragments that hold a mode's results."""
    return 16 if size in WIDE else size


def _crew(warps: int, outputs: int, products: int, limits: DeviceLimits) -> int:
    """Return how many (groups of) warps share an output, so that the device is filled evenly."""
    wanted = _FILLS * _WARPS_WANTED * limits.multiprocessors
    most = min(_MOST_WARPS // warps, products // max(1, outputs) // _PIPELINED)
    crew = 1
    while 2 * crew <= most and crew * warps * outputs < wanted:
        crew *= 2
    return crew
