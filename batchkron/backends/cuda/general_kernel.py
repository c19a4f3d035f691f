"""Tilings of the general kernels, for batch lists and Kron-Matmuls of any sizes.

A kernel evaluates all steps of a tile of columns in shared memory. The kernels' contracts are in
``csrc/cuda/batch/general.cuh`` and ``csrc/cuda/kron/general.cuh``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, power_of_two, round_up
from batchkron.backends.cuda.runtime.program import SCALARS, Program, device_program
from batchkron.backends.cuda.steps import (
    ModeRun,
    Step,
    plan_order,
    plan_steps,
    steps_argument,
    steps_type,
)

# Numbers below were chosen by hand.
# Bytes of shared memory of a thread block, so that at least two fit on a multiprocessor.
_SHARED_TARGET = 96 << 10
_WORKSPACE_TARGET = 256 << 20  # largest workspace in bytes, if that suffices for one thread block
_WIDTHS = (32, 16, 8)  # columns of a tile, preferred first
_NARROW_WIDTHS = (4, 2, 1)  # the same, if wider tiles are too large or too few
_SMALL_GROUP_BLOCK = 128  # threads of a thread block whose groups are at most a warp


@dataclass(frozen=True)
class Tiling:
    """How one kernel evaluates its steps."""

    steps: tuple[Step, ...]  # multiplies along one mode each, in the order of evaluation
    width: int  # columns of a tile, a power of two
    row_length: int  # elements of a row in memory if that is shorter than ``width``, else 0
    threads: int  # threads that work on one tile together (a group)
    staged: bool  # whether the factors are copied to shared memory
    in_shared: bool  # whether the buffers are in shared memory, not in the workspace
    buffers: int  # buffers per tile, for results between steps
    itemsize: int  # bytes of an element

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return self.threads if self.threads > 32 else _SMALL_GROUP_BLOCK

    @property
    def groups(self) -> int:
        """Tiles that a thread block evaluates at the same time, one by each group."""
        return self.block // self.threads

    @property
    def columns(self) -> int:
        """Columns of a tile that are used: whole rows, if rows are shorter than the tile."""
        return self.width - self.width % self.row_length if self.row_length else self.width

    @cached_property
    def input_size(self) -> int:
        """Elements of a block before the first step."""
        first = self.steps[0]
        return first.L * first.C * first.R

    @cached_property
    def output_size(self) -> int:
        """Elements of a block after the last step."""
        last = self.steps[-1]
        return last.L * last.K * last.R

    @cached_property
    def buffer_elements(self) -> int:
        """Elements of one buffer."""
        stride = self.width + 1 if self.row_length else self.width
        return _largest(self.steps) * stride

    @cached_property
    def staged_elements(self) -> int:
        """Elements of shared memory for the factors of one tile."""
        return sum(step.staged(self.itemsize) for step in self.steps) if self.staged else 0

    @cached_property
    def group_elements(self) -> int:
        """Elements of shared memory for a tile, odd in 16-byte words: banks of tiles differ."""
        elements = self.staged_elements
        if self.in_shared:
            elements += self.buffers * self.buffer_elements
        words = -(-elements * self.itemsize // 16)
        return (words + 1 - words % 2) * 16 // self.itemsize

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        return self.groups * self.group_elements * self.itemsize

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace of a thread block."""
        return 0 if self.in_shared else self.buffers * self.buffer_elements * self.itemsize

    def max_blocks(self, limits: DeviceLimits) -> int:
        """Return the largest number of thread blocks, which may be limited by their workspace."""
        if self.in_shared:
            return 2**31 - 1
        return max(1, min(limits.multiprocessors, _WORKSPACE_TARGET // self.workspace_bytes))


def _largest(steps: Sequence[Step]) -> int:
    """Return the elements of the largest block before, between and after the steps."""
    return max(step.L * max(step.C, step.K) * step.R for step in steps)


def batch_tiling(
    steps: tuple[Step, ...], inner: int, buffers: int, itemsize: int, limits: DeviceLimits
) -> Tiling:
    """Return the tiling of one product of a batch list, for ``inner`` vectors at once.

    Tiny blocks are evaluated by part of a warp, others by a thread block. Blocks that do not fit in
    shared memory are kept in the workspace.
    """
    width = min(32, power_of_two(inner + 1) // 2) if inner > 1 else 1

    def tiling(threads: int, staged: bool, in_shared: bool) -> Tiling:
        return Tiling(steps, width, 0, threads, staged, in_shared, buffers, itemsize)

    items = max(step.items(width) for step in steps)
    first = max(width, power_of_two(min(items, 33)))
    small = [size for size in (1, 2, 4, 8, 16, 32) if size >= first]
    whole = min(256, max(64, round_up(items, 32)))
    for threads in [*small, whole]:
        choice = tiling(threads, True, True)
        if choice.shared_bytes <= min(_SHARED_TARGET, limits.shared_bytes):
            return choice
    for staged, in_shared in ((True, True), (False, True), (True, False)):
        choice = tiling(whole, staged, in_shared)
        if choice.shared_bytes <= limits.shared_bytes:
            return choice
    return tiling(whole, False, False)


def run_steps(run: ModeRun) -> tuple[Step, ...]:
    """Return the steps of a run of modes, in the order of least work."""
    order = plan_order(run.inputs, run.outputs)
    local = plan_steps(run.inputs, run.outputs, order, run.dtype)
    return tuple(replace(step, mode=step.mode + run.first) for step in local)


def run_tiling(
    steps: tuple[Step, ...], columns: int, after: int, itemsize: int, limits: DeviceLimits
) -> Tiling:
    """Return the widest tiling of L R ``columns``, R ``after`` a run, that is not too large."""

    def tiling(width: int, staged: bool, in_shared: bool) -> Tiling:
        row_length = after if after < width and in_shared else 0
        items = max(step.items(width) for step in steps)
        threads = min(256, max(64, round_up(items, 32)))
        return Tiling(steps, width, row_length, threads, staged, in_shared, 2, itemsize)

    widths = [
        width
        for width in _WIDTHS + _NARROW_WIDTHS
        if width == 1 or (width < 2 * columns and columns >= width * limits.multiprocessors)
    ]
    target = min(_SHARED_TARGET, limits.shared_bytes)
    for staged, budget in ((True, target), (True, limits.shared_bytes), (False, target)):
        for choice in (tiling(width, staged, True) for width in widths):
            if choice.shared_bytes <= budget:
                return choice
    width = min(widths[0], _WIDTHS[-1])
    choice = tiling(width, True, False)
    return choice if choice.shared_bytes <= target else tiling(width, False, False)


def batch_program(dtype: np.dtype[np.generic], tiling: Tiling, owner: bool) -> Program:
    """Return the general kernel of a batch list."""
    steps = steps_type(SCALARS[dtype], tiling.steps)
    cut = tiling.width, tiling.threads, owner, tiling.staged, tiling.in_shared
    return device_program("batch/general", "batched_kron", dtype, steps, *cut)


def group_program(dtype: np.dtype[np.generic], tiling: Tiling) -> Program:
    """Return the general kernel of a run of modes of a Kron-Matmul."""
    steps, sizes = steps_type(SCALARS[dtype], tiling.steps), (tiling.input_size, tiling.output_size)
    cut = tiling.width, tiling.row_length, tiling.threads, tiling.staged, tiling.in_shared
    return device_program("kron/general", "kron_group", dtype, steps, *sizes, *cut)


@cache
def batch_arguments(dtype: np.dtype[Any], modes: int, fixed: bool) -> np.dtype[Any]:
    """Return the layout of the C++ struct BatchArguments for products of ``modes`` factors."""
    pointers = pointer_fields(
        "x", "y", "workspace", "ids", "inputs", "outputs", "starts", "weights"
    )
    sizes = size_fields("products", "outer", "inner", "num_inputs", "num_outputs", "input_size")
    sizes += size_fields("output_size", "systems", "weight_system", "staged", "buffer", "group")
    steps = ("steps", steps_argument(modes, fixed))
    return np.dtype(
        [*pointers, steps, *sizes, *size_fields("accumulate"), ("alpha", dtype)], align=True
    )


@cache
def group_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct GroupArguments for ``modes`` factors."""
    pointers = pointer_fields("x", "y", "previous", "workspace")
    steps = ("steps", steps_argument(modes, True))
    sizes = size_fields("columns", "R", "input_size", "output_size", "staged", "buffer")
    return np.dtype([*pointers, steps, *sizes, ("alpha", dtype), ("beta", dtype)], align=True)
