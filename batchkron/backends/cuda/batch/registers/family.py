"""The family of kernels that hold a block in the registers of a team of threads.

It is the only one that is tuned. Without it, the 13 cells that have it took 17.9 times as long in
the mean (H200, docs/results/gpu.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from itertools import product

from batchkron.backends.cuda.batch.cutting import thread_element_counts
from batchkron.backends.cuda.batch.kernel import BatchShape, can_have_records, records_kernel
from batchkron.backends.cuda.batch.registers.tile import (
    RegisterTiling,
    output_team_counts,
    register_batch_program,
    register_tiling,
)
from batchkron.backends.cuda.kernel import Family, Kernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

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


def registers_kernel(
    shape: BatchShape, device: DeviceLimits, variant: RegisterVariant | None = None
) -> Kernel | None:
    """Return the kernel of a variant, by default of the least estimated time; None if none fits.

    By default only the number of elements that a thread holds is chosen by estimates; all else
    follows from the sizes (see `tile`).
    """
    if not can_have_records(shape):
        return None
    tiling = _tiling(shape, 0, device) if variant is None else tiling_of(shape, variant, device)
    if tiling is None:
        return None
    if variant is None:
        variant = _variant_of(0, tiling)
    program, cut = register_batch_program(shape.dtype, tiling), (tiling.min_blocks, tiling.cluster)
    return records_kernel(REGISTERS, shape, variant, tiling, program, *cut)


REGISTERS = Family("batch", "registers", registers_kernel)


def register_variants(shape: BatchShape, device: DeviceLimits) -> Iterator[RegisterVariant]:
    """Yield a variant for each number of elements that a thread may hold."""
    for held in thread_element_counts(shape.dtype.itemsize):
        tiling = _tiling(shape, held, device)
        if tiling is not None:
            yield _variant_of(held, tiling)


def near_variants(
    shape: BatchShape, centre: RegisterVariant, changes: int, device: DeviceLimits
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
        if tiling_of(shape, variant, device) is not None:
            yield variant


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


def tiling_of(
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
