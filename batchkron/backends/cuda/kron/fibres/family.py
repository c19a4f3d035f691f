"""The family of kernels for larger factors: fibres of tiles in shared memory, multiplied in place.

Single precision uses ordinary cores, or matrix units if the user asked for TF32; double precision
uses matrix units. The tiling has the best rank (``cuts``), corrected by its bank conflicts
(``layout``). Pure arithmetic on sizes, no device needed; the kernel's contract is in
``csrc/cuda/kron/fibres/kernel.cuh``.
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

_SMALLEST = 8  # rows or columns that the largest factor must have; smaller ones fit in registers
_MAX_MODES = 6  # largest number of modes of a run
# Relative increase of the time if every access to shared memory has a two-way bank conflict.
_BANK_CONFLICT_COST = 0.18


@dataclass(frozen=True, slots=True)
class FibreVariant:
    """The numbers that tuning may change.

    Slices and columns of a tile, teams (thread groups) of a thread block, warps of a team, tiles of
    a team in shared memory, and ``units``: 1 if matrix units multiply single precision in TF32.
    """

    slices: int
    columns: int
    teams: int
    warps: int
    stages: int
    units: int = 0


class Fibres(KronFamily):
    """Kernels for up to six modes with real factors."""

    name = "fibres"
    variant_type = FibreVariant

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether the factors are real and large enough, and not too many."""
        fits = run.dtype.kind == "f" and len(run.inputs) <= _MAX_MODES
        return fits and max(*run.inputs, *run.outputs) >= _SMALLEST

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[FibreVariant]:
        """Return all variants that fit in shared memory, those of the best rank first."""
        ranked = [cut for shape in _shapes(run) for cut in _ranked(shape, device)]
        ordered = sorted(ranked, key=lambda cut: cut.rank)
        return list(dict.fromkeys(map(_variant_of, ordered)))

    def choose(self, run: ModeRun, device: DeviceLimits) -> tuple[float, FibreVariant] | None:
        """Return the variant with the best rank, bank conflicts included, and its estimated time.

        Ranks of matrix units and of ordinary cores cannot be compared, since they were not fitted
        together: of the best of each the one with the smaller estimated time is taken.
        """
        if not self.accepts(run, device):
            return None
        ways = [(s, cut) for s in _shapes(run) if (cut := _first(s, device)) is not None]
        timed = [(fibre_seconds(*way, device), _variant_of(way[1])) for way in ways]
        return min(timed, key=lambda one: one[0], default=None)

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
        """Yield the variants whose rank is at most ``longer`` times that of ``centre``.

        Of those on other units, whose ranks cannot be compared: of the best of them.
        """
        found: dict[FibreVariant, None] = {}
        for shape in _shapes(run):
            ranked = _ranked(shape, device)
            own = [cut.rank for cut in ranked if _variant_of(cut) == centre]
            bound = longer * min(own or [cut.rank for cut in ranked], default=0.0)
            found |= dict.fromkeys(_variant_of(cut) for cut in ranked if cut.rank <= bound)
        yield from found

    def _kernel(
        self, run: ModeRun, shape: Shape, cut: Cut, seconds: float, device: DeviceLimits
    ) -> KronKernel:
        tile = fibre_tile(run.first, shape, cut, device)
        return KronKernel(self, run, _variant_of(cut), tile, seconds)

    def program(self, kernel: KronKernel) -> Program:
        """Return the program to compile."""
        return fibre_program(kernel.run.dtype, kernel.tile)

    def launch(self, kernel: KronKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: one thread block for each multiprocessor."""
        run = kernel.run
        tile: FibreTile = kernel.tile
        tiles = -(-run.L // tile.slices) * -(-run.R // tile.columns)
        blocks = min(tiles, device.multiprocessors)
        return LaunchShape(blocks, tile.threads * tile.teams, 1, tile.shared_bytes)


def _variant_of(cut: Cut) -> FibreVariant:
    """Return the variant of a cut, which identifies it among all cuts of its run."""
    units = int(any(fragment.products for fragment in cut.fragments))
    return FibreVariant(cut.slices, cut.columns, cut.teams, cut.warps, cut.stages, units)


def _shapes(run: ModeRun) -> list[Shape]:
    """Return the shapes of a run: with TF32 if the user asked for it, and on ordinary cores."""
    sizes = run.inputs, run.outputs, run.L, run.R, run.itemsize
    return [Shape(*sizes, products) for products in dict.fromkeys((run.products, 0))]


def _way(run: ModeRun, variant: FibreVariant, device: DeviceLimits) -> tuple[Shape, Cut] | None:
    """Return the shape and the cut of a variant, None if it does not fit."""
    one = variant
    for shape in _shapes(run):
        cut = cut_with(shape, one.slices, one.columns, one.teams, one.warps, one.stages, device)
        if cut is not None and _variant_of(cut) == variant:
            return shape, cut
    return None


@lru_cache(maxsize=64)  # tuning requests many variants of few runs
def _ranked(shape: Shape, device: DeviceLimits) -> tuple[Cut, ...]:
    """Return all cuts of a run, those of the best rank first."""
    return tuple(sorted(cuts_of(shape, device), key=lambda cut: cut.rank))


@lru_cache(maxsize=4096)
def _first(shape: Shape, device: DeviceLimits) -> Cut | None:
    """Return the cut with the best rank, bank conflicts included; None if no tile fits."""
    best: tuple[float, Cut] | None = None
    for cut in _ranked(shape, device):
        if best is not None and cut.rank >= best[0]:
            break
        slower = 1 + _BANK_CONFLICT_COST * (layout_of(shape, cut, device).conflicts - 1)
        if best is None or cut.rank * slower < best[0]:
            best = cut.rank * slower, cut
    return None if best is None else best[1]
