"""Which modes of a Kron-Matmul of small factors go through registers together.

A group of neighbouring modes is one kernel, see ``tile``. Pure arithmetic on sizes, without any
device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from batchkron.backends.cuda.kron.registers.passes import TilePlanner, cuts, multiply_adds
from batchkron.backends.cuda.kron.registers.small_problems import few_tiles_groups
from batchkron.backends.cuda.kron.registers.tile import (
    MAX_FACTOR_SIZE,
    MAX_MODES,
    RegisterGroup,
    slices_to_spread,
    tile_of,
    tiles_of,
    usual_planner,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import GroupShape, group_shapes

_MAX_GROUPS = 4  # kernels of a product that are tried
_LINE = 128  # bytes of a cache line, which a warp should read as a whole
_SIZE_STEP = 4096  # bytes: sizes of tiles within one such step count as equal


@dataclass(frozen=True, slots=True)
class _Shape:
    """A Kron-Matmul: sizes of its factors, rows, columns."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    outer: int
    inner: int
    dtype: np.dtype[np.generic]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize


@lru_cache(maxsize=1024)
def register_groups(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    outer: int,
    inner: int,
    dtype: np.dtype[np.generic],
    constant: bool,
    limits: DeviceLimits,
) -> tuple[RegisterGroup, ...] | None:
    """Return the kernels of a Kron-Matmul of small factors, None where it has others.

    The fewest groups whose tiles fit in shared memory, of these the order with least work.
    ``constant``: the factors may become constants of the kernels.
    """
    if not 0 < len(inputs) <= MAX_MODES or max(*inputs, *outputs) > MAX_FACTOR_SIZE:
        return None
    shape = _Shape(inputs, outputs, outer, inner, dtype)
    best: tuple[float, ...] | None = None
    found: list[tuple[TilePlanner, int, int]] = []
    for parts in range(1, min(len(inputs), _MAX_GROUPS) + 1):
        for cut in cuts(len(inputs), parts):
            orders = permutations(cut) if inputs != outputs else [tuple(reversed(cut))]
            for order in orders:
                planners = _planners(order, shape, limits)
                if planners is None:
                    continue
                tiles = [planner for planner, _, _ in planners]
                cost = (
                    multiply_adds(order, inputs, outputs),
                    sum(len(tile.runs) for tile in tiles),
                    -min(min(tile.columns * shape.itemsize, _LINE) for tile in tiles),
                    max(tile.shared_bytes(tile.unpadded()) for tile in tiles) // _SIZE_STEP,
                    -max(len(tile.inputs) for tile in tiles),
                )
                if best is None or cost < best:
                    best, found = cost, planners
        if found:
            return _chosen(found, shape, constant, limits)
    return None


def _chosen(
    found: Sequence[tuple[TilePlanner, int, int]],
    shape: _Shape,
    constant: bool,
    limits: DeviceLimits,
) -> tuple[RegisterGroup, ...]:
    """Return the kernels of planners, or quicker ones if they leave multiprocessors idle."""
    if any(
        tiles_of(L, R, planner) <= limits.multiprocessors * slices_to_spread(L, R, planner, limits)
        for planner, L, R in found
    ):
        sizes = shape.inputs, shape.outputs, shape.outer, shape.inner, shape.dtype
        few = few_tiles_groups(GroupShape(0, *sizes), constant, len(found) + 1, limits)
        if few:
            return few
    return tuple(
        RegisterGroup(tile_of(planner, R if shape.inner == 1 else 0, constant, limits), L, R)
        for planner, L, R in found
    )


def _planners(
    order: Sequence[tuple[int, int]], shape: _Shape, limits: DeviceLimits
) -> list[tuple[TilePlanner, int, int]] | None:
    """Return a planner, L and R of each group, None if a tile does not fit in shared memory."""
    planners, vectors = [], (shape.outer, shape.inner, shape.dtype)
    for part in group_shapes(order, shape.inputs, shape.outputs, *vectors):
        planner = usual_planner(part, limits)
        if planner.shared_bytes(planner.unpadded()) > limits.shared_bytes:
            return None
        planners.append((planner, part.L, part.R))
    return planners
