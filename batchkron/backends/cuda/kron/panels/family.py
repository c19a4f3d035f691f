"""The family of kernels for one factor of any size, which is read in panels, as the fibres are."""

from __future__ import annotations

import math

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron.kernel import KronFamily, KronKernel
from batchkron.backends.cuda.kron.panels.cost import panel_seconds
from batchkron.backends.cuda.kron.panels.tile import (
    PanelTile,
    PanelVariant,
    cuts_of,
    panel_program,
    panel_tile,
    tiles_of,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import ModeRun


class Panels(KronFamily):
    """Kernels for one factor: panels of it and of the fibres pass through shared memory."""

    name = "panels"
    variant_type = PanelVariant

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether the run is one mode."""
        return len(run.inputs) == 1

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[PanelVariant]:
        """Return the cuts that fit in shared memory."""
        cuts = map(PanelVariant, range(len(cuts_of(run))))
        return [one for one in cuts if panel_tile(run, one, device) is not None]

    def estimate(self, run: ModeRun, variant: PanelVariant, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""
        tile = panel_tile(run, variant, device)
        return math.inf if tile is None else panel_seconds(run, tile, device)

    def kernel(
        self, run: ModeRun, variant: PanelVariant, device: DeviceLimits
    ) -> KronKernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        tile = panel_tile(run, variant, device) if self.accepts(run, device) else None
        if tile is None:
            return None
        return KronKernel(self, run, variant, tile, panel_seconds(run, tile, device))

    def program(self, kernel: KronKernel) -> Program:
        """Return the program to compile."""
        return panel_program(kernel.tile)

    def launch(self, kernel: KronKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        tile: PanelTile = kernel.tile
        tiles = tiles_of(kernel.run, tile.cut)
        blocks = min(tiles, tile.cut.blocks * device.multiprocessors)
        return LaunchShape(blocks, tile.cut.threads, tile.cut.blocks, tile.shared_bytes)
