"""Tilings of the general kernels, for batch lists and Kron-Matmuls of any sizes.

A kernel evaluates all steps of a tile of columns in shared memory. How a tiling is chosen stands in
``batch/general.py`` and ``kron/general.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import Step

# Numbers below were chosen by hand.
# Bytes of shared memory of a thread block, so that at least two fit on a multiprocessor.
SHARED_TARGET = 96 << 10
_WORKSPACE_TARGET = 256 << 20  # largest workspace in bytes, if that suffices for one thread block
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
