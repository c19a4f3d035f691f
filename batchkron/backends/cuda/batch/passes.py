"""Products of batch lists in passes over a block, by groups of threads with registers.

In a pass, each thread reads some elements of the block (an item) to registers, multiplies them
along one or several modes, and writes them back. How many elements a thread holds is chosen by
estimated time. The kernels' contracts are in ``csrc/cuda/batch/registers.cuh`` and
``csrc/cuda/batch/unsorted.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from batchkron.backends.cuda.batch.kernel import matrix_bytes
from batchkron.backends.cuda.runtime.hardware import (
    MAX_THREAD_REGISTERS,
    MULTIPROCESSOR_SHARED_BYTES,
    REGISTER_FILE,
    round_up,
)
from batchkron.backends.cuda.runtime.program import template_type
from batchkron.backends.cuda.steps import MAX_FIXED_MODES, Step

_MAX_FACTOR_SIZE = 32  # largest number of rows or columns of a factor; chosen by hand
_MAX_GROUP_THREADS = 512  # largest number of threads that share a product; chosen by hand
_MAX_THREAD_BYTES = 256  # bytes of a block in the registers of one thread; chosen by hand
# A group size may waste this factor more registers (of idle threads) than the best one, if it is
# smaller; chosen by hand.
_MAX_WASTE = 1.1
_REGISTER_BYTES = 4  # bytes of a register
# Multiply-adds of one thread, all unrolled; with this many a kernel compiles in a second or two.
_MAX_THREAD_MULTIPLIES = 4096
# Choices for the elements of a block in one thread's registers: products of small factor sizes.
_THREAD_ELEMENTS = (4, 8, 9, 12, 16, 25, 27, 32, 36, 48, 64)
# Constants of the estimated time of a product, relative to the work of its threads; the first two
# were fitted to 1000 measured kernels (H200).
_LATENCY_WARPS = 7  # the time is proportional to 1 + this number / (warps of a multiprocessor)
_PARTIAL_WARP = 1.3  # factor of the time if groups do not fill a warp
_USEFUL_WARPS = 20  # warps of a multiprocessor; more do not hide more latency
# Factor of the time if a group is larger than a warp and needs block-wide barriers; so large that
# such groups are used only if nothing else fits.
_BARRIERS = 1e3


class PassMode(NamedTuple):
    """A mode in a pass: C entries, ``source`` elements apart, become K, ``target`` apart."""

    C: int
    K: int
    source: int
    target: int
    step: int = -1  # the multiply along a mode that a thread holds; -1 if items have one entry each


BatchPass = tuple[tuple[PassMode, ...], tuple[PassMode, ...]]
"""The modes inside an item, and the modes that enumerate the items."""


@dataclass(frozen=True)
class PassTiling:
    """How a kernel evaluates products in passes."""

    steps: tuple[Step, ...]  # multiplies along one mode each, in the order of evaluation
    passes: tuple[BatchPass, ...]  # the steps grouped into passes over the block
    # run, gap: after each ``run`` elements of a block in shared memory there are ``gap`` of padding
    run: int
    gap: int
    area: int  # elements of shared memory for a block, in whole 16-byte words
    exchange: int  # elements of a second buffer; 0 if results can overwrite their inputs
    # group, block: threads that evaluate one product, and of a thread block
    group: int
    block: int
    # thread blocks that a multiprocessor should hold, which bounds the registers of a thread
    min_blocks: int
    itemsize: int  # bytes of an element
    cost: float  # an estimate proportional to a product's time

    @property
    def loaders(self) -> int:
        """Threads that copy products together: a warp, or one group that is larger."""
        return 32 if self.group <= 32 else self.block

    @property
    def products(self) -> int:
        """Products that they evaluate at the same time."""
        return self.loaders // self.group

    @property
    def groups(self) -> int:
        """Groups of a thread block."""
        return self.block // self.loaders * self.products

    @property
    def product_words(self) -> int:
        """Words of 16 bytes of a block and its matrices in shared memory."""
        matrices = sum(matrix_bytes(step.C * step.K, self.itemsize) for step in self.steps)
        return (self.area * self.itemsize + matrices) // 16

    def types(self) -> tuple[str, list[str]]:
        """Return the C++ types of the block's layout, and of the passes."""
        elements, last = (step.C * step.K for step in self.steps), self.steps[-1]
        sizes = input_size(self.steps), last.L * last.K * last.R, self.run, self.gap, self.area
        return template_type("BlockLayout", *sizes, *elements), list(map(_pass_type, self.passes))


