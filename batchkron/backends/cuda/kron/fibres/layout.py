"""The layout of a fibre kernel's tile in shared memory, and the kernel's template arguments.

The strides have the fewest bank conflicts over all passes. The kernel's contract is in
``csrc/cuda/kron/fibres/kernel.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations, product

import numpy as np

from batchkron.backends.cuda.kron.fibres.passes import (
    LANES,
    RING,
    FibreVariant,
    Share,
    alone,
    extents_of,
    mode_steps,
    word_of,
    writes_to_array,
)
from batchkron.backends.cuda.kron.registers.passes import access_lengths, strides_of
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.backends.cuda.steps import ModeRun
from batchkron.spec.kron import Array

_BARRIERS = 16  # bytes of the two barriers of each stage of a ring: it is full, it has been read
_BANKS = 32  # banks of shared memory, 4 bytes each

Axes = tuple[tuple[int, int], ...]  # sizes and strides


@dataclass(frozen=True, slots=True)
class FibrePass:
    """The template arguments of a pass; ``fibres``: axes that enumerate fibres, fastest first."""

    C: int
    K: int
    stride: int
    share: Share
    fibres: Axes


@dataclass(frozen=True, slots=True)
class FibreTile:
    """The layout of a tile."""

    modes: tuple[int, ...]  # the run's modes, in the order of the passes
    # inputs, outputs: size and stride of the tile's axes in shared memory, the fastest first
    inputs: Axes
    outputs: Axes
    buffer: int  # elements of a tile in shared memory
    shared_bytes: int  # bytes of shared memory of a thread block
    passes: tuple[FibrePass, ...]  # the passes over a tile, one for each mode
    # if the last pass writes to the array: rows between neighbouring results of a fibre. If it
    # writes to the tile: 0.
    step: int
    # size and stride, in rows, of the axes that enumerate the last pass' fibres in the array, see
    # ``DirectTarget`` of the kernel
    rows: Axes
    conflicts: float  # the mean length of accesses to shared memory, 1 without bank conflicts


def fibre_tile(
    run: ModeRun, variant: FibreVariant, shares: tuple[Share, ...], limits: DeviceLimits
) -> FibreTile:
    """Return the layout with the fewest bank conflicts of a run from mode 0, by two paddings."""
    staged = sum(share.staged for share in shares)
    step, rows = _direct(run, variant, shares[-1])
    layouts, conflicts = _layouts(alone(run), variant.slices, variant.columns, shares, step == 0)
    buffers = -(-layouts[:, 0] * variant.slices // 4) * 4
    shared = (staged + variant.teams * variant.stages * buffers) * run.itemsize
    shared += _BARRIERS * variant.stages if variant.stages == RING else 0
    fits = np.flatnonzero(shared <= limits.shared_bytes)
    assert fits.size, "a tile without pads fits"
    best = fits[np.lexsort((buffers[fits], conflicts[fits]))[0]]
    strides = tuple(layouts[best].tolist())

    def axes_of(sizes: Sequence[int]) -> Axes:
        return tuple(zip((variant.slices, *sizes, variant.columns), strides, strict=True))[::-1]

    return FibreTile(
        tuple(mode for mode, _ in mode_steps(run)),
        axes_of(run.inputs),
        axes_of(run.outputs),
        int(buffers[best]),
        int(shared[best]),
        _passes(run, variant.slices, variant.columns, shares, strides),
        step,
        rows,
        float(conflicts[best]),
    )


@lru_cache(maxsize=1024)  # many variants have the same passes
def _layouts(
    run: ModeRun, slices: int, columns: int, shares: tuple[Share, ...], writes: bool
) -> tuple[Array, Array]:
    """Return the strides of a tile's axes in every layout, and `_conflicts` in each of them."""
    extents = [slices, *extents_of(run), columns]
    pads = word_of(run, columns) * _pads(len(extents) - 1 - (columns == 1), len(extents))
    layouts = np.stack(strides_of(extents, pads.T), axis=1)
    numbers = tuple(range(len(extents)))  # of axes, in place of their strides
    passes = _passes(run, slices, columns, shares, numbers)
    return layouts, _conflicts(passes, run.itemsize, layouts, writes=writes)


@cache
def _pads(padded: int, axes: int) -> Array:
    """Return the paddings to try, in words: of at most two of the first ``padded`` axes."""
    found: dict[tuple[int, ...], None] = {}
    for pads in product(range(6), repeat=min(2, padded)):
        for pair in combinations(range(padded), len(pads)):
            one = dict(zip(pair, pads, strict=True))
            found[tuple(one.get(axis, 0) for axis in range(axes))] = None
    return np.array(list(found))


