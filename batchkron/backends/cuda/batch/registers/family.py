"""The family of kernels that hold a block in the registers of a team of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from itertools import product

from batchkron.backends.cuda.batch.kernel import (
    BatchFamily,
    BatchKernel,
    BatchShape,
    can_have_records,
    launch_of_tile,
)
from batchkron.backends.cuda.batch.registers.cost import best_cutting, thread_element_counts
from batchkron.backends.cuda.batch.registers.tile import (
    RegisterTiling,
    output_team_counts,
    register_batch_program,
    register_tiling,
)
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program

_BLOCKS = (32, 64, 128, 256)  # threads of a thread block that tuning tries; chosen by hand
_STAGES = (2, 3, 4)  # products copied ahead that tuning tries; chosen by hand


@dataclass(frozen=True, slots=True)
class RegisterVariant:
    """The numbers that tuning may change.

    Attributes
    ----------
    held : int
        Elements of a block that a thread may hold, 0 for the number of least estimated time.
    block, stages, teams_per_output : int
        Threads of a thread block, products that a team copies ahead, teams that share an output.
    cached : int
        1 if the first-level cache should get the memory that shared memory does not need, else 0.
    """

    held: int
    block: int
    stages: int
    teams_per_output: int
    cached: int


class Registers(BatchFamily):
    """Kernels that hold a block in the registers of a team of threads.

    The estimate has no unit. It compares only the numbers of elements that a thread may hold; the
    other numbers follow from the sizes (see `tile`) or from tuning. It cannot be compared with
    estimates of other families: their order is that of the table.
    """

    name = "registers"
    variant_type = RegisterVariant
    is_tuned = True

    def accepts(self, shape: BatchShape, device: DeviceLimits) -> bool:
        """Whether the registers of a team hold a block."""
        return can_have_records(shape) and _tiling(shape, 0, device) is not None

    def variants(self, shape: BatchShape, device: DeviceLimits) -> Iterator[RegisterVariant]:
        """Yield a variant for each number of elements that a thread may hold."""
        for held in thread_element_counts(shape.dtype.itemsize):
            tiling = _tiling(shape, held, device)
            if tiling is not None:
                yield _variant_of(held, tiling)

    def estimate(self, shape: BatchShape, variant: RegisterVariant, device: DeviceLimits) -> float:
        """Return the estimated time of a product, without a unit; infinite if it does not fit."""
        itemsize = shape.dtype.itemsize
        held = (variant.held,) if variant.held else thread_element_counts(itemsize)
        cutting = best_cutting(shape.steps, held, itemsize)
        return math.inf if cutting is None else cutting.cost()

    def fastest(self, shape: BatchShape, device: DeviceLimits) -> BatchKernel | None:
        """Return the kernel with the best ``held`` by estimate, None if it does not fit."""
        tiling = _tiling(shape, 0, device) if can_have_records(shape) else None
        return None if tiling is None else self._kernel(shape, _variant_of(0, tiling), tiling)

    def kernel(
        self, shape: BatchShape, variant: RegisterVariant, device: DeviceLimits
    ) -> BatchKernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        tiling = _chosen_tiling(shape, variant, device) if can_have_records(shape) else None
        return None if tiling is None else self._kernel(shape, variant, tiling)

    def near(
        self, shape: BatchShape, centre: RegisterVariant, changes: int, device: DeviceLimits
    ) -> Iterator[RegisterVariant]:
        """Yield variants that differ from one in up to ``changes`` numbers, the nearest first."""
        now = astuple(centre)[1:]
        blocks = sorted({centre.block, *_BLOCKS})
        team_counts = [1 << bit for bit in range(max(blocks).bit_length())]
        teams = sorted({centre.teams_per_output, *team_counts})
        found = []
        for values in product(blocks, _STAGES, teams, (0, 1)):
            changed = sum(value != old for value, old in zip(values, now, strict=True))
            if 0 < changed <= changes:
                pairs = zip(values[:3], now[:3], strict=True)
                found.append((changed, sum(abs(math.log2(a / b)) for a, b in pairs), values))
        for _, _, values in sorted(found):
            variant = RegisterVariant(centre.held, *values)
            if _chosen_tiling(shape, variant, device) is not None:
                yield variant

    def _kernel(
        self, shape: BatchShape, variant: RegisterVariant, tiling: RegisterTiling
    ) -> BatchKernel:
        return BatchKernel(self, shape, variant, tiling)

    def program(self, kernel: BatchKernel) -> Program:
        """Return the program to compile."""
        return register_batch_program(kernel.shape.dtype, kernel.tile)

    def launch(self, kernel: BatchKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch for one vector of each system."""
        return launch_of_tile(kernel, kernel.tile.min_blocks, kernel.tile.cluster)


def _tiling(shape: BatchShape, held: int, device: DeviceLimits) -> RegisterTiling | None:
    """Return the tiling where a thread holds up to ``held`` elements, 0 for the best number."""
    return register_tiling(
        shape.steps,
        shape.dtype.itemsize,
        shape.all_outputs,
        shape.all_products,
        shape.short_ids,
        shape.identities,
        device,
        held or None,
    )


def _variant_of(held: int, tiling: RegisterTiling) -> RegisterVariant:
    return RegisterVariant(
        held, tiling.block, tiling.stages, tiling.teams_per_output, int(tiling.cached)
    )


def _chosen_tiling(
    shape: BatchShape, variant: RegisterVariant, device: DeviceLimits
) -> RegisterTiling | None:
    """Return the tiling of a variant, None if it does not fit the list or the device."""
    if variant.held and variant.held not in thread_element_counts(shape.dtype.itemsize):
        return None
    rule = _tiling(shape, variant.held, device)
    if rule is None or variant.stages not in _STAGES or variant.cached not in (0, 1):
        return None
    if variant.block != rule.block and (rule.team > 32 or variant.block not in _BLOCKS):
        return None
    cached = bool(variant.cached)
    tiling = replace(rule, block=variant.block, stages=variant.stages, cached=cached)
    if (
        variant.teams_per_output not in output_team_counts(tiling)
        or tiling.shared_bytes > device.shared_bytes
    ):
        return None
    tiling = replace(tiling, teams_per_output=variant.teams_per_output)
    return tiling if tiling.outputs == 1 else replace(tiling, cluster=1)
