"""How a Kron-Matmul of large factors is cut: tiles in shared memory, fibres multiplied in place.

A group of neighbouring modes is one kernel, ``csrc/cuda/kron/fibres/kernel.cuh``: single precision
on ordinary cores, or on matrix units where asked for, double precision on matrix units. Tiles,
teams and fibres of a warp are those of the least estimated time (``cost``), with few bank conflicts
(``layout``). Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import permutations

import numpy as np

from batchkron.backends.cuda.kron.fibres.cost import Cut, Shape, cuts_of, min_cycles
from batchkron.backends.cuda.kron.fibres.layout import FibreTile, fibre_tile, layout_of
from batchkron.backends.cuda.kron.fibres.tf32 import PRODUCTS
from batchkron.backends.cuda.kron.registers.passes import cuts
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.steps import GroupShape, group_shapes
from batchkron.spec.kron import Precision

_MIN_LARGEST_FACTOR = 16  # rows or columns that the largest factor of a product has at least
_MIN_LARGEST_FACTOR_FLOAT64 = 8  # the same in float64, where all sizes are multiples of four
_MAX_MODES = 8  # of a product that fibres are tried for
_MAX_GROUP_MODES = 6  # modes that one kernel applies
_MAX_PERMUTED = 4  # groups up to which every order of them is tried
# Relative increase of the time where every access to shared memory has a two-way bank conflict.
_BANK_CONFLICT_COST = 0.18


@dataclass(frozen=True, slots=True)
class FibreKnobs:
    """What may be chosen: slices and columns of a tile, teams, their warps, tiles of a team.

    ``units``: 1 if single precision may be multiplied on matrix units, where that was asked for.
    """

    slices: int
    columns: int
    teams: int
    warps: int
    stages: int
    units: int = 0


@dataclass(frozen=True, slots=True)
class FibreGroup:
    """Neighbouring modes that one kernel applies to x (L, input_size, R)."""

    tile: FibreTile
    L: int
    R: int
    cycles: float = field(compare=False)  # estimated, of a multiprocessor

    @property
    def elements(self) -> int:
        """Elements of the group's result."""
        return self.L * self.tile.output_size * self.R

    @property
    def knobs(self) -> FibreKnobs:
        """What was chosen."""
        tile = self.tile
        warps = tile.threads // WARP
        units = int(any(one.products for one in tile.passes))
        return FibreKnobs(tile.slices, tile.columns, tile.teams, warps, tile.stages, units)

    def blocks(self, limits: DeviceLimits) -> int:
        """Return the number of thread blocks."""
        tiles = -(-self.L // self.tile.slices) * -(-self.R // self.tile.columns)
        return min(tiles, limits.multiprocessors)


@lru_cache(maxsize=1024)
def fibre_groups(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    outer: int,
    inner: int,
    dtype: np.dtype[np.generic],
    limits: DeviceLimits,
    precision: Precision | None = None,
) -> tuple[FibreGroup, ...] | None:
    """Return the kernels of a Kron-Matmul of large real factors, None where it has others."""
    if dtype.kind != "f" or not 0 < len(inputs) <= _MAX_MODES:
        return None
    whole = dtype.itemsize == 8 and all(size % 4 == 0 for size in (*inputs, *outputs))
    if max(*inputs, *outputs) < (_MIN_LARGEST_FACTOR_FLOAT64 if whole else _MIN_LARGEST_FACTOR):
        return None
    products = PRODUCTS[precision] if dtype == np.float32 else 0
    asked = GroupShape(0, inputs, outputs, outer, inner, dtype, products)
    best, found = math.inf, None
    for parts in range(1, len(inputs) + 1):
        for cut in cuts(len(inputs), parts):
            if any(high - low > _MAX_GROUP_MODES for low, high in cut):
                continue
            reverse = inputs == outputs or parts > _MAX_PERMUTED
            for order in [tuple(reversed(cut))] if reverse else permutations(cut):
                groups = _cuts(order, asked, limits, best)
                if groups is None:
                    continue
                cycles = sum(one.cycles for _, _, one in groups)
                if cycles < best:
                    best, found = cycles, groups
    if found is None:
        return None
    return tuple(
        FibreGroup(fibre_tile(low, shape, cut, limits), shape.L, shape.R, cut.cycles)
        for low, shape, cut in found
    )


@lru_cache(maxsize=4096)
def _best_cut(shape: Shape, limits: DeviceLimits) -> Cut | None:
    """Return the fastest way to work on a group, None if no tile fits in shared memory."""
    best: Cut | None = None
    for cut in sorted(cuts_of(shape, limits), key=lambda cut: cut.cycles):
        if best is not None and cut.cycles >= best.cycles:
            break
        slower = 1 + _BANK_CONFLICT_COST * (layout_of(shape, cut, limits).conflicts - 1)
        if best is None or cut.cycles * slower < best.cycles:
            best = replace(cut, cycles=cut.cycles * slower)
    return best


def fibre_knobs(part: GroupShape, limits: DeviceLimits) -> list[tuple[float, FibreKnobs]]:
    """Return all ways to work on a group with their estimated cycles, the fastest first."""
    if part.dtype.kind != "f" or len(part.inputs) > _MAX_GROUP_MODES:
        return []
    found = [
        (cut.cycles, _knobs_of(cut)) for shape in _shapes(part) for cut in cuts_of(shape, limits)
    ]
    return sorted(dict.fromkeys(found), key=lambda way: way[0])


def fibre_group(
    part: GroupShape, knobs: FibreKnobs | None, limits: DeviceLimits
) -> FibreGroup | None:
    """Return the kernel of a group with these knobs, or the rule's; None if there is none."""
    if part.dtype.kind != "f" or len(part.inputs) > _MAX_GROUP_MODES:
        return None
    if knobs is None:
        found = _fastest(part, limits)
    else:
        all_ways = ((shape, cut) for shape in _shapes(part) for cut in cuts_of(shape, limits))
        ways = (way for way in all_ways if _knobs_of(way[1]) == knobs)
        found = min(ways, key=lambda way: way[1].cycles, default=None)
    if found is None:
        return None
    shape, cut = found
    return FibreGroup(fibre_tile(part.first, shape, cut, limits), part.L, part.R, cut.cycles)


def _knobs_of(cut: Cut) -> FibreKnobs:
    """Return what tells a cut from all others of its group."""
    units = int(any(fragment.products for fragment in cut.fragments))
    return FibreKnobs(cut.slices, cut.columns, cut.teams, cut.warps, cut.stages, units)


def _shapes(part: GroupShape) -> list[Shape]:
    """Return a group as it is asked for, and on ordinary cores, which that allows as well."""
    sizes = part.inputs, part.outputs, part.L, part.R, part.itemsize
    return [Shape(*sizes, products) for products in dict.fromkeys((part.products, 0))]


def _fastest(part: GroupShape, limits: DeviceLimits) -> tuple[Shape, Cut] | None:
    """Return the fastest way to work on a group by estimate, None if no tile fits."""
    found = ((shape, _best_cut(shape, limits)) for shape in _shapes(part))
    ways = [(shape, cut) for shape, cut in found if cut is not None]
    return min(ways, key=lambda way: way[1].cycles, default=None)


def _cuts(
    order: Sequence[tuple[int, int]], asked: GroupShape, limits: DeviceLimits, bound: float
) -> list[tuple[int, Shape, Cut]] | None:
    """Return first mode, shape and cut of each group.

    None if one does not fit, or if all take as many cycles as ``bound`` whatever they do.
    """
    sizes = asked.inputs, asked.outputs, asked.L, asked.R, asked.dtype, asked.products
    parts = list(group_shapes(order, *sizes))
    minimum = [min_cycles(part, limits) for part in parts]
    found: list[tuple[int, Shape, Cut]] = []
    for number, part in enumerate(parts):
        if sum(minimum) >= bound:
            return None
        way = _fastest(part, limits)
        if way is None:
            return None
        minimum[number] = way[1].cycles
        found.append((part.first, *way))
    return found
