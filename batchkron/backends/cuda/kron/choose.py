"""Which kernels a Kron-Matmul has.

In registers, in place of fibres, by panels of large factors, by slices of tiles that are larger
than shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from batchkron.backends.cuda.kron.fibres.choose import FibreGroup, fibre_groups
from batchkron.backends.cuda.kron.fibres.layout import fibre_program
from batchkron.backends.cuda.kron.panels import PanelGroup, is_large, panel_group, panel_program
from batchkron.backends.cuda.kron.registers.choose import register_groups
from batchkron.backends.cuda.kron.registers.tile import RegisterGroup, register_program
from batchkron.backends.cuda.kron.slices import SliceGroup, kron_slices_program, slice_group
from batchkron.backends.cuda.runtime.arguments import FACTOR, pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import GroupShape, group_shapes, plan_order
from batchkron.spec.kron import Precision

# Rows and columns of factors for which panels may be faster than fibres: all of them at least the
# first number, one of them the second, where fibres leave multiprocessors idle ...
_MIN_PANEL_SIDE, _MIN_LONGEST_SIDE = 8, 48
_MIN_BUSY_PANEL_SIDE = 64  # ... and all of them where fibres keep all multiprocessors busy
# Share of the time in which all multiprocessors have tiles, from which one kernel of slices
# replaces several in registers.
_MIN_FILL = 0.8
# Estimated time of panels over that of fibres, below which panels are taken.
_PANEL_ADVANTAGE = 0.83

KronGroup = FibreGroup | RegisterGroup | PanelGroup | SliceGroup
_Timed = tuple[float, tuple[KronGroup, ...]]  # kernels, and their estimated cycles


def rule_groups(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    outer: int,
    inner: int,
    dtype: np.dtype[np.generic],
    constant: bool,
    limits: DeviceLimits,
    precision: Precision | None = None,
) -> tuple[KronGroup, ...] | None:
    """Return the kernels that the rule chooses, None where it takes the general ones.

    ``constant``: the factors may be constants of the kernels.
    """
    whole = GroupShape(0, inputs, outputs, outer, inner, dtype)
    usual = _usual_groups(whole, constant, limits, precision)
    if precision is not None and dtype == np.float32:
        return usual
    if usual is not None and all(isinstance(group, FibreGroup) for group in usual):
        sliced = _with_slices(whole, limits)
        return sliced[1] if sliced is not None and sliced[0] < _cycles(usual) else usual
    if usual is None or (len(usual) > 1 and isinstance(usual[0], RegisterGroup)):
        alone = _slices_if_filled(whole, limits)
        if alone is not None and (usual is None or _fills(alone, limits)):
            return (alone,)
    return None if usual is None else tuple(_sliced(group, dtype, limits) for group in usual)


def _usual_groups(
    whole: GroupShape, constant: bool, limits: DeviceLimits, precision: Precision | None
) -> tuple[KronGroup, ...] | None:
    """Return the kernels without those of slices."""
    shape = whole.inputs, whole.outputs, whole.L, whole.R, whole.dtype
    large = [is_large(C, K, whole.dtype) for C, K in zip(*shape[:2], strict=True)]
    in_full = precision is None or whole.dtype != np.float32
    by_size = any(large) and in_full
    in_fibres = None if by_size else fibre_groups(*shape, limits, precision)
    if in_fibres is None and any(large):
        return _with_panels(whole, large, limits, precision)
    if in_fibres is None:
        return register_groups(*shape, constant, limits)
    idle = any(group.blocks(limits) < limits.multiprocessors for group in in_fibres)
    sizes = *whole.inputs, *whole.outputs
    minimum = _MIN_PANEL_SIDE if idle and max(sizes) >= _MIN_LONGEST_SIDE else _MIN_BUSY_PANEL_SIDE
    if min(sizes) >= minimum and in_full:
        by_panels = tuple(_panels(whole, limits))
        if _cycles(by_panels) < _PANEL_ADVANTAGE * _cycles(in_fibres):
            return by_panels
    return in_fibres


def _with_panels(
    whole: GroupShape, large: list[bool], limits: DeviceLimits, precision: Precision | None
) -> tuple[KronGroup, ...]:
    """Return panels of large factors, and the kernels of the modes between them."""
    found: list[KronGroup] = []
    sizes = whole.inputs, whole.outputs, whole.L, whole.R, whole.dtype
    for part in group_shapes(_runs(whole.inputs, whole.outputs, large), *sizes):
        if large[part.first]:
            found += _panels(part, limits)
        else:
            found += _between(part, limits, precision)
    return tuple(found)


def _cycles(groups: Sequence[KronGroup]) -> float:
    return sum(math.inf if isinstance(one, RegisterGroup) else one.cycles for one in groups)


def _slices_if_filled(part: GroupShape, limits: DeviceLimits) -> SliceGroup | None:
    """Return the kernel of slices of a group if its tiles keep most multiprocessors busy."""
    group = slice_group(part, limits)
    return group if group is not None and 2 * group.tiles() >= limits.multiprocessors else None


def _fills(group: SliceGroup, limits: DeviceLimits) -> bool:
    """Whether multiprocessors have work most of the time, though tiles are whole."""
    rounds = -(-group.tiles() // limits.multiprocessors)
    return group.tiles() >= _MIN_FILL * rounds * limits.multiprocessors


def _sliced(group: KronGroup, dtype: np.dtype[np.generic], limits: DeviceLimits) -> KronGroup:
    """Return the kernel of slices in place of one in registers where there is one."""
    if not isinstance(group, RegisterGroup):
        return group
    tile = group.tile
    part = GroupShape(min(tile.modes), tile.inputs, tile.outputs, group.L, group.R, dtype)
    return _slices_if_filled(part, limits) or group


@lru_cache(maxsize=1024)
def _with_slices(part: GroupShape, limits: DeviceLimits) -> _Timed | None:
    """Return the fastest kernels of a group of which at least one works slice by slice."""
    best: _Timed | None = None
    count = len(part.inputs)
    for low, high in combinations(range(count + 1), 2):
        given = part.inputs, part.outputs, part.L, part.R, part.dtype
        cut = [run for run in ((high, count), (low, high), (0, low)) if run[0] < run[1]]
        found: list[_Timed] = []
        for run, one in zip(cut, group_shapes(cut, *given), strict=True):
            own = replace(one, first=part.first + one.first)
            group = slice_group(own, limits) if run == (low, high) else None
            timed: _Timed | None = None if group is None else (group.cycles, (group,))
            if run != (low, high):
                timed = _fastest(own, limits)
            if timed is None:
                break
            found.append(timed)
        else:
            cycles = sum(one[0] for one in found)
            if best is None or cycles < best[0]:
                best = cycles, tuple(group for one in found for group in one[1])
    return best


def _fastest(part: GroupShape, limits: DeviceLimits) -> _Timed | None:
    """Return the fastest kernels of a group by estimate, of fibres or of slices."""
    given = part.inputs, part.outputs, part.L, part.R, part.dtype
    found = fibre_groups(*given, limits)
    fibres = None if found is None else (_cycles(found), tuple(_moved(found, part.first)))
    ways = [way for way in (fibres, _with_slices(part, limits)) if way is not None]
    return min(ways, key=lambda way: way[0], default=None)


def _moved(groups: Sequence[KronGroup], first: int) -> Iterator[KronGroup]:
    """Yield kernels of a run of modes as those of a product whose mode ``first`` is their first."""
    for group in groups:
        modes = tuple(first + mode for mode in group.tile.modes)
        yield replace(group, tile=replace(group.tile, modes=modes))  # type: ignore[arg-type]


def _runs(
    inputs: tuple[int, ...], outputs: tuple[int, ...], large: list[bool]
) -> list[tuple[int, int]]:
    """Return large factors one by one and runs of others, in the order of least work."""
    begins = [m for m in range(len(large)) if m == 0 or large[m] or large[m - 1]]
    runs = list(zip(begins, [*begins[1:], len(large)], strict=True))
    order = plan_order(
        [math.prod(inputs[low:high]) for low, high in runs],
        [math.prod(outputs[low:high]) for low, high in runs],
    )
    return [runs[number] for number in order]


def _panels(part: GroupShape, limits: DeviceLimits) -> Iterator[PanelGroup]:
    """Yield the kernel of each mode of a run."""
    modes = plan_order(part.inputs, part.outputs)
    given = part.inputs, part.outputs, part.L, part.R, part.dtype
    for one in group_shapes([(mode, mode + 1) for mode in modes], *given):
        group = panel_group(replace(one, first=part.first + one.first), limits)
        assert group is not None, "one mode has a kernel"
        yield group


def _between(
    part: GroupShape, limits: DeviceLimits, precision: Precision | None
) -> Iterator[KronGroup]:
    """Yield the kernels of a run of modes beside large factors."""
    given = part.inputs, part.outputs, part.L, part.R, part.dtype
    groups = rule_groups(*given, False, limits, precision)
    if groups is None:
        yield from _panels(part, limits)
        return
    yield from _moved(groups, part.first)


def kron_group_program(group: KronGroup, dtype: np.dtype[np.generic]) -> Program:
    """Return what is compiled for a group."""
    if isinstance(group, FibreGroup):
        return fibre_program(dtype, group.tile)
    if isinstance(group, PanelGroup):
        return panel_program(group.tile)
    if isinstance(group, SliceGroup):
        return kron_slices_program(dtype, group.tile)
    return register_program(dtype, group.tile)


@cache
def kron_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return KronArguments for ``modes`` factors."""
    pointers = pointer_fields("x", "y", "previous")
    factors = ("factors", FACTOR, (modes,))
    return np.dtype(
        [*pointers, factors, *size_fields("L", "R"), ("alpha", dtype), ("beta", dtype)], align=True
    )
