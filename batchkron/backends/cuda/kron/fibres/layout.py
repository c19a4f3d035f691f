"""The layout of a fibre kernel's tile in shared memory, and its template arguments.

The strides have the fewest bank conflicts over all passes. Pure arithmetic on sizes, no device
needed; the kernel's contract is in ``csrc/cuda/kron/fibres/kernel.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations, islice, product

import numpy as np

from batchkron.backends.cuda.kron.fibres.cuts import LANES, RING, Cut, Shape, writes_to_array
from batchkron.backends.cuda.kron.registers.passes import access_lengths, strides_of
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.spec.kron import Array

_BARRIERS = 16  # bytes of the two barriers of each stage of a ring: it is full, it has been read
_BANKS = 32  # banks of shared memory, 4 bytes each


@dataclass(frozen=True, slots=True)
class FibrePass:
    """The template arguments of a pass, see ``FibrePass`` of the kernel.

    ``fibres`` are (size, stride) of the axes that enumerate the fibres. If ``products`` is not 0,
    it is a ``Tf32Pass``: ``rows`` are its blocks, ``split`` its sharers.
    """

    C: int
    K: int
    stride: int
    rows: int
    columns: int
    across: int
    along: bool
    split: int
    products: int
    fibres: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FibreTile:
    """The tiling of one kernel.

    Attributes
    ----------
    modes : tuple of int
        The run's modes, in the order of the passes.
    slices, columns : int
        A tile has this many blocks of the run's modes along L, and columns along R.
    inputs, outputs : tuple of (int, int)
        Size and stride of the tile's axes in shared memory, the fastest first.
    word : int
        Elements that are copied together.
    buffer : int
        Elements of a tile in shared memory.
    threads, teams, stages : int
        Threads of a team, teams of a thread block, tiles of a team in shared memory.
    shared_bytes : int
        Bytes of shared memory of a thread block.
    passes : tuple of FibrePass
        The passes over a tile, one for each mode.
    step : int
        If the last pass writes to the array: rows between neighbouring results of a fibre. If it
        writes to the tile: 0.
    rows : tuple of (int, int)
        Size and stride, in rows, of the axes that enumerate the last pass' fibres in the array, see
        ``DirectTarget`` of the kernel.
    parts : int
        Owners over whose memory the last pass spreads its results; 0 if they go to one array.
    """

    modes: tuple[int, ...]
    slices: int
    columns: int
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    word: int
    buffer: int
    threads: int
    teams: int
    stages: int
    shared_bytes: int
    passes: tuple[FibrePass, ...]
    step: int
    rows: tuple[tuple[int, int], ...]
    parts: int = 0

    @property
    def input_size(self) -> int:
        """Elements of a block's column before the multiply."""
        return math.prod(size for size, _ in self.inputs) // (self.slices * self.columns)

    @property
    def output_size(self) -> int:
        """Elements of a block's column after the multiply."""
        return math.prod(size for size, _ in self.outputs) // (self.slices * self.columns)


def _passes(shape: Shape, cut: Cut, strides: Sequence[int]) -> tuple[FibrePass, ...]:
    """Return the passes of a tile whose axes (slices, modes, columns) have ``strides``."""
    found = []
    for (mode, sizes), fragment in zip(shape.steps(), cut.fragments, strict=True):
        axes = [(cut.columns, strides[-1])]
        axes += [(sizes[m], strides[m + 1]) for m in reversed(range(len(sizes))) if m != mode]
        axes.append((cut.slices, strides[0]))
        found.append(
            FibrePass(
                shape.inputs[mode],
                shape.outputs[mode],
                strides[mode + 1],
                fragment.rows,
                fragment.columns,
                fragment.across,
                fragment.along,
                fragment.split,
                fragment.products,
                tuple(axis for axis in axes if axis[0] > 1) or ((1, 1),),
            )
        )
    return tuple(found)


def _accesses(one: FibrePass, itemsize: int) -> Iterator[tuple[Array, Array, int]]:
    """Yield the accesses of a warp to shared memory: first its reads, then its writes.

    Each is (fibre of each lane, entry of each lane, elements that a lane accesses).
    """
    lane = np.arange(WARP)
    if one.products:
        fibre = lane // 4 * one.across
        yield (fibre, lane % 4 * 2, 2) if one.along else (fibre, lane % 4, one.across)
        return
    if itemsize == 8 or one.split:
        fibre = lane // 4 * one.across
        yield fibre, lane % 4, one.across
        yield (fibre, lane % 4 * 2, 2) if one.along else (fibre, lane % 4, one.across)
        return
    lanes = LANES[-1]
    for candidate in reversed(LANES):
        if candidate * one.columns >= one.K:
            lanes = candidate
    along_fibres = WARP // lanes
    fibre = lane % along_fibres * one.across
    yield fibre, np.zeros_like(lane), 4 if one.along else one.across
    yield fibre, lane // along_fibres * 4, 4 if one.along and one.K % 4 == 0 else one.across


def _places(fibres: Sequence[tuple[int, Array]], fibre: Array) -> Array:
    """Return where each lane's fibre begins, in every layout.

    ``fibres`` are the axes that enumerate fibres: size, and strides in every layout.
    """
    place = np.zeros((len(fibres[0][1]), WARP), np.int64)
    for size, strides in fibres:
        place += strides[:, None] * (fibre % size)
        fibre = fibre // size
    return place


