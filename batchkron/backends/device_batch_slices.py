"""How products of a batch list are cut into slices that threads hold, without shared memory.

Pure arithmetic on sizes, without any device: the kernel's contract is in
``csrc/cuda/batched_slices.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchkron.backends.device_batch_passes import HeldMode, largest_tile
from batchkron.backends.device_batches import record_words
from batchkron.backends.device_hardware import WARP, carveout
from batchkron.backends.device_tiling import MOST_FIXED_MODES, DeviceLimits, Step

_LARGEST_HELD = 8  # rows and columns of a matrix that a thread takes whole
_MOST_MULTIPLIES = 2048  # of one thread, all unrolled: a kernel compiles in a second or two
_MOST_REGISTERS = 200  # for blocks and sums, so that a thread has some left
_BATCH_REGISTERS = 32  # for what a thread loads at a time
_MOST_BATCH = 4
_MOST_WARPS = 8  # of an output
_WARPS_WANTED = 8  # of a multiprocessor, so that one computes while others wait
_SLICE_REGISTERS = 16  # for a thread's slice, if more modes can be exchanged
_LARGEST_SLICE = 32  # registers, beyond which blocks go through shared memory
_LARGE_TEAM = 16  # threads, which pay for exchanges where their slices are large
_SMALL_BLOCK = 4  # warps of a thread block, where outputs have fewer
_THREADS = 2048  # of a multiprocessor
_TOLERATED_PADDING = 4  # records for each product: of those without a product nothing else is read


@dataclass(frozen=True)
class SliceTiling:
    """How a kernel evaluates products in slices.

    Attributes
    ----------
    steps : tuple of Step
    split : int
        The step along the first mode, whose entries are different threads' slices.
    exchanged : tuple of int
        Steps along the next modes whose entries are different threads', slowest first.
    held : tuple of HeldMode
        The other modes, which a thread has whole.
    warps : int
        Warps that share the products of an output.
    outputs : int
        Outputs of a thread block.
    batch : int
        Products that a thread loads at a time.
    slots : int
        Records of the list for each output, 0 where it has those of its products only.
    short_ids, identities : bool
        Whether ids have 16 bits; whether some factors are identities.
    least_blocks : int
        Thread blocks that a multiprocessor should hold, which bounds the registers.
    itemsize : int
    """

    steps: tuple[Step, ...]
    split: int
    exchanged: tuple[int, ...]
    held: tuple[HeldMode, ...]
    warps: int
    outputs: int
    batch: int
    slots: int
    short_ids: bool
    identities: bool
    least_blocks: int
    itemsize: int

    @property
    def parts(self) -> int:
        """Threads of one entry of the split mode."""
        return math.prod(self.steps[s].C for s in self.exchanged)

    @property
    def team(self) -> int:
        """Threads that evaluate one product."""
        return self.steps[self.split].C * self.parts

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return WARP * self.warps * self.outputs

    @property
    def slice_sizes(self) -> tuple[int, int]:
        """Elements of a slice before and after the held modes."""
        return math.prod(m.C for m in self.held), math.prod(m.K for m in self.held)

    @property
    def record_words(self) -> int:
        """Words of 4 bytes of a product's record in the list."""
        return record_words(len(self.steps), self.short_ids)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block: the sums of its warps."""
        if self.warps == 1:
            return 0
        elements = self.steps[self.split].K * self.parts * self.slice_sizes[1]
        return self.warps * self.outputs * elements * self.itemsize

    @property
    def carveout(self) -> int:
        """Percentage of the memory on chip that should be shared memory; caches use the rest."""
        blocks = _THREADS // self.block
        return carveout(blocks, self.shared_bytes)


def slice_tiling(
    steps: tuple[Step, ...],
    itemsize: int,
    outputs: int,
    products: int,
    most: int,
    short_ids: bool,
    identities: bool,
    limits: DeviceLimits,
) -> SliceTiling | None:
    """Return how products of single vectors are evaluated in slices, or None if they are not.

    ``outputs`` and ``products`` are the numbers of the whole call, with all systems; ``most``
    products has the output that has the most.
    """
    if len(steps) > MOST_FIXED_MODES:
        return None
    modes = sorted(range(len(steps)), key=lambda s: steps[s].mode)
    exchanged = _exchanged(steps, modes, itemsize)
    if exchanged is None:
        return None
    split, held = modes[0], modes[1 + exchanged :]
    team = steps[split].C * math.prod(steps[s].C for s in modes[1 : 1 + exchanged])
    at_once = WARP // team
    if 2 * products < at_once * outputs:
        return None  # warps would be idle
    turns = -(-most // at_once)
    wanted = -(-_WARPS_WANTED * limits.multiprocessors // outputs)
    rounds = -(-turns // min(_MOST_WARPS, wanted))
    warps = -(-turns // rounds)
    loaded = _loaded(steps, split, held) * itemsize // 4
    batch = max(1, min(_MOST_BATCH, rounds, _BATCH_REGISTERS // loaded))
    return SliceTiling(
        steps=steps,
        split=split,
        exchanged=tuple(modes[1 : 1 + exchanged]),
        held=tuple(HeldMode(s, steps[s].C, steps[s].K, 0, 0) for s in held),
        warps=warps,
        outputs=max(1, _SMALL_BLOCK // warps),
        batch=batch,
        slots=most if most * outputs <= _TOLERATED_PADDING * products else 0,
        short_ids=short_ids,
        identities=identities,
        least_blocks=1,
        itemsize=itemsize,
    )


def _exchanged(steps: Sequence[Step], modes: Sequence[int], itemsize: int) -> int | None:
    """Return how many modes are exchanged: the fewest with which a thread's slice is small."""
    team = steps[modes[0]].C
    best: int | None = None
    for count in range(len(modes)):
        if count:
            step = steps[modes[count]]
            if step.C != step.K or step.C not in (2, 4, 8):
                break
            team *= step.C
        held = modes[1 + count :]
        if team > WARP:
            break
        registers = math.prod(steps[s].C for s in held) * itemsize // 4
        most = _SLICE_REGISTERS // 2 if team >= _LARGE_TEAM else _LARGEST_SLICE
        if registers <= most and _fits(steps, modes[0], held, itemsize):
            best = count
            if registers <= _SLICE_REGISTERS:
                break
    return best


def _fits(steps: Sequence[Step], split: int, held: Sequence[int], itemsize: int) -> bool:
    """Whether a thread has registers for its slices and sums, and not too much to multiply."""
    shapes = [(steps[s].C, steps[s].K) for s in held]
    if max((max(shape) for shape in shapes), default=1) > _LARGEST_HELD:
        return False
    result = math.prod(K for _, K in shapes)
    sums = steps[split].K * result
    multiplies, size = sums, math.prod(C for C, _ in shapes)
    for C, K in shapes:
        multiplies += size * K
        size = size // C * K
    registers = (sums + 2 * largest_tile(shapes)) * itemsize // 4
    return registers <= _MOST_REGISTERS and multiplies <= _MOST_MULTIPLIES


def _loaded(steps: Sequence[Step], split: int, held: Sequence[int]) -> int:
    """Return the elements that a thread loads for a product."""
    matrices = sum(steps[s].C * steps[s].K for s in held)
    return math.prod(steps[s].C for s in held) + matrices + steps[split].K