def pass_tiling(
    steps: tuple[Step, ...], itemsize: int, held: Sequence[int], small_block: int, shift: int = 0
) -> PassTiling | None:
    """Return the tiling of least cost, None where the registers of a group do not suffice.

    A thread may hold one of the numbers of elements ``held``; thread blocks of small groups have
    ``small_block`` threads; a block may begin ``shift`` bytes inside its first 16-byte word.
    """
    if len(steps) > MAX_FIXED_MODES or max(max(s.C, s.K) for s in steps) > _MAX_FACTOR_SIZE:
        return None
    found = []
    for maximum in reversed(held):
        cuts = cut_steps(steps, maximum)
        shapes = [_shape(steps, cut) for cut in cuts]
        group = _group(steps, shapes, maximum)
        if group is not None:
            found.append((_cost(steps, shapes, group, itemsize), cuts, shapes, group))
    if not found:
        return None
    cost, cuts, shapes, group = min(found, key=lambda one: one[0])
    passes, run, gap = plan_passes(steps, cuts, itemsize)
    square = all(step.C == step.K for step in steps)
    largest = max(step.L * max(step.C, step.K) * step.R for step in steps)
    padded = largest + (largest // run - 1) * gap if gap else largest
    block = group if group > 32 else small_block
    return PassTiling(
        steps=steps,
        passes=passes,
        run=run,
        gap=gap,
        area=(matrix_bytes(padded, itemsize) + shift) // itemsize,
        exchange=0 if square or len(passes) == 1 else largest,
        group=group,
        block=block,
        min_blocks=max(1, min(512 // block, _resident(shapes, group, itemsize) // block)),
        itemsize=itemsize,
        cost=cost,
    )


def thread_element_counts(itemsize: int) -> tuple[int, ...]:
    """Return the numbers of elements of a block that a thread may hold."""
    return tuple(size for size in _THREAD_ELEMENTS if size * itemsize <= _MAX_THREAD_BYTES)


def input_size(steps: Sequence[Step]) -> int:
    """Return the elements of a block before the first step."""
    return steps[0].L * steps[0].C * steps[0].R


def _resident(shapes: Sequence[tuple[int, int]], group: int, itemsize: int) -> int:
    """Return the estimated number of threads whose registers fit in a multiprocessor."""
    held = max(-(-items // group) * elements for items, elements in shapes)
    registers = 45 + 5 * held * itemsize // (2 * _REGISTER_BYTES)
    return REGISTER_FILE // min(MAX_THREAD_REGISTERS, registers)


def _cost(
    steps: Sequence[Step], shapes: Sequence[tuple[int, int]], group: int, itemsize: int
) -> float:
    """Return a product's relative time; ``shapes``: items of each pass, elements of an item."""
    threads = round_up(group, 32)
    products = threads // group
    matrices = sum(matrix_bytes(s.C * s.K, itemsize) for s in steps)
    product = matrix_bytes(input_size(steps), itemsize) + matrices
    fitting = MULTIPROCESSOR_SHARED_BYTES * threads // (64 * products * product)
    warps = max(1, min(_USEFUL_WARPS, fitting))
    slots = sum(-(-items // group) * group * held for items, held in shapes)
    latency = 1 + _LATENCY_WARPS / warps
    uneven = 1.0 if 32 % group == 0 or group % 32 == 0 else _PARTIAL_WARP
    barriers = _BARRIERS if group > 32 else 1.0
    return slots * threads / (group * products) * latency * uneven * barriers


def _shape(steps: Sequence[Step], cut: Sequence[int]) -> tuple[int, int]:
    """Return the number of items of a pass, and the elements of an item."""
    first = steps[cut[0]]
    size = first.L * first.C * first.R
    elements = largest_tile([(steps[s].C, steps[s].K) for s in cut])
    return size // math.prod(steps[s].C for s in cut), elements


def _group(steps: Sequence[Step], shapes: Sequence[tuple[int, int]], maximum: int) -> int | None:
    """Return the smallest group that holds a block and wastes at most `_MAX_WASTE` of the least."""
    multiplies = sum(step.L * step.C * step.K * step.R for step in steps)

    def waste(group: int) -> float:
        slots: int = sum(-(-items // group) * group * elements for items, elements in shapes)
        threads = round_up(group, 32)
        return slots * (threads / (threads // group * group))

    fits: list[int] = [
        group
        for group in [*range(1, 33), *range(64, _MAX_GROUP_THREADS + 1, 32)]
        if all(-(-items // group) * elements <= maximum for items, elements in shapes)
        and multiplies <= _MAX_THREAD_MULTIPLIES * group
    ]
    if not fits:
        return None
    bound = _MAX_WASTE * min(map(waste, fits))
    return next(group for group in fits if waste(group) <= bound)


def largest_tile(shapes: Sequence[tuple[int, int]]) -> int:
    """Return the largest size of a tile while it is multiplied by modes of shapes (C, K)."""
    size = largest = math.prod(C for C, _ in shapes)
    for C, K in shapes:
        size = size // C * K
        largest = max(largest, size)
    return largest


def cut_steps(steps: Sequence[Step], maximum: int) -> list[list[int]]:
    """Cut the steps into the fewest passes whose items have at most ``maximum`` elements.

    Among cuts into equally many passes, the one with the smallest items is taken.
    """

    def tile(begin: int, end: int) -> int:
        return largest_tile([(step.C, step.K) for step in steps[begin:end]])

    best: list[tuple[int, int, list[int]]] = [(0, 0, [])]
    for end in range(1, len(steps) + 1):
        ways = [
            (count + 1, total + tile(begin, end), [*ends, end])
            for begin, (count, total, ends) in enumerate(best)
            if begin == end - 1 or tile(begin, end) <= maximum
        ]
        best.append(min(ways))
    ends = best[-1][2]
    return [list(range(begin, end)) for begin, end in zip([0, *ends], ends, strict=False)]


def plan_passes(
    steps: Sequence[Step], cuts: Sequence[Sequence[int]], itemsize: int
) -> tuple[tuple[BatchPass, ...], int, int]:
    """Return the passes, and (run, gap): after ``run`` elements, ``gap`` elements of padding.

    A block in shared memory is padded if each thread of the first pass reads a run of whole 16-byte
    words: runs that are an odd number of words apart lie in different banks.
    """
    modes = len(steps)
    sizes = [0] * modes
    for step in steps:
        sizes[step.mode] = step.C
    square = all(step.C == step.K for step in steps)
    first = sorted(steps[s].mode for s in cuts[0])
    run = math.prod(sizes[mode] for mode in first)
    together = first == list(range(modes - len(first), modes)) and run < math.prod(sizes)
    even = run * itemsize % 32 == 0
    gap = 16 // itemsize if square and together and even else 0
    border = first[0] if gap else 0
    passes = []
    for cut in cuts:
        source = list(_strides(sizes, border, gap))
        held_modes = {steps[s].mode for s in cut}
        inputs = list(sizes)
        for s in cut:
            sizes[steps[s].mode] = steps[s].K
        target = list(_strides(sizes, border, 0 if cut is cuts[-1] else gap))
        order = sorted(cut, key=lambda s: steps[s].mode) if square else cut
        held = tuple(
            PassMode(steps[s].C, steps[s].K, source[steps[s].mode], target[steps[s].mode], s)
            for s in order
        )
        spread = tuple(
            PassMode(inputs[mode], inputs[mode], source[mode], target[mode])
            for mode in reversed(range(modes))
            if mode not in held_modes
        )
        passes.append((held, spread))
    return tuple(passes), run if gap else 1, gap


def _strides(sizes: Sequence[int], border: int, gap: int) -> Iterator[int]:
    """Yield a block's strides if ``gap`` padding elements follow each run of modes >= border."""
    run = math.prod(sizes[border:])
    for mode in range(len(sizes)):
        after = math.prod(sizes[mode + 1 :])
        yield after // run * (run + gap) if gap and mode < border else after


def held_modes_type(held: Sequence[PassMode]) -> str:
    """Return the C++ type of the modes that a thread holds."""
    modes = (template_type("HeldMode", m.step, m.C, m.K, m.source, m.target) for m in held)
    return template_type("HeldModes", *modes)


def _pass_type(one: BatchPass) -> str:
    held, spread = one
    modes = (template_type("SpreadMode", m.C, m.source, m.target) for m in spread)
    return template_type(
        "RegisterPass", held_modes_type(held), template_type("SpreadModes", *modes)
    )
