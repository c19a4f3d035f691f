"""The family of kernels for Kron-Matmuls with factors of any size and dtype."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.general_kernel import (
    Tiling,
    group_arguments,
    group_program,
    run_steps,
    run_tiling,
)
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron.general.cost import general_seconds
from batchkron.backends.cuda.kron.kernel import KronFamily, KronKernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import MAX_FIXED_MODES, ModeRun
from batchkron.spec.kron import Array


@dataclass(frozen=True, slots=True)
class GeneralVariant:
    """The only variant: the sizes decide everything."""


@dataclass(frozen=True, slots=True)
class GeneralTile:
    """The modes in the order of the kernel's steps, and their tiling."""

    modes: tuple[int, ...]
    tiling: Tiling


class General(KronFamily):
    """Kernels of up to twelve modes of any size."""

    name = "general"
    variant_type = GeneralVariant

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether there are few enough modes."""
        return len(run.inputs) <= MAX_FIXED_MODES

    def variants(self, run: ModeRun, device: DeviceLimits) -> tuple[GeneralVariant, ...]:
        """Return the only variant."""
        return (GeneralVariant(),)

    def estimate(self, run: ModeRun, variant: GeneralVariant, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch."""
        return general_seconds(run, _tile(run, device).tiling, device)

    def kernel(
        self, run: ModeRun, variant: GeneralVariant, device: DeviceLimits
    ) -> KronKernel | None:
        """Return the kernel, None if there are too many modes."""
        if not self.accepts(run, device):
            return None
        tile = _tile(run, device)
        return KronKernel(self, run, variant, tile, general_seconds(run, tile.tiling, device))

    def program(self, kernel: KronKernel) -> Program:
        """Return the program to compile."""
        return group_program(kernel.run.dtype, kernel.tile.tiling)

    def launch(self, kernel: KronKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        tiling: Tiling = kernel.tile.tiling
        tiles = -(-kernel.run.L * kernel.run.R // tiling.columns)
        blocks = min(tiles, tiling.max_blocks(device))
        workspace = blocks * tiling.workspace_bytes
        return LaunchShape(blocks, tiling.block, 1, tiling.shared_bytes, workspace)

    def arguments(self, kernel: KronKernel) -> Array:
        """Return the kernel's arguments, without addresses and scalars."""
        run = kernel.run
        tiling: Tiling = kernel.tile.tiling
        arguments = np.zeros(1, group_arguments(run.dtype, len(tiling.steps)))
        arguments["columns"], arguments["R"] = run.L * run.R, run.R
        arguments["staged"], arguments["buffer"] = tiling.staged_elements, tiling.buffer_elements
        arguments["input_size"] = tiling.input_size
        arguments["output_size"] = tiling.output_size
        return arguments


def _tile(run: ModeRun, device: DeviceLimits) -> GeneralTile:
    steps = run_steps(run)
    tiling = run_tiling(steps, run.L * run.R, run.R, run.itemsize, device)
    return GeneralTile(tuple(step.mode for step in steps), tiling)
