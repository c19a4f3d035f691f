"""Tilings of batch lists in which each thread holds a slice of a block, without shared memory.

Along one mode, the split mode, each entry of a block is the slice of another thread. The thread
multiplies it along the other modes and adds it to its own copy of the sums; the copies are added up
once per output. Large slices are divided further: the entries of some modes (exchanged modes) are
different threads' as well, which exchange them by shuffles. The kernel's contract is in
``csrc/cuda/batch/slices.cuh``. Without this family, the 22 cells that have it took 1.76 times as
long in the mean (H200, docs/results/gpu.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchShape, can_have_records, records_kernel
from batchkron.backends.cuda.batch.passes import PassMode, held_modes_type, largest_tile
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape
from batchkron.backends.cuda.runtime.hardware import (
    LINE,
    MAX_RESIDENT_THREADS,
    WARP,
    DeviceLimits,
    carveout,
)
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.backends.cuda.steps import MAX_FIXED_MODES, Step

# Registers below are those of one thread, 4 bytes each. Where no source is given, the number was
# chosen by hand.
_MAX_WHOLE_MODE = 8  # largest mode size that one thread multiplies as a whole, or exchanges
# Multiply-adds of one thread, all unrolled; with this many a kernel compiles in a second or two.
_MAX_THREAD_MULTIPLIES = 2048
_MAX_DATA_REGISTERS = 200  # registers for blocks and sums; addresses etc. have the other 55
_BATCH_REGISTERS = 32  # registers for the values that are loaded ahead
_MAX_LOAD_BATCH = 4  # largest number of products that a thread loads at a time
_MAX_OUTPUT_WARPS = 8  # largest number of warps that share an output
_TARGET_WARPS = 8  # warps wanted on each multiprocessor, so that some compute while others wait
_MAX_SLICE_REGISTERS = 32  # registers for a slice; with larger ones, other kernels are used
_LARGE_GROUP_THREADS = 16  # threads of a group from which exchanging large slices is expensive
_LARGE_GROUP_SLICE_REGISTERS = 8  # registers for a slice in such a group
_FEW_REGISTERS = 28  # with up to this many for slice and sums, twice `_TARGET_WARPS` are wanted
# Warps of a multiprocessor that keep it busy; with fewer warps in all, each output gets a thread
# block of its own.
_SATURATING_WARPS = 12
_SMALL_BLOCK_WARPS = 4  # warps of a thread block that computes several outputs
_BOUNDED_REGISTERS = 144  # with up to this many, `_SATURATING_WARPS` can be resident
_MAX_MATRIX_REGISTERS = 32  # registers for a part of a factor
# The list is padded to equally many records per output if it then has at most this many records
# per product; a record without a product costs only its own read.
_MAX_RECORDS_PER_PRODUCT = 4


# Cycles of a multiprocessor that each part of a product costs, fitted to measurements on an H200
# (docs/results/gpu-history.md). A warp evaluates products in rounds, one for each of its groups.
_LINE_CYCLES = 0.35  # for each line of the first-level cache that the loads of a block touch
_MATRIX_WORD_CYCLES = 0.9  # for each word that is loaded from the matrix of a held mode
# For each word that is loaded from the matrices of the split and exchanged modes.
_FACTOR_WORD_CYCLES = 0.54
_ROUND_CYCLES = 23  # of a round without its work
_MULTIPLY_CYCLES = 0.22  # of a round for each multiply-add of 4 bytes
_SHUFFLE_CYCLES = 1.35  # of a round for each exchange of 4 bytes between lanes
_REGISTER_CYCLES = 0.55  # of a round for each register beyond the free ones
_FREE_REGISTERS = 60  # for slice and sums
_CONTIGUOUS = 0.92  # factor of all cycles if a slice is contiguous in memory


@dataclass(frozen=True)
class SliceCut:
    """A choice of split, exchanged and held modes."""

    steps: tuple[Step, ...]  # multiplies along one mode each, in the order of evaluation
    # index of the step along the split mode, each of whose entries is another thread's slice
    split: int
    # indices of the steps along the exchanged modes, which follow the split mode in a block
    exchanged: tuple[int, ...]
    held: tuple[int, ...]  # those along the other modes, of which each thread holds all entries
    # how many of the held modes, the last ones, come after the exchanged modes in a block
    behind: int

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(C, K) of each held mode, which maps C entries to K."""
        return [(self.steps[s].C, self.steps[s].K) for s in self.held]

    @property
    def sizes(self) -> tuple[int, int]:
        """Elements of a slice and of its result."""
        return math.prod(C for C, _ in self.shapes), math.prod(K for _, K in self.shapes)

    @property
    def runs(self) -> tuple[int, int]:
        """Contiguous elements of a slice, and of its result, in a block."""
        last = self.shapes[len(self.held) - self.behind :]
        return math.prod(C for C, _ in last), math.prod(K for _, K in last)

    @property
    def parts(self) -> int:
        """Threads that share one entry of the split mode: one per entry of the exchanged modes."""
        return math.prod(self.steps[s].C for s in self.exchanged)

    @property
    def group(self) -> int:
        """Threads that evaluate one product."""
        return self.steps[self.split].C * self.parts

    @property
    def sums(self) -> int:
        """Sums that a thread holds."""
        return self.steps[self.split].K * self.sizes[1]

    @property
    def loaded(self) -> int:
        """Elements that a thread loads per product, without the exchanged modes' matrices."""
        return self.sizes[0] + sum(C * K for C, K in self.shapes) + self.steps[self.split].K

    def registers(self, itemsize: int) -> int:
        """Return the registers for a slice, before and after a multiply, and for the sums."""
        exchanged = sum(self.steps[s].C for s in self.exchanged)
        return (2 * largest_tile(self.shapes) + self.sums + exchanged) * itemsize // 4

    def matrix_registers(self, itemsize: int) -> int:
        """Return the registers for a held mode's matrix."""
        largest = max((C * K for C, K in self.shapes), default=0)
        return min(_MAX_MATRIX_REGISTERS, largest * itemsize // 4)

    @property
    def multiplies(self) -> int:
        """Multiply-adds of a thread per product, without those along exchanged modes."""
        total, size = self.sums, self.sizes[0]
        for C, K in self.shapes:
            total += size * K
            size = size // C * K
        return total


def slices_kernel(shape: BatchShape, device: DeviceLimits) -> Kernel | None:
    """Return the kernel with the fewest estimated cycles, a cut its variant; None if none fits."""
    steps, itemsize = shape.steps, shape.dtype.itemsize
    outputs, products, maximum = shape.all_outputs, shape.all_products, shape.max_products
    cuts = _cuts_that_fit(steps, itemsize) if can_have_records(shape) else []
    if not cuts:
        return None
    cut = min(cuts, key=lambda cut: _cycles(cut, itemsize))
    at_once = WARP // cut.group
    if 2 * products < at_once * outputs:
        return None  # warps would be idle
    turns = -(-maximum // at_once)
    registers = cut.registers(itemsize)
    wanted = (2 if registers <= _FEW_REGISTERS else 1) * _TARGET_WARPS * device.multiprocessors
    shared_by = 2 ** round(math.log2(max(1, min(_MAX_OUTPUT_WARPS, wanted / outputs))))
    rounds = -(-turns // shared_by)
    warps = -(-turns // rounds)  # that share the products of an output
    are_few = outputs * warps < _SATURATING_WARPS * device.multiprocessors
    in_block = 1 if are_few else max(1, _SMALL_BLOCK_WARPS // warps)  # outputs of a thread block
    # to add up the sums of the warps of an output
    shared = warps * in_block * cut.sums * cut.parts * itemsize if warps > 1 else 0
    if shared > device.shared_bytes:
        return None
    held = registers + cut.matrix_registers(itemsize)
    bounded = (
        not are_few and warps <= _SMALL_BLOCK_WARPS and held <= _BOUNDED_REGISTERS and itemsize <= 8
    )
    resident = _SATURATING_WARPS // _SMALL_BLOCK_WARPS if bounded else 1
    # products that a thread loads at a time
    batch = max(1, min(_MAX_LOAD_BATCH, rounds, _BATCH_REGISTERS // (cut.loaded * itemsize // 4)))
    slots = maximum if maximum * outputs <= _MAX_RECORDS_PER_PRODUCT * products else 0
    how = template_type("SliceCut", warps, in_block, batch, slots > 0)
    threads = WARP * warps * in_block
    on_chip = carveout(MAX_RESIDENT_THREADS // threads, shared)
    program = _program(shape, cut, how, resident)
    blocks = -(-shape.num_outputs // in_block)
    launch = LaunchShape(blocks, threads, resident, shared, carveout=on_chip)
    return records_kernel(SLICES, shape, cut, program, launch, slots)


SLICES = Family("batch", "slices", slices_kernel)


def _program(shape: BatchShape, cut: SliceCut, how: str, resident: int) -> Program:
    split = cut.steps[cut.split]
    elements = (step.C * step.K for step in cut.steps)
    sizes = cut.split, split.C, split.K, cut.parts, *cut.sizes, *cut.runs
    held = zip(cut.held, cut.shapes, strict=True)
    exchanged, stride = [], cut.parts
    for s in cut.exchanged:
        stride //= cut.steps[s].C
        exchanged.append(template_type("ExchangedMode", s, cut.steps[s].C, stride))
    layout = template_type("BlockSlices", *sizes, *elements)
    what = shape.dtype, layout, how, resident, shape.short_ids, shape.identities
    modes = held_modes_type([PassMode(C, K, 0, 0, s) for s, (C, K) in held])
    moved = template_type("ExchangedModes", *exchanged)
    return device_program("batch/slices", "batched_slices", *what, modes, moved)


def _cuts_that_fit(steps: tuple[Step, ...], itemsize: int) -> list[SliceCut]:
    """Return all cuts whose slices fit in a thread's registers."""
    if len(steps) > MAX_FIXED_MODES:
        return []
    modes = sorted(range(len(steps)), key=lambda s: steps[s].mode)
    return [cut for cut in _cuts(steps, modes) if _fits(cut, itemsize)]


def _cuts(steps: tuple[Step, ...], modes: Sequence[int]) -> Iterator[SliceCut]:
    """Yield all cuts: a split mode, followed by any number of exchanged modes."""
    for first in range(len(modes)):
        for stop in range(first + 1, len(modes) + 1):
            exchanged = tuple(modes[first + 1 : stop])
            if any(steps[s].C != steps[s].K or steps[s].C > _MAX_WHOLE_MODE for s in exchanged):
                break
            held = (*modes[:first], *modes[stop:])
            yield SliceCut(steps, modes[first], exchanged, held, len(modes) - stop)


def _fits(cut: SliceCut, itemsize: int) -> bool:
    """Whether slice and sums fit in a thread's registers, and its multiplies can be unrolled."""
    words = itemsize // 4
    maximum = (
        _LARGE_GROUP_SLICE_REGISTERS if cut.group >= _LARGE_GROUP_THREADS else _MAX_SLICE_REGISTERS
    )
    if cut.group > WARP or cut.sizes[0] * words > maximum:
        return False
    if max((max(shape) for shape in cut.shapes), default=1) > _MAX_WHOLE_MODE:
        return False
    registers = (cut.sums + 2 * largest_tile(cut.shapes)) * words
    return registers <= _MAX_DATA_REGISTERS and cut.multiplies <= _MAX_THREAD_MULTIPLIES


def _cycles(cut: SliceCut, itemsize: int) -> float:
    """Return the estimated cycles of a product, its loads in lines of the first-level cache."""
    words = itemsize // 4
    split = cut.steps[cut.split]
    exchanged = [cut.steps[s].C for s in cut.exchanged]
    multiplies = (cut.multiplies + cut.sizes[1] * sum(exchanged)) * words
    shuffles = cut.sizes[1] * sum(n - 1 for n in exchanged) * words
    turn = _ROUND_CYCLES + _MULTIPLY_CYCLES * multiplies + _SHUFFLE_CYCLES * shuffles
    turn += _REGISTER_CYCLES * max(0, cut.registers(itemsize) - _FREE_REGISTERS)
    factor_words = split.K * itemsize // _word_bytes(split.K, itemsize) + sum(exchanged)
    cycles = (
        _LINE_CYCLES * _lines_of_slices(cut, itemsize)
        + _MATRIX_WORD_CYCLES * sum(-(-C * K * itemsize // 16) for C, K in cut.shapes)
        + _FACTOR_WORD_CYCLES * factor_words
        + turn / (WARP // cut.group)
    )
    return cycles * (_CONTIGUOUS if cut.runs[0] == cut.sizes[0] else 1)


def _lines_of_slices(cut: SliceCut, itemsize: int) -> float:
    """Return the cache lines that all loads of a block touch, averaged over its alignments."""
    size, block = cut.runs[0] * itemsize, cut.sizes[0] * cut.group * itemsize
    places = np.arange(0, LINE, math.gcd(block, LINE))[:, None, None, None]
    rows = np.arange(0, block, cut.group * size)[:, None, None]
    columns = np.arange(0, size, _word_bytes(cut.runs[0], itemsize))[:, None]
    lines = (places + rows + columns + np.arange(cut.group) * size) // LINE
    return float(np.count_nonzero(np.diff(lines, prepend=-1)) / len(places))


def _word_bytes(count: int, itemsize: int) -> int:
    """Return the bytes of one load of ``count`` contiguous elements: 16, or what divides them."""
    return math.gcd(16, count * itemsize)
