"""Passes over a block for products in registers: which modes a pass does, where elements lie.

In a pass, each thread reads some elements of the block (an item) to registers, multiplies them
along one or several modes, and writes them back. Pure arithmetic on sizes, no device needed; the
kernel's contract is in ``csrc/cuda/batch/registers.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batchkron.backends.cuda.runtime.program import template_type
from batchkron.backends.cuda.steps import Step


@dataclass(frozen=True, slots=True)
class HeldMode:
    """A mode of which a thread holds all entries: it maps C entries to K results.

    Entries are ``source`` elements apart in the block, results ``target`` elements.
    """

    step: int
    C: int
    K: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class SpreadMode:
    """A mode of ``size`` entries that belong to different items.

    They are ``source`` elements apart before the pass, ``target`` elements after it.
    """

    size: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class BatchPass:
    """One pass over a block: the modes inside an item, and the modes that enumerate the items."""

    held: tuple[HeldMode, ...]
    spread: tuple[SpreadMode, ...]

    @property
    def items(self) -> int:
        """Number of items of a block."""
        return math.prod(mode.size for mode in self.spread)

    @property
    def elements(self) -> int:
        """Largest number of elements of an item at any time of the pass."""
        return largest_tile([(mode.C, mode.K) for mode in self.held])


def largest_tile(shapes: Sequence[tuple[int, int]]) -> int:
    """Return the largest size of a tile while it is multiplied mode by mode.

    ``shapes`` are (C, K) of each mode: C entries become K results.
    """
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
            HeldMode(s, steps[s].C, steps[s].K, source[steps[s].mode], target[steps[s].mode])
            for s in order
        )
        spread = tuple(
            SpreadMode(inputs[mode], source[mode], target[mode])
            for mode in reversed(range(modes))
            if mode not in held_modes
        )
        passes.append(BatchPass(held, spread))
    return tuple(passes), run if gap else 1, gap


def _strides(sizes: Sequence[int], border: int, gap: int) -> Iterator[int]:
    """Yield a block's strides if ``gap`` padding elements follow each run of modes >= border."""
    run = math.prod(sizes[border:])
    for mode in range(len(sizes)):
        after = math.prod(sizes[mode + 1 :])
        yield after // run * (run + gap) if gap and mode < border else after


def held_modes_type(held: Sequence[HeldMode]) -> str:
    """Return the C++ type of the modes that a thread holds."""
    modes = (template_type("HeldMode", m.step, m.C, m.K, m.source, m.target) for m in held)
    return template_type("HeldModes", *modes)


def pass_type(one: BatchPass) -> str:
    """Return the C++ type of a pass."""
    spread = (template_type("SpreadMode", m.size, m.source, m.target) for m in one.spread)
    return template_type(
        "RegisterPass", held_modes_type(one.held), template_type("SpreadModes", *spread)
    )
