"""The family of kernels that hold a block and its sums in the registers of a group of threads.

A group of threads evaluates one product at a time, in passes (see `passes`); between passes the
block is exchanged through shared memory. The kernel's contract is in
``csrc/cuda/batch/registers.cuh``. Without it, the 13 cells that have it took 17.9 times as long in
the mean (H200, docs/results/gpu.md). It is the only family that is tuned, in the space
`BatchSpace`; "the rule" is the variant that is used without tuning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from batchkron.backends.cuda.batch.kernel import (
    BatchShape,
    can_have_records,
    record_words,
    records_kernel,
)
from batchkron.backends.cuda.batch.passes import (
    PassTiling,
    input_size,
    pass_tiling,
    thread_element_counts,
)
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, carveout, round_up
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.backends.cuda.tuning.search import Launched

# Input blocks of up to this many bytes take longer to copy than to multiply: thread blocks are then
# twice as large and copy three products ahead instead of two. Chosen by hand.
_TINY_BLOCK_BYTES = 16
# Warps wanted on each multiprocessor, so that some compute while others wait; chosen by hand.
_TARGET_WARPS = 8
# The same where the first-level cache gets the memory that shared memory leaves; chosen by hand.
_WARPS_FOR_CACHE = 12
# Number of times the list should fill the device, so that a partial last wave of thread blocks
# costs little; chosen by hand.
_WAVES = 4
# Products that a group should evaluate in a row, so that the latency of the first one's loads
# matters little; chosen by hand.
_MIN_PIPELINED_PRODUCTS = 8
_SMALL_BLOCK_THREADS = 64  # threads of a thread block before it is grown; chosen by hand
_MAX_GROWN_BLOCK_THREADS = 256  # at most this many threads, so that each can have 255 registers
_BLOCKS = (32, 64, 128, 256)  # threads of a thread block that tuning tries; chosen by hand
_STAGES = (2, 3, 4)  # products copied ahead that tuning tries; chosen by hand


@dataclass(frozen=True)
class RegisterTiling(PassTiling):
    """How a kernel evaluates products with the block in registers."""

    stages: int  # products of a group that are being copied from memory at the same time
    # short_ids, identities: whether factor ids have 16 bits; whether some factors are identities
    short_ids: bool
    identities: bool
    groups_per_output: int = 1  # groups of a thread block that share the products of one output
    cluster: int = 1  # thread blocks that share the products of one output
    # whether the first-level cache should get the memory that shared memory does not need
    cached: bool = True

    @property
    def outputs(self) -> int:
        """Outputs that a cluster of thread blocks computes at the same time."""
        return self.groups // self.groups_per_output

    @cached_property
    def pitch(self) -> int:
        """Bytes of shared memory of one product, padded to give groups of a warp other banks."""
        words = self.product_words
        offset, period = (self.group, 2 * self.group) if self.group in (1, 2, 4) else (0, 1)
        return 16 * (words + (offset - words) % period)

    @property
    def carveout(self) -> int:
        """Percentage of the on-chip memory to use as shared memory, -1 for no preference."""
        if not self.cached:
            return -1
        blocks = -(-_WARPS_FOR_CACHE * 32 // self.block)
        return carveout(blocks, self.shared_bytes)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        slots = 8 if self.stages > 2 else 4
        record = record_words(len(self.steps), self.short_ids)
        lists = self.products * slots * (4 * record + self.itemsize)
        exchange = round_up(self.exchange * self.itemsize, 16)
        each = round_up(lists, 16) + self.products * (self.stages * self.pitch + exchange)
        return self.block // self.loaders * each


def register_tiling(
    shape: BatchShape, device: DeviceLimits, held: int = 0
) -> RegisterTiling | None:
    """Return the tiling where a thread holds up to ``held`` elements, 0: the best; None: no fit."""
    steps, itemsize = shape.steps, shape.dtype.itemsize
    size = input_size(steps) * itemsize
    tiny = size <= _TINY_BLOCK_BYTES
    choices = (held,) if held else thread_element_counts(itemsize)
    small_block = 2 * _SMALL_BLOCK_THREADS if tiny else _SMALL_BLOCK_THREADS
    passes = pass_tiling(steps, itemsize, choices, small_block, 0 if size % 16 == 0 else 16)
    if passes is None:
        return None
    if passes.group <= 32:
        passes = replace(passes, min_blocks=1)
    tiling = RegisterTiling(
        **vars(passes),
        stages=3 if tiny else 2,
        short_ids=shape.short_ids,
        identities=shape.identities,
    )
    while tiling.shared_bytes > device.shared_bytes and tiling.block > tiling.loaders:
        tiling = replace(tiling, block=tiling.block // 2)
    if tiling.shared_bytes > device.shared_bytes:
        return None
    outputs, products = shape.all_outputs, shape.all_products
    sharing = max(1, min(device.cluster, device.multiprocessors // max(1, outputs)))
    while (
        tiling.group <= 32
        and tiling.block < _MAX_GROWN_BLOCK_THREADS
        and 2 * tiling.shared_bytes <= device.shared_bytes
        and tiling.groups * outputs * sharing < min(_target_groups(tiling, device), products)
    ):
        tiling = replace(tiling, block=2 * tiling.block)
    own = _groups_per_output(tiling, outputs, products, device)
    tiling = replace(tiling, groups_per_output=own)
    return replace(tiling, cluster=_cluster(tiling, outputs, products, device))


def _target_groups(tiling: RegisterTiling, limits: DeviceLimits) -> int:
    """Return the number of groups that fill the device with `_TARGET_WARPS`."""
    return limits.multiprocessors * _TARGET_WARPS * 32 // tiling.group


def output_group_counts(tiling: RegisterTiling) -> list[int]:
    """Return the possible numbers of groups of a thread block that share an output."""
    return [
        groups_per_output
        for groups_per_output in range(1, tiling.groups + 1)
        if tiling.products % groups_per_output == 0
        or (groups_per_output % tiling.products == 0 and tiling.groups % groups_per_output == 0)
    ]


def _groups_per_output(
    tiling: RegisterTiling, outputs: int, products: int, limits: DeviceLimits
) -> int:
    """Return how many groups share an output.

    Enough to fill the device `_WAVES` times and to let a warp read the list in whole sectors, as
    long as each group keeps `_MIN_PIPELINED_PRODUCTS` products. If that does not fill the device
    once, then as many as fill it.
    """
    mean = max(1, products // max(1, outputs))
    fill = _target_groups(tiling, limits)
    choices = output_group_counts(tiling)

    def minimum(groups: int, sharing: int, maximum: int) -> int:
        enough = next((c for c in choices if c >= sharing and c * outputs >= groups), choices[-1])
        return max(c for c in choices if c <= min(enough, maximum))

    roomy = minimum(_WAVES * fill, min(tiling.products, 8), max(1, mean // _MIN_PIPELINED_PRODUCTS))
    return max(roomy, minimum(fill, 1, mean))


def _cluster(tiling: RegisterTiling, outputs: int, products: int, limits: DeviceLimits) -> int:
    """Return how many thread blocks share an output.

    As many as can be resident on the device at the same time, as long as more than half of the
    groups have a product.
    """
    blocks = -(-outputs // tiling.outputs)
    maximum = min(limits.cluster, limits.multiprocessors // blocks)
    mean = max(1, products // max(1, outputs))
    choices = [
        c
        for c in (1, 2, 4, 8)
        if c == 1 or (c <= maximum and c * tiling.groups_per_output < 2 * mean)
    ]
    return choices[-1] if tiling.outputs == 1 else 1


def _program(dtype: np.dtype[np.generic], tiling: RegisterTiling) -> Program:
    layout, passes = tiling.types()
    sizes = tiling.group, tiling.groups_per_output, tiling.cluster, tiling.block, tiling.stages
    cut = template_type("RegisterCut", *sizes, tiling.pitch, tiling.exchange)
    what = dtype, layout, cut, tiling.min_blocks
    flags = tiling.short_ids, tiling.identities
    template = "batched_registers_cluster" if tiling.cluster > 1 else "batched_registers"
    return device_program("batch/registers", template, *what, *flags, *passes)


class RegisterVariant(NamedTuple):
    """The numbers that tuning may change."""

    # elements of a block that a thread may hold, 0 for the number of least estimated time
    held: int
    # block, stages, groups_per_output: threads of a thread block, products that a group copies
    # ahead, groups that share an output
    block: int
    stages: int
    groups_per_output: int
    # 1 if the first-level cache should get the memory that shared memory does not need, else 0
    cached: int


def registers_kernel(
    shape: BatchShape, device: DeviceLimits, variant: RegisterVariant | None = None
) -> Kernel | None:
    """Return the kernel of a variant, by default of the least estimated time; None if none fits."""
    if not can_have_records(shape):
        return None
    tiling = tiling_of(shape, variant, device) if variant else register_tiling(shape, device)
    if tiling is None:
        return None
    program, chosen = _program(shape.dtype, tiling), variant or _variant_of(0, tiling)
    blocks = -(-shape.num_outputs // tiling.outputs) * tiling.cluster
    sizes = blocks, tiling.block, tiling.min_blocks, tiling.shared_bytes
    launch = LaunchShape(*sizes, carveout=tiling.carveout)
    return records_kernel(REGISTERS, shape, chosen, program, launch)


REGISTERS = Family("batch", "registers", registers_kernel)


def _variant_of(held: int, tiling: RegisterTiling) -> RegisterVariant:
    return RegisterVariant(
        held, tiling.block, tiling.stages, tiling.groups_per_output, int(tiling.cached)
    )


def tiling_of(
    shape: BatchShape, variant: RegisterVariant, device: DeviceLimits
) -> RegisterTiling | None:
    """Return the tiling of a variant, None if it does not fit the list or the device."""
    if variant.held and variant.held not in thread_element_counts(shape.dtype.itemsize):
        return None
    rule = register_tiling(shape, device, variant.held)
    if rule is None or variant.stages not in _STAGES or variant.cached not in (0, 1):
        return None
    if variant.block != rule.block and (rule.group > 32 or variant.block not in _BLOCKS):
        return None
    cached = bool(variant.cached)
    tiling = replace(rule, block=variant.block, stages=variant.stages, cached=cached)
    if (
        variant.groups_per_output not in output_group_counts(tiling)
        or tiling.shared_bytes > device.shared_bytes
    ):
        return None
    tiling = replace(tiling, groups_per_output=variant.groups_per_output)
    return tiling if tiling.outputs == 1 else replace(tiling, cluster=1)


# How many numbers of the best variant so far are changed in each round of the search; chosen by
# hand.
_CHANGED_NUMBERS = (1, 2, 1, 2, 4)


def written_variant(variant: RegisterVariant) -> list[int]:
    """Return a variant as a list of numbers, for the store."""
    return list(variant)


def read_variant(data: Any) -> RegisterVariant | None:
    """Return the variant that `written_variant` wrote, None for other data."""
    if not isinstance(data, list) or len(data) != len(RegisterVariant._fields):
        return None
    return RegisterVariant(*data) if all(type(number) is int for number in data) else None


class BatchSpace:
    """All variants for a batch list, the most promising ones first."""

    def __init__(self, kernel: Kernel, device: DeviceLimits) -> None:
        """Take the kernel that is used without tuning."""
        self._shape, self._device = kernel.work, device
        self.rule = kernel.variant

    def kernels(self, choice: RegisterVariant) -> tuple[Launched, ...] | None:
        """Return the kernels to compile for a variant, None if it does not fit."""
        kernel = registers_kernel(self._shape, self._device, choice)
        return None if kernel is None else ((kernel.program, kernel.launch),)

    def steps(self) -> Iterator[Callable[[RegisterVariant], Iterable[RegisterVariant]]]:
        """Yield functions that map the best variant so far to candidates.

        The first one gives a variant for each number of elements that a thread may hold; the others
        change a few numbers of the best one.
        """
        yield self._held
        for changes in _CHANGED_NUMBERS:
            yield partial(self._near, changes)

    def _held(self, best: RegisterVariant) -> Iterator[RegisterVariant]:
        for held in thread_element_counts(self._shape.dtype.itemsize):
            tiling = register_tiling(self._shape, self._device, held)
            if tiling is not None:
                yield _variant_of(held, tiling)

    def _near(self, changes: int, best: RegisterVariant) -> Iterator[RegisterVariant]:
        """Yield variants that differ from one in up to ``changes`` numbers, the nearest first."""
        now = best[1:]
        blocks = sorted({best.block, *_BLOCKS})
        powers = [1 << bit for bit in range(max(blocks).bit_length())]
        groups = sorted({best.groups_per_output, *powers})
        found = []
        for values in product(blocks, _STAGES, groups, (0, 1)):
            changed = sum(value != old for value, old in zip(values, now, strict=True))
            if 0 < changed <= changes:
                pairs = zip(values[:3], now[:3], strict=True)
                found.append((changed, sum(abs(math.log2(a / b)) for a, b in pairs), values))
        for _, _, values in sorted(found):
            variant = RegisterVariant(best.held, *values)
            if tiling_of(self._shape, variant, self._device) is not None:
                yield variant
