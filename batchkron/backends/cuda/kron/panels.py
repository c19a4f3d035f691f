"""How one factor that is too large for shared memory is cut: panels of it and of the fibres.

Its kernel is ``csrc/cuda/kron/panels.cuh``: single precision and complex numbers on ordinary cores,
double precision on matrix units. Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from batchkron.backends.cuda.runtime.hardware import DeviceLimits, resident_blocks
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.backends.cuda.steps import GroupShape

_MIN_FACTOR_SIZE = 16  # rows or columns of a factor; fewer would leave most of a tile empty
_MAX_REAL_FIBRE = 128  # rows or columns of a real factor up to which fibres may be faster
_MAX_COMPLEX_FIBRE = 32  # the same of a complex factor
_LAUNCH = 4000  # cycles of a launch, and its first loads


@dataclass(frozen=True, slots=True)
class PanelCut:
    """What a thread block works on, see ``PanelCut`` of the kernel.

    ``rate``: multiply-adds a cycle of a multiprocessor, measured on an H200 with many tiles.
    """

    fibres: int
    results: int
    depth: int
    rows: int
    columns: int
    threads: int
    stages: int
    blocks: int
    rate: float


_COMPLEX64 = (PanelCut(32, 32, 8, 4, 4, 64, 3, 4, 12),)
_COMPLEX128 = (PanelCut(32, 32, 8, 4, 4, 64, 3, 4, 6),)
_CUTS = {  # of a dtype, and of fibres whose entries lie together or do not
    (np.dtype(np.float32), True): (
        PanelCut(64, 64, 16, 4, 8, 128, 3, 4, 63),
        PanelCut(32, 32, 32, 2, 4, 128, 3, 4, 50),
        PanelCut(128, 72, 16, 8, 9, 128, 3, 2, 67),
        PanelCut(32, 16, 32, 2, 2, 128, 3, 4, 41),
    ),
    (np.dtype(np.float32), False): (
        PanelCut(64, 64, 16, 4, 8, 128, 3, 4, 63),
        PanelCut(32, 32, 32, 4, 2, 128, 3, 4, 50),
        PanelCut(128, 72, 16, 4, 9, 256, 3, 2, 64),
        PanelCut(32, 16, 32, 4, 1, 128, 3, 4, 41),
    ),
    (np.dtype(np.float64), True): (
        PanelCut(64, 64, 16, 32, 32, 128, 3, 3, 62),
        PanelCut(32, 32, 32, 16, 16, 128, 3, 4, 50),
        PanelCut(128, 72, 16, 64, 24, 192, 3, 2, 59),
        PanelCut(32, 16, 32, 16, 8, 128, 3, 4, 41),
    ),
    (np.dtype(np.float64), False): (
        PanelCut(64, 64, 16, 32, 32, 128, 3, 3, 62),
        PanelCut(32, 32, 32, 16, 16, 128, 3, 4, 50),
        PanelCut(64, 80, 16, 80, 16, 128, 3, 3, 66),
        PanelCut(32, 16, 32, 16, 8, 128, 3, 4, 41),
    ),
    (np.dtype(np.complex64), True): _COMPLEX64,
    (np.dtype(np.complex64), False): _COMPLEX64,
    (np.dtype(np.complex128), True): _COMPLEX128,
    (np.dtype(np.complex128), False): _COMPLEX128,
}


@dataclass(frozen=True, slots=True)
class PanelKnobs:
    """What may be chosen: the number of a cut, from 0 on."""

    cut: int


@dataclass(frozen=True, slots=True)
class PanelTile:
    """A factor K x C, its mode, and the way it is cut.

    ``along``: entries of a fibre lie together in memory.
    """

    modes: tuple[int]
    C: int
    K: int
    along: bool
    cut: PanelCut
    dtype: np.dtype[np.generic]

    @property
    def input_size(self) -> int:
        """Entries of a fibre."""
        return self.C

    @property
    def output_size(self) -> int:
        """Results of a fibre."""
        return self.K

    @property
    def threads(self) -> int:
        """Threads of a thread block."""
        return self.cut.threads

    @property
    def blocks(self) -> int:
        """Thread blocks of a multiprocessor."""
        return self.cut.blocks

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a thread block."""
        cut, itemsize = self.cut, self.dtype.itemsize
        pad = 4 if self.dtype == np.float64 else 16 // itemsize
        fibres = cut.fibres * (cut.depth + pad) if self.along else cut.depth * (cut.fibres + pad)
        return cut.stages * (fibres + cut.results * (cut.depth + pad)) * itemsize