def _conflicts(shape: Shape, cut: Cut, strides: Array) -> Array:
    """Return the mean length of accesses to shared memory in each layout, 1 without conflicts."""
    numbers = tuple(range(strides.shape[1]))
    found = []
    step, _ = _direct(shape, cut)
    for one in _passes(shape, cut, numbers):  # with indices of axes in place of strides
        fibres = [(size, strides[:, axis]) for size, axis in one.fibres]
        in_registers = one.split > 0 and one.products == 0  # the factor is in registers
        only_reads = in_registers and step > 0
        for fibre, entry, word in islice(_accesses(one, shape.itemsize), 1 if only_reads else None):
            places = _places(fibres, fibre) + strides[:, one.stride, None] * entry
            lanes = _BANKS // (word * shape.itemsize // 4)
            lengths = access_lengths((places // word).reshape(-1, lanes), lanes)
            found += list(lengths.reshape(len(strides), -1).T)
    means: Array = np.mean(found, axis=0)
    return np.round(means, 3)


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a tile in shared memory: strides of slices, modes and columns.

    ``buffer`` are the elements of a tile; ``conflicts`` is the mean length of accesses, 1 without
    bank conflicts.
    """

    strides: tuple[int, ...]
    passes: tuple[FibrePass, ...]
    buffer: int
    shared_bytes: int
    conflicts: float


@lru_cache(maxsize=1024)
def layout_of(shape: Shape, cut: Cut, limits: DeviceLimits) -> Layout:
    """Return the layout with the fewest bank conflicts, with padding of at most two axes."""
    word = shape.word(cut.columns)
    extents = [cut.slices, *shape.extents, cut.columns]
    staged = sum(one.staged for one in cut.fragments)
    pads = word * _pads(len(extents) - 1 - (cut.columns == 1), len(extents))
    layouts = np.stack(strides_of(extents, pads.T), axis=1)
    buffers = -(-layouts[:, 0] * cut.slices // 4) * 4
    shared = (staged + cut.teams * cut.stages * buffers) * shape.itemsize
    shared += _BARRIERS * cut.stages if cut.stages == RING else 0
    fits = np.flatnonzero(shared <= limits.shared_bytes)
    assert fits.size, "a tile without pads fits"
    conflicts = _conflicts(shape, cut, layouts[fits])
    first = np.lexsort((buffers[fits], conflicts))[0]
    best = fits[first]
    strides = tuple(layouts[best].tolist())
    passes = _passes(shape, cut, strides)
    return Layout(strides, passes, int(buffers[best]), int(shared[best]), float(conflicts[first]))


@cache
def _pads(padded: int, axes: int) -> Array:
    """Return the paddings to try, in words: of at most two of the first ``padded`` axes."""
    found: dict[tuple[int, ...], None] = {}
    for pads in product(range(6), repeat=min(2, padded)):
        for pair in combinations(range(padded), len(pads)):
            one = dict(zip(pair, pads, strict=True))
            found[tuple(one.get(axis, 0) for axis in range(axes))] = None
    return np.array(list(found))


def fibre_tile(low: int, shape: Shape, cut: Cut, limits: DeviceLimits) -> FibreTile:
    """Return the tiling of a cut for the modes from ``low`` on."""
    layout = layout_of(shape, cut, limits)
    modes = range(len(shape.inputs))

    def axes_of(sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return (
            (cut.columns, layout.strides[-1]),
            *((sizes[m], layout.strides[m + 1]) for m in reversed(modes)),
            (cut.slices, layout.strides[0]),
        )

    return FibreTile(
        tuple(low + mode for mode, _ in shape.steps()),
        cut.slices,
        cut.columns,
        axes_of(shape.inputs),
        axes_of(shape.outputs),
        shape.word(cut.columns),
        layout.buffer,
        cut.warps * WARP,
        cut.teams,
        cut.stages,
        layout.shared_bytes,
        layout.passes,
        *_direct(shape, cut),
    )


def _direct(shape: Shape, cut: Cut) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return `FibreTile.step` and `FibreTile.rows`."""
    *_, (mode, _) = shape.steps()
    sizes = shape.outputs
    strides = [math.prod(sizes[m + 1 :]) for m in range(len(sizes))]
    rows = [(sizes[m], strides[m]) for m in reversed(range(len(sizes))) if m != mode]
    rows.append((cut.slices, math.prod(sizes)))
    direct = writes_to_array(shape, cut.columns, cut.fragments[-1].along)
    return strides[mode] if direct else 0, tuple(rows)


def _axes_type(axes: Sequence[tuple[int, int]]) -> str:
    return template_type(
        "TileAxes", *(template_type("TileAxis", size, stride) for size, stride in axes)
    )


def _fibre_pass(one: FibrePass) -> str:
    if one.products:
        shape = one.C, one.K, one.stride, one.rows, one.across, flag(one.along)
        return template_type("Tf32Pass", *shape, one.split, one.products, _axes_type(one.fibres))
    sizes = one.C, one.K, one.stride, one.rows, one.columns, one.across
    return template_type("FibrePass", *sizes, flag(one.along), one.split, _axes_type(one.fibres))


def fibre_program(dtype: np.dtype[np.generic], tile: FibreTile) -> Program:
    """Return the kernel that multiplies fibres in shared memory."""
    shape = (tile.slices, tile.columns, tile.input_size, tile.output_size, tile.word)
    room = (tile.buffer, tile.threads, tile.teams, tile.stages)
    axes = _axes_type(tile.inputs), _axes_type(tile.outputs)
    parts = (tile.parts,) if tile.parts else ()
    direct = template_type("DirectTarget", tile.step, _axes_type(tile.rows), *parts)
    return Program(
        "cuda/kron/fibres/kernel.cuh",
        template_type(
            "kron_fibres",
            SCALARS[dtype],
            template_type("FibreTile", *shape, *room, *axes, direct),
            *map(_fibre_pass, tile.passes),
        ),
    )
