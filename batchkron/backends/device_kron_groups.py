"""Which kernels a Kron-Matmul has: in registers, in place of fibres, by panels of large factors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from batchkron.backends.device_fibres import FibreGroup, fibre_groups
from batchkron.backends.device_panels import PanelGroup, is_large, panel_group
from batchkron.backends.device_programs import (
    Program,
    fibre_program,
    panel_program,
    register_program,
)
from batchkron.backends.device_registers import RegisterGroup, register_groups
from batchkron.backends.device_tiling import DeviceLimits, GroupShape, group_shapes, plan_order
from batchkron.spec import Precision

_LEAST_SIDE, _LEAST_LONGEST = 8, 48  # of factors that panels may be better for than fibres
_LEAST_BUSY = 64  # rows and columns of those where fibres keep all multiprocessors busy
_SURELY = 0.83  # of the time of fibres, as far as estimates of both go

KronGroup = FibreGroup | RegisterGroup | PanelGroup


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
    large = [is_large(C, K, dtype) for C, K in zip(inputs, outputs, strict=True)]
    shape = inputs, outputs, outer, inner, dtype
    in_full = precision is None or dtype != np.float32
    by_size = any(large) and in_full
    in_fibres = None if by_size else fibre_groups(*shape, limits, precision)
    if in_fibres is None and any(large):
        return _with_panels(GroupShape(0, *shape), large, limits, precision)
    if in_fibres is None:
        return register_groups(*shape, constant, limits)
    idle = any(group.blocks(limits) < limits.multiprocessors for group in in_fibres)
    sizes = *inputs, *outputs
    least = _LEAST_SIDE if idle and max(sizes) >= _LEAST_LONGEST else _LEAST_BUSY
    if min(sizes) >= least and in_full:
        by_panels = tuple(_panels(GroupShape(0, *shape), limits))
        if _cycles(by_panels) < _SURELY * _cycles(in_fibres):
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


def _cycles(groups: Sequence[FibreGroup] | Sequence[PanelGroup]) -> float:
    return sum(group.cycles for group in groups)


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
    for group in groups:
        modes = tuple(part.first + mode for mode in group.tile.modes)
        yield replace(group, tile=replace(group.tile, modes=modes))  # type: ignore[arg-type]


def kron_group_program(group: KronGroup, dtype: np.dtype[np.generic]) -> Program:
    """Return what is compiled for a group."""
    if isinstance(group, FibreGroup):
        return fibre_program(dtype, group.tile)
    if isinstance(group, PanelGroup):
        return panel_program(group.tile)
    return register_program(dtype, group.tile)
