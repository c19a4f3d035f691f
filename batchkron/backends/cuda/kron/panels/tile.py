"""Tilings for one factor that may be larger than shared memory.

As in a matrix product, panels of the factor and of the fibres pass through shared memory:
``csrc/cuda/kron/panels.cuh``. Double precision uses matrix units, single precision and complex
numbers use ordinary cores. Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from batchkron.backends.cuda.runtime.hardware import DeviceLimits, resident_blocks
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.backends.cuda.steps import ModeRun


@dataclass(frozen=True, slots=True)
class PanelCut:
    """How the work of a thread block is divided.

    Attributes
    ----------
    fibres, results : int
        A tile is this many fibres by this many results (rows of the factor).
    depth : int
        Entries of each fibre and row in one panel.
    rows, columns : int
        Fibres and results of a thread; in double precision, those of a warp.
    threads : int
        Threads of a thread block.
    stages : int
        Panels in shared memory at the same time.
    blocks : int
        Thread blocks of a multiprocessor.
    """

    fibres: int
    results: int
    depth: int
    rows: int
    columns: int
    threads: int
    stages: int
    blocks: int


_COMPLEX64 = (PanelCut(32, 32, 8, 4, 4, 64, 3, 4),)
_COMPLEX128 = (PanelCut(32, 32, 8, 4, 4, 64, 3, 4),)
# By dtype, and whether the entries of a fibre are contiguous in memory.
_CUTS = {
    (np.dtype(np.float32), True): (
        PanelCut(64, 64, 16, 4, 8, 128, 3, 4),
        PanelCut(32, 32, 32, 2, 4, 128, 3, 4),
        PanelCut(128, 72, 16, 8, 9, 128, 3, 2),
        PanelCut(32, 16, 32, 2, 2, 128, 3, 4),
    ),
    (np.dtype(np.float32), False): (
        PanelCut(64, 64, 16, 4, 8, 128, 3, 4),
        PanelCut(32, 32, 32, 4, 2, 128, 3, 4),
        PanelCut(128, 72, 16, 4, 9, 256, 3, 2),
        PanelCut(32, 16, 32, 4, 1, 128, 3, 4),
    ),
    (np.dtype(np.float64), True): (
        PanelCut(64, 64, 16, 32, 32, 128, 3, 3),
        PanelCut(32, 32, 32, 16, 16, 128, 3, 4),
        PanelCut(128, 72, 16, 64, 24, 192, 3, 2),
        PanelCut(32, 16, 32, 16, 8, 128, 3, 4),
    ),
    (np.dtype(np.float64), False): (
        PanelCut(64, 64, 16, 32, 32, 128, 3, 3),
        PanelCut(32, 32, 32, 16, 16, 128, 3, 4),
        PanelCut(64, 80, 16, 80, 16, 128, 3, 3),
        PanelCut(32, 16, 32, 16, 8, 128, 3, 4),
    ),
    (np.dtype(np.complex64), True): _COMPLEX64,
    (np.dtype(np.complex64), False): _COMPLEX64,
    (np.dtype(np.complex128), True): _COMPLEX128,
    (np.dtype(np.complex128), False): _COMPLEX128,
}


@dataclass(frozen=True, slots=True)
class PanelVariant:
    """The index of a cut in `cuts_of`."""

    cut: int


@dataclass(frozen=True, slots=True)
class PanelTile:
    """A factor K x C, its mode and its tiling.

    ``along``: the entries of a fibre are contiguous in memory.
    """

    modes: tuple[int]
    C: int
    K: int
    along: bool
    cut: PanelCut
    dtype: np.dtype[np.generic]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        cut, itemsize = self.cut, self.dtype.itemsize
        pad = 4 if self.dtype == np.float64 else 16 // itemsize
        fibres = cut.fibres * (cut.depth + pad) if self.along else cut.depth * (cut.fibres + pad)
        return cut.stages * (fibres + cut.results * (cut.depth + pad)) * itemsize


def cuts_of(run: ModeRun) -> tuple[PanelCut, ...]:
    """Return the tilings for a run of one mode."""
    return _CUTS[run.dtype, run.R == 1]


def panel_tile(run: ModeRun, variant: PanelVariant, device: DeviceLimits) -> PanelTile | None:
    """Return the tile of a variant, None if it does not fit in shared memory."""
    cuts = cuts_of(run)
    if not 0 <= variant.cut < len(cuts):
        return None
    cut, ((C,), (K,)) = cuts[variant.cut], (run.inputs, run.outputs)
    tile = PanelTile((run.first,), C, K, run.R == 1, cut, run.dtype)
    fitting = resident_blocks(tile.shared_bytes, device)
    if fitting < 1:
        return None
    return replace(tile, cut=replace(cut, blocks=min(cut.blocks, fitting)))


def tiles_of(run: ModeRun, cut: PanelCut) -> int:
    """Return the number of tiles."""
    (K,) = run.outputs
    return -(-run.L * run.R // cut.fibres) * -(-K // cut.results)


def panel_program(tile: PanelTile) -> Program:
    """Return the kernel for one factor in panels."""
    cut = tile.cut
    sizes = tile.C, tile.K, flag(tile.along), cut.fibres, cut.results, cut.depth
    share = cut.rows, cut.columns, cut.threads, cut.stages, cut.blocks
    return Program(
        "cuda/kron/panels.cuh",
        template_type(
            "kron_panels", SCALARS[tile.dtype], template_type("PanelCut", *sizes, *share)
        ),
    )
