"""Kernels of larger factors: tiles in shared memory, whose fibres are multiplied in place.

A run of neighbouring modes is one kernel, ``csrc/cuda/kron/fibres/kernel.cuh``: single precision on
ordinary cores, or on matrix units where asked for, double precision on matrix units. Tiles, thread
groups and fibres of a warp are those of the least estimated time (``cost``), with few bank
conflicts (``layout``). Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron.fibres.cost import fibre_seconds
from batchkron.backends.cuda.kron.fibres.cuts import Cut, Shape, cut_with, cuts_of
from batchkron.backends.cuda.kron.fibres.layout import (
    FibreTile,
    fibre_program,
    fibre_tile,
    layout_of,
)
from batchkron.backends.cuda.kron.kernel import KronFamily, KronKernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import ModeRun

_SMALLEST = 8  # rows or columns that the largest factor has at least: smaller ones fit in registers
_MAX_MODES = 6  # of a kernel
# Relative increase of the time where every access to shared memory has a two-way bank conflict.
_BANK_CONFLICT_COST = 0.18


@dataclass(frozen=True, slots=True)
class FibreVariant:
    """Slices and columns of a tile, thread groups, their warps, tiles of a group at a time.

    ``units``: 1 if single precision is multiplied on matrix units, where that was asked for.
    """

    slices: int
    columns: int
    teams: int
    warps: int
    stages: int
    units: int = 0


class Fibres(KronFamily):
    """Kernels of real factors, of any number of modes up to six."""

    name = "fibres"
    variant_type = FibreVariant

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether the factors are real, and large enough."""
        fits = run.dtype.kind == "f" and len(run.inputs) <= _MAX_MODES
        return fits and max(*run.inputs, *run.outputs) >= _SMALLEST

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[FibreVariant]:
        """Return all that fit in shared memory, in the order of their weights."""
        ranked = [cut for shape in _shapes(run) for cut in _ranked(shape, device)]
        ordered = sorted(ranked, key=lambda cut: cut.rank)
        return list(dict.fromkeys(map(_variant_of, ordered)))

    def fastest(self, run: ModeRun, device: DeviceLimits) -> KronKernel | None:
        """Return the kernel of the first variant by weight, bank conflicts counted.

        Of the first on matrix units and the first on ordinary cores: the one of the least estimate.
        Weights of matrix units count instructions, and were not fitted together with the others.
        """
        if not self.accepts(run, device):
            return None
        ways = [(s, cut) for s in _shapes(run) if (cut := _first(s, device)) is not None]
        timed = [(fibre_seconds(*way, device), *way) for way in ways]
        if not timed:
            return None
        seconds, shape, cut = min(timed, key=lambda one: one[0])
        return self._kernel(run, shape, cut, seconds, device)

    def estimate(self, run: ModeRun, variant: FibreVariant, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""
        way = _way(run, variant, device)
        return math.inf if way is None else fibre_seconds(*way, device)

    def kernel(
        self, run: ModeRun, variant: FibreVariant, device: DeviceLimits
    ) -> KronKernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        way = _way(run, variant, device) if self.accepts(run, device) else None
        return None if way is None else self._kernel(run, *way, fibre_seconds(*way, device), device)

    def near(
        self, run: ModeRun, centre: FibreVariant, changes: int, longer: float, device: DeviceLimits
    ) -> Iterator[FibreVariant]:
        """Yield variants of at most ``longer`` times the rank of ``centre``."""
        ranked = [cut for shape in _shapes(run) for cut in _ranked(shape, device)]
        own = [cut.rank for cut in ranked if _variant_of(cut) == centre]
        bound = longer * min(own or [cut.rank for cut in ranked], default=0.0)
        yield from (_variant_of(cut) for cut in ranked if cut.rank <= bound)

    def _kernel(
        self, run: ModeRun, shape: Shape, cut: Cut, seconds: float, device: DeviceLimits
    ) -> KronKernel:
        tile = fibre_tile(run.first, shape, cut, device)
        return KronKernel(self, run, _variant_of(cut), tile, seconds)

    def program(self, kernel: KronKernel) -> Program:
        """Return the template instance to compile."""
        return fibre_program(kernel.run.dtype, kernel.tile)

    def launch(self, kernel: KronKernel, device: DeviceLimits) -> LaunchShape:
        """Return how it is launched: one thread block to a multiprocessor."""
        run = kernel.run
        tile: FibreTile = kernel.tile
        tiles = -(-run.L // tile.slices) * -(-run.R // tile.columns)
        blocks = min(tiles, device.multiprocessors)
        return LaunchShape(blocks, tile.threads * tile.teams, 1, tile.shared_bytes)


def _variant_of(cut: Cut) -> FibreVariant:
    """Return what tells a cut from all others of its run."""
    units = int(any(fragment.products for fragment in cut.fragments))
    return FibreVariant(cut.slices, cut.columns, cut.teams, cut.warps, cut.stages, units)


def _shapes(run: ModeRun) -> list[Shape]:
    """Return a run as it is asked for, and on ordinary cores, which that allows as well."""
    sizes = run.inputs, run.outputs, run.L, run.R, run.itemsize
    return [Shape(*sizes, products) for products in dict.fromkeys((run.products, 0))]


def _way(run: ModeRun, variant: FibreVariant, device: DeviceLimits) -> tuple[Shape, Cut] | None:
    """Return the sizes and the cut of a variant, None if it does not fit."""
    one = variant
    for shape in _shapes(run):
        cut = cut_with(shape, one.slices, one.columns, one.teams, one.warps, one.stages, device)
        if cut is not None and _variant_of(cut) == variant:
            return shape, cut
    return None


@lru_cache(maxsize=64)  # a search asks for many variants of few runs
def _ranked(shape: Shape, device: DeviceLimits) -> tuple[Cut, ...]:
    """Return all ways to work on a run, from the fastest on."""
    return tuple(sorted(cuts_of(shape, device), key=lambda cut: cut.rank))


@lru_cache(maxsize=4096)
def _first(shape: Shape, device: DeviceLimits) -> Cut | None:
    """Return the fastest way by its rank, bank conflicts counted, None if no tile fits."""
    best: tuple[float, Cut] | None = None
    for cut in _ranked(shape, device):
        if best is not None and cut.rank >= best[0]:
            break
        slower = 1 + _BANK_CONFLICT_COST * (layout_of(shape, cut, device).conflicts - 1)
        if best is None or cut.rank * slower < best[0]:
            best = cut.rank * slower, cut
    return None if best is None else best[1]