def _passes(
    run: ModeRun, slices: int, columns: int, shares: Sequence[Share], strides: Sequence[int]
) -> tuple[FibrePass, ...]:
    """Return the passes of a tile whose axes (slices, modes, columns) have ``strides``."""
    found = []
    for (mode, sizes), share in zip(mode_steps(run), shares, strict=True):
        axes = [(columns, strides[-1])]
        axes += [(sizes[m], strides[m + 1]) for m in reversed(range(len(sizes))) if m != mode]
        axes.append((slices, strides[0]))
        fibres = tuple(axis for axis in axes if axis[0] > 1) or ((1, 1),)
        C, K = run.inputs[mode], run.outputs[mode]
        found.append(FibrePass(C, K, strides[mode + 1], share, fibres))
    return tuple(found)


def _direct(run: ModeRun, variant: FibreVariant, last: Share) -> tuple[int, Axes]:
    """Return `FibreTile.step` and `FibreTile.rows`."""
    *_, (mode, _) = mode_steps(run)
    sizes = run.outputs
    strides = [math.prod(sizes[m + 1 :]) for m in range(len(sizes))]
    rows = [(sizes[m], strides[m]) for m in reversed(range(len(sizes))) if m != mode]
    rows.append((variant.slices, math.prod(sizes)))
    direct = writes_to_array(run, variant.columns, last.along)
    return strides[mode] if direct else 0, tuple(rows)


def _conflicts(
    passes: Sequence[FibrePass], itemsize: int, strides: Array, *, writes: bool
) -> Array:
    """Return the mean length of accesses to shared memory in each layout, 1 without conflicts.

    ``passes`` have indices of axes in place of strides. ``writes``: whether the last pass writes
    to the tile; else its writes do not count where the factor is in registers.
    """
    found = []
    for one in passes:
        fibres = [(size, strides[:, axis]) for size, axis in one.fibres]
        accesses = list(_accesses(one, itemsize))
        if one.share.factor_in_registers and not writes:
            del accesses[1:]
        for fibre, entry, word in accesses:
            places = _places(fibres, fibre) + strides[:, one.stride, None] * entry
            lanes = _BANKS // (word * itemsize // 4)
            lengths = access_lengths((places // word).reshape(-1, lanes), lanes)
            found += list(lengths.reshape(len(strides), -1).T)
    means: Array = np.mean(found, axis=0)
    return np.round(means, 3)


def _accesses(one: FibrePass, itemsize: int) -> Iterator[tuple[Array, Array, int]]:
    """Yield the accesses of a warp to shared memory: first its reads, then its writes.

    Each is (fibre of each lane, entry of each lane, elements that a lane accesses).
    """
    lane, share = np.arange(WARP), one.share
    across, along = share.across, share.along
    if itemsize == 8 or share.split:
        fibre = lane // 4 * across
        if not share.products:
            yield fibre, lane % 4, across
        yield (fibre, lane % 4 * 2, 2) if along else (fibre, lane % 4, across)
        return
    lanes = next((count for count in LANES if count * share.columns >= one.K), LANES[-1])
    along_fibres = WARP // lanes
    fibre = lane % along_fibres * across
    yield fibre, np.zeros_like(lane), 4 if along else across
    yield fibre, lane // along_fibres * 4, 4 if along and one.K % 4 == 0 else across


def _places(fibres: Sequence[tuple[int, Array]], fibre: Array) -> Array:
    """Return where each lane's fibre begins, in every layout.

    ``fibres`` are the axes that enumerate fibres: size, and strides in every layout.
    """
    place = np.zeros((len(fibres[0][1]), WARP), np.int64)
    for size, strides in fibres:
        place += strides[:, None] * (fibre % size)
        fibre = fibre // size
    return place


def _axes_type(axes: Axes) -> str:
    return template_type("TileAxes", *(template_type("TileAxis", *axis) for axis in axes))


def _pass_type(one: FibrePass) -> str:
    share, fibres = one.share, _axes_type(one.fibres)
    sizes, along = (one.C, one.K, one.stride, share.rows), share.along
    if share.products:
        sharing = share.split, share.products
        return template_type("Tf32Pass", *sizes, share.across, along, *sharing, fibres)
    columns = share.columns, share.across
    return template_type("FibrePass", *sizes, *columns, along, share.split, fibres)


def fibre_program(run: ModeRun, variant: FibreVariant, tile: FibreTile, owners: int) -> Program:
    """Return the kernel, whose last pass spreads results over ``owners``; 0 for one array."""
    blocks = variant.slices, variant.columns, math.prod(run.inputs), math.prod(run.outputs)
    groups = variant.warps * WARP, variant.teams, variant.stages
    sizes = *blocks, word_of(run, variant.columns), tile.buffer, *groups
    axes = _axes_type(tile.inputs), _axes_type(tile.outputs)
    parts = (owners,) if owners else ()
    direct = template_type("DirectTarget", tile.step, _axes_type(tile.rows), *parts)
    of_tile = template_type("FibreTile", *sizes, *axes, direct)
    passes = map(_pass_type, tile.passes)
    return device_program("kron/fibres/kernel", "kron_fibres", run.dtype, of_tile, *passes)