@dataclass(frozen=True, slots=True)
class PanelGroup:
    """One mode that a kernel applies to x (L, C, R)."""

    tile: PanelTile
    L: int
    R: int
    cycles: float = field(compare=False)  # estimated, of a multiprocessor

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return self.L * self.tile.output_size * self.R

    @property
    def knobs(self) -> PanelKnobs:
        """What was chosen."""
        tile = self.tile
        cuts = _CUTS[tile.dtype, tile.along]
        sizes = [(cut.fibres, cut.results) for cut in cuts]
        return PanelKnobs(sizes.index((tile.cut.fibres, tile.cut.results)))

    def tiles(self) -> int:
        """Return the number of tiles."""
        return _tiles(self.L * self.R, self.tile.K, self.tile.cut)


def is_large(C: int, K: int, dtype: np.dtype[np.generic]) -> bool:
    """Whether panels are the way to work on a factor K x C."""
    maximum = _MAX_REAL_FIBRE if dtype.kind == "f" else _MAX_COMPLEX_FIBRE
    return max(C, K) > maximum and min(C, K) >= _MIN_FACTOR_SIZE


def panel_group(
    part: GroupShape, limits: DeviceLimits, knobs: PanelKnobs | None = None
) -> PanelGroup | None:
    """Return the kernel of a group with these knobs, or the rule's; None if there is none.

    The rule takes the cut of the least estimated time.
    """
    if len(part.inputs) != 1:
        return None
    (C,), (K,) = part.inputs, part.outputs

    def group(cut: PanelCut) -> PanelGroup | None:
        rounds = -(-_tiles(part.L * part.R, K, cut) // limits.multiprocessors)
        entries = -(-C // cut.depth) * cut.depth
        cycles = _LAUNCH + rounds * cut.fibres * cut.results * entries / cut.rate
        tile = PanelTile((part.first,), C, K, part.R == 1, cut, part.dtype)
        fitting = resident_blocks(tile.shared_bytes, limits)
        if fitting < 1:
            return None
        tile = replace(tile, cut=replace(cut, blocks=min(cut.blocks, fitting)))
        return PanelGroup(tile, part.L, part.R, cycles)

    cuts = _CUTS[part.dtype, part.R == 1]
    if knobs is None:
        found = [one for one in map(group, cuts) if one is not None]
        return min(found, key=lambda one: one.cycles, default=None)
    return group(cuts[knobs.cut]) if 0 <= knobs.cut < len(cuts) else None


def panel_knobs(part: GroupShape) -> list[PanelKnobs]:
    """Return all ways to work on a group."""
    if len(part.inputs) != 1:
        return []
    return [PanelKnobs(cut) for cut in range(len(_CUTS[part.dtype, part.R == 1]))]


def _tiles(fibres: int, K: int, cut: PanelCut) -> int:
    return -(-fibres // cut.fibres) * -(-K // cut.results)


def panel_program(tile: PanelTile) -> Program:
    """Return the kernel of one large factor."""
    cut = tile.cut
    sizes = tile.C, tile.K, flag(tile.along), cut.fibres, cut.results, cut.depth
    share = cut.rows, cut.columns, cut.threads, cut.stages, cut.blocks
    return Program(
        "cuda/kron/panels.cuh",
        template_type(
            "kron_panels", SCALARS[tile.dtype], template_type("PanelCut", *sizes, *share)
        ),
    )
