"""The family of kernels whose tiles pass through shared memory slice by slice."""

from __future__ import annotations

import math

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron.kernel import KronFamily, KronKernel
from batchkron.backends.cuda.kron.slices.cost import slice_seconds
from batchkron.backends.cuda.kron.slices.tile import (
    SliceTile,
    SliceVariant,
    kron_slices_program,
    tiles_of,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import ModeRun


class Slices(KronFamily):
    """Kernels of real factors whose tiles pass through shared memory slice by slice."""

    name = "slices"
    variant_type = SliceVariant

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether there is a kernel for the sizes."""
        return next(tiles_of(run, device), None) is not None

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[SliceVariant]:
        """Return the variants that fit in shared memory, the default one first."""
        return [_variant_of(tile) for tile in tiles_of(run, device)]

    def estimate(self, run: ModeRun, variant: SliceVariant, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""
        for tile in tiles_of(run, device):
            if _variant_of(tile) == variant:
                return slice_seconds(run, tile, device)
        return math.inf

    def choose(self, run: ModeRun, device: DeviceLimits) -> tuple[float, SliceVariant] | None:
        """Return the default variant: the variants' estimates do not differ."""
        usual = next(tiles_of(run, device), None)
        return None if usual is None else (slice_seconds(run, usual, device), _variant_of(usual))

    def kernel(
        self, run: ModeRun, variant: SliceVariant, device: DeviceLimits
    ) -> KronKernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        for tile in tiles_of(run, device):
            if _variant_of(tile) == variant:
                return self._kernel(run, tile, device)
        return None

    def _kernel(self, run: ModeRun, tile: SliceTile, device: DeviceLimits) -> KronKernel:
        seconds = slice_seconds(run, tile, device)
        return KronKernel(self, run, _variant_of(tile), tile, seconds)

    def program(self, kernel: KronKernel) -> Program:
        """Return the program to compile."""
        return kron_slices_program(kernel.run.dtype, kernel.tile)

    def launch(self, kernel: KronKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        run, tile = kernel.run, kernel.tile
        tiles = run.L * run.R // tile.columns
        blocks = min(tiles, tile.blocks * device.multiprocessors)
        return LaunchShape(blocks, tile.threads, tile.blocks, tile.shared_bytes)


def _variant_of(tile: SliceTile) -> SliceVariant:
    return SliceVariant(tile.slots, tile.held)
