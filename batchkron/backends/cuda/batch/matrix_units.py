"""How products of a batch list of real elements are cut for matrix units of double precision.

Pure arithmetic on sizes, without any device: the kernel's contract is in
``csrc/cuda/batch/matrix_units.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.batch.registers import record_words
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, carveout
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.backends.cuda.steps import Step

_HALF = 8  # rows of a matrix-unit fragment; a factor has one or two of them
# Multiply-adds of a slice, by bytes of an element: below, other kernels were faster (H200).
_MIN_SLICE_MULTIPLIES = {8: 200, 4: 500}
_MAX_LEADING_SIZE = 8  # entries of the mode that is multiplied within a lane, not by matrix units
_MAX_SPLIT_PARTS = 4  # warps that share the results of a split mode
_MAX_THREAD_SUMS = 32  # float64 sums of a lane, two registers each
# Elements of a block that a lane loads at a time, over all parts of a split mode.
_MAX_CHUNK_ELEMENTS = 16
# Warps of an output, so that a lane can have 255 registers: with 16, which leave it 128, blocks of
# (6,4) took 1326 µs on an H200 instead of 393.
_MAX_OUTPUT_WARPS = 8  # that share an output; chosen by hand
_TARGET_WARPS = 8  # of a multiprocessor, so that some compute while others wait
_WAVES = 6  # of thread blocks, so that a partial last one matters little; chosen by hand
_MIN_PIPELINED_PRODUCTS = 8  # of a team in a row, so that the first one's latency matters little
_BLOCK_WARPS = 4  # of a thread block with several outputs; chosen by hand


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
        Steps of the two matrices: one of up to 16, or two of 4.
    teams_per_output : int
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
    teams_per_output: int
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
        return WARP * self.warps * self.teams_per_output * self.outputs

    @property
    def record_words(self) -> int:
        """Words of 4 bytes of a product's record in the list."""
        return record_words(len(self.steps), self.short_ids)

    @property
    def size(self) -> int:
        """Elements of a block of results."""
        return math.prod(step.K for step in self.steps)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block: matrices of the lanes' mode, or the sums."""
        held = 0 if self.lanes is None else self.steps[self.lanes].C
        matrix = held * (held + held % 2)
        staged = self.block // WARP * 2 * matrix
        sums = 0 if self.teams_per_output == 1 else self.outputs * self.teams_per_output * self.size
        return 8 * max(staged, sums)

    @property
    def carveout(self) -> int:
        """Percentage of the memory on chip that should be shared memory; caches use the rest."""
        blocks = max(1, 16 * WARP // self.block)
        return carveout(blocks, self.shared_bytes)


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
    if identities or dtype.kind != "f":
        return None
    modes = sorted(range(len(steps)), key=lambda s: steps[s].mode)
    each = _modes_of_matrix([steps[s] for s in modes], dtype.itemsize)
    if each is None or len(modes) > 2 * each + 2:
        return None
    leading, slow, fast = modes[: -2 * each], modes[-2 * each : -each], modes[-each:]
    if not may_use_units([steps[s] for s in slow + fast] if each == 1 else [], dtype, limits):
        return None
    lanes, split = leading[-1] if leading else None, leading[0] if len(leading) == 2 else None
    held, warps = (1 if s is None else steps[s].C for s in (lanes, split))
    halves = 2 if each == 2 else _halves(steps[fast[0]])
    slice_sums = 2 * halves**2
    if any(steps[s].C != steps[s].K or steps[s].C == 1 for s in leading):
        return None
    if warps > 1 and dtype.itemsize == 4:
        return None  # others were faster
    if held > _MAX_LEADING_SIZE or warps > _MAX_SPLIT_PARTS or held * slice_sums > _MAX_THREAD_SUMS:
        return None
    teams_per_output = _teams_per_output(warps, outputs, products, limits)
    if teams_per_output * warps * outputs < _TARGET_WARPS * limits.multiprocessors:
        return None  # others share an output between more threads
    tiling = UnitTiling(
        steps=steps,
        split=split,
        lanes=lanes,
        slow=tuple(slow),
        fast=tuple(fast),
        teams_per_output=teams_per_output,
        outputs=max(1, _BLOCK_WARPS // (warps * teams_per_output)),
        chunk=_chunk(held, _MAX_CHUNK_ELEMENTS // (slice_sums * warps)),
        short_ids=short_ids,
    )
    return tiling if tiling.shared_bytes <= limits.shared_bytes else None


def may_use_units(
    matrices: Sequence[Step], dtype: np.dtype[np.generic], limits: DeviceLimits
) -> bool:
    """Whether these matrices may be multiplied on matrix units of double precision.

    Where these do no more than ordinary cores do, only in double precision, and without padding.
    """
    if limits.double_units or dtype == np.float32:
        return limits.double_units
    return all(size % _HALF == 0 for step in matrices for size in (step.C, step.K))


def _modes_of_matrix(steps: Sequence[Step], itemsize: int) -> int | None:
    """Return how many of the last modes each of the two matrices takes, None if there are none."""
    if [(step.C, step.K) for step in steps[-4:]] == [(4, 4)] * 4:
        return 2 if itemsize == 8 else None
    if len(steps) < 2:
        return None
    slow, fast = steps[-2:]
    if max(slow.C, slow.K, fast.C, fast.K) > 2 * _HALF or _halves(slow) != _halves(fast):
        return None
    multiplies = fast.K * slow.C * (fast.C + slow.K)
    return 1 if multiplies >= _MIN_SLICE_MULTIPLIES[itemsize] else None


def _halves(step: Step) -> int:
    """Return how many halves of a matrix the results are."""
    return -(-step.K // _HALF)


def _chunk(held: int, maximum: int) -> int:
    """Return how many slices are loaded at a time: an even number of chunks, or all of them."""
    chunks = [held // count for count in range(2, held + 1, 2) if held % count == 0]
    return next((chunk for chunk in chunks if chunk <= max(1, maximum)), held)


def _teams_per_output(warps: int, outputs: int, products: int, limits: DeviceLimits) -> int:
    """Return how many (groups of) warps share an output, so that the device is filled evenly."""
    wanted = _WAVES * _TARGET_WARPS * limits.multiprocessors
    maximum = min(
        _MAX_OUTPUT_WARPS // warps, products // max(1, outputs) // _MIN_PIPELINED_PRODUCTS
    )
    teams_per_output = 1
    while 2 * teams_per_output <= maximum and teams_per_output * warps * outputs < wanted:
        teams_per_output *= 2
    return teams_per_output


def unit_program(dtype: np.dtype[np.generic], tiling: UnitTiling) -> Program:
    """Return the kernel of a batch list of single vectors on matrix units of double precision."""
    elements = (step.C * step.K for step in tiling.steps)
    leading = (
        "batchkron::NoMode" if s is None else template_type("UnitMode", s, tiling.steps[s].C)
        for s in (tiling.split, tiling.lanes)
    )
    matrices = (unit_matrix_type(dtype, tiling.steps, part) for part in (tiling.slow, tiling.fast))
    return Program(
        "cuda/batch/matrix_units.cuh",
        template_type(
            "batched_units",
            SCALARS[dtype],
            template_type("UnitLayout", *elements),
            template_type("UnitCut", tiling.teams_per_output, tiling.outputs, tiling.chunk),
            flag(tiling.short_ids),
            *leading,
            *matrices,
        ),
    )


def unit_matrix_type(
    dtype: np.dtype[np.generic], steps: Sequence[Step], modes: Sequence[int]
) -> str:
    """Return the type of a matrix of one or two modes."""
    if len(modes) == 2:
        return template_type("PairedModes", SCALARS[dtype], *modes)
    (mode,) = modes
    C, K = steps[mode].C, steps[mode].K
    return template_type("WideMode" if K > 8 else "NarrowMode", SCALARS[dtype], mode, C, K)
