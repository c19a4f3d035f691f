"""Kernels of Kron-Matmuls with factors of any size and dtype, for up to twelve modes.

Results between steps are kept in two buffers. The kernel's contract is in
``csrc/cuda/kron/general.cuh``. The estimated time is

    time = launch + factors + slowest(a tile's latency x rounds, a multiprocessor's work, memory)

where rounds is the number of tiles that a thread group computes one after another.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest, warps_of
from batchkron.backends.cuda.general_kernel import SHARED_TARGET, Tiling
from batchkron.backends.cuda.kernel import Kernel, LaunchShape, record
from batchkron.backends.cuda.kron.kernel import KronFamily
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import (
    MAX_RESIDENT_THREADS,
    DeviceLimits,
    resident_blocks,
    round_up,
)
from batchkron.backends.cuda.runtime.program import SCALARS, Program, device_program
from batchkron.backends.cuda.steps import (
    MAX_FIXED_MODES,
    ModeRun,
    plan_order,
    plan_steps,
    steps_argument,
    steps_type,
)
from batchkron.spec.kron import Array

_MAX_RESIDENT_BLOCKS = 32  # thread blocks of a multiprocessor, a limit of the hardware
# Chosen by hand:
_WIDTHS = (32, 16, 8)  # columns of a tile, preferred first
_NARROW_WIDTHS = (4, 2, 1)  # the same, if wider tiles are too large or too few


class General(KronFamily):
    """Kernels of up to twelve modes of any size."""

    name = "general"
    numbers = ()
    constants: ClassVar = {
        "launch": (1300, "a kernel launch in a CUDA graph"),
        "factor": (80, "latency of copying one factor to shared memory"),
        "factor_turn": (120, "one iteration of the loop in which a thread copies a factor"),
        "turn": (200, "one iteration of a thread over its results of a step: addresses, barrier"),
        "multiply_add": (0.9, "latency of a real multiply-add; a complex one is four"),
        "copy": (60, "latency of an element that a thread copies from or to the array"),
        "tile": (20, "a multiprocessor's time for each tile"),
        "warp_word": (0.6, "its time for each word of 4 bytes that a warp loads or multiplies"),
        "warp_copy": (4.5, "its time for each copy instruction of a warp from or to the array"),
        "memory_rate": (3000, "bandwidth of memory, bytes per nanosecond"),
        "sharpness": (1.2, "see `slowest`"),
    }

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether there are few enough modes."""
        return len(run.inputs) <= MAX_FIXED_MODES

    def variants(self, run: ModeRun, device: DeviceLimits) -> tuple[tuple[()], ...]:
        """Return the only variant."""
        return ((),)

    def work(self, run: ModeRun, variant: tuple[()], device: DeviceLimits) -> SimpleNamespace:
        """Count what a kernel does: a multiprocessor, a thread, and all warps for a tile."""
        tiling = _tiling(run, device)
        steps, threads = tiling.steps, tiling.threads
        items = [step.items(tiling.width) for step in steps]
        turns = [ceil_div(one, threads) for one in items]
        staged = [ceil_div(s.staged(run.itemsize), threads) for s in steps if tiling.staged]
        copied = (tiling.input_size + tiling.output_size) * tiling.width
        products = 4 if run.dtype.kind == "c" else 1  # real multiply-adds of one
        tiles = ceil_div(ceil_div(run.L * run.R, tiling.columns), device.multiprocessors)
        pairs = list(zip(items, turns, steps, strict=True))
        return SimpleNamespace(
            rounds=ceil_div(tiles, _resident(tiling, device)),
            tiles=tiles,
            factors=len(staged),
            factor_turns=sum(staged),
            turns=sum(turns),
            multiply_adds=products * sum(turn * step.C * step.tile for _, turn, step in pairs),
            copies=ceil_div(copied, threads),
            warp_words=run.itemsize
            / 4
            * sum(warps_of(item) * step.C * (1 + step.tile) for item, _, step in pairs),
            warp_copies=warps_of(copied),
            moved=run.bytes,
        )

    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch."""
        latency = (
            costs.turn * work.turns
            + costs.multiply_add * work.multiply_adds
            + costs.copy * work.copies
        )
        busy = costs.tile + costs.warp_word * work.warp_words + costs.warp_copy * work.warp_copies
        begin = costs.launch + costs.factor * work.factors + costs.factor_turn * work.factor_turns
        memory = work.moved / costs.memory_rate
        total = slowest(costs.sharpness, work.rounds * latency, work.tiles * busy, memory)
        return (begin + total) * NANOSECOND

    def kernel(self, run: ModeRun, variant: tuple[()], device: DeviceLimits) -> Kernel | None:
        """Return the kernel, None if there are too many modes."""
        if not self.accepts(run, device):
            return None
        tiling = _tiling(run, device)
        tiles = ceil_div(run.L * run.R, tiling.columns)
        blocks = min(tiles, tiling.max_blocks(device))
        workspace = blocks * tiling.workspace_bytes
        modes = tuple(step.mode for step in tiling.steps)
        launch = LaunchShape(blocks, tiling.block, 1, tiling.shared_bytes, workspace)
        what = _program(run.dtype, tiling), launch, tiling, modes, _arguments(run, tiling)
        return self.made(run, variant, device, *what)


@lru_cache(maxsize=256)
def _tiling(run: ModeRun, device: DeviceLimits) -> Tiling:
    """Return the widest tiling that is not too large, with the steps in the order of least work."""
    order, itemsize, columns = plan_order(run.inputs, run.outputs), run.itemsize, run.L * run.R
    local = plan_steps(run.inputs, run.outputs, order, run.dtype)
    steps = tuple(replace(step, mode=step.mode + run.first) for step in local)

    def tiling(width: int, staged: bool, in_shared: bool) -> Tiling:
        row_length = run.R if width > run.R and in_shared else 0
        items = max(step.items(width) for step in steps)
        threads = min(256, max(64, round_up(items, 32)))
        return Tiling(steps, width, row_length, threads, staged, in_shared, 2, itemsize)

    widths = [
        width
        for width in _WIDTHS + _NARROW_WIDTHS
        if width == 1 or (width < 2 * columns and columns >= width * device.multiprocessors)
    ]
    target = min(SHARED_TARGET, device.shared_bytes)
    for staged, budget in ((True, target), (True, device.shared_bytes), (False, target)):
        for choice in (tiling(width, staged, True) for width in widths):
            if choice.shared_bytes <= budget:
                return choice
    width = min(widths[0], _WIDTHS[-1])
    choice = tiling(width, True, False)
    return choice if choice.shared_bytes <= target else tiling(width, False, False)


def _resident(tiling: Tiling, device: DeviceLimits) -> int:
    """Return how many thread blocks a multiprocessor holds."""
    if not tiling.in_shared:
        return 1
    fitting = resident_blocks(tiling.shared_bytes, device)
    return max(1, min(fitting, MAX_RESIDENT_THREADS // tiling.block, _MAX_RESIDENT_BLOCKS))


def _program(dtype: np.dtype[np.generic], tiling: Tiling) -> Program:
    steps, sizes = steps_type(SCALARS[dtype], tiling.steps), (tiling.input_size, tiling.output_size)
    cut = tiling.width, tiling.row_length, tiling.threads, tiling.staged, tiling.in_shared
    return device_program("kron/general", "kron_group", dtype, steps, *sizes, *cut)


@cache
def group_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct GroupArguments for ``modes`` factors."""
    steps = "steps", steps_argument(modes, True)
    sizes = "columns R input_size output_size staged buffer"
    scalars = ("alpha", dtype), ("beta", dtype)
    return struct("*x *y *previous *workspace", steps, sizes, *scalars)


def _arguments(run: ModeRun, tiling: Tiling) -> Array:
    return record(
        group_arguments(run.dtype, len(tiling.steps)),
        columns=run.L * run.R,
        R=run.R,
        staged=tiling.staged_elements,
        buffer=tiling.buffer_elements,
        input_size=tiling.input_size,
        output_size=tiling.output_size,
        alpha=1,
    )
