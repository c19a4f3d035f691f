"""How products of a batch list in double precision are cut where warps share one on matrix units.

Pure arithmetic on sizes, without any device: the kernel's contract is in
``csrc/cuda/batched_unit_slices.cuh``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from batchkron.backends.device_batch_units import WIDE
from batchkron.backends.device_batches import record_words
from batchkron.backends.device_tiling import DeviceLimits, Step

_WARP = 32
_LEADING = (8, *WIDE)  # entries of the first mode
# From so many elements of a block on: warps of a thread block, thread blocks of a multiprocessor.
_SHARES = ((4096, (8, 1)), (3072, (4, 2)), (0, (4, 3)))
_RESERVED = 1024  # bytes of shared memory that a thread block takes besides
_ON_CHIP = 228 << 10


@dataclass(frozen=True)
class UnitSliceTiling:
    """How a kernel evaluates products of three modes on matrix units.

    Attributes
    ----------
    steps : tuple of Step
    leading, slow, fast : int
        Steps along the first mode, the second, the third.
    warps : int
        Of a thread block, which makes one output.
    blocks : int
        Thread blocks that share a multiprocessor.
    short_ids : bool
        Whether ids have 16 bits.
    """

    steps: tuple[Step, ...]
    leading: int
    slow: int
    fast: int
    warps: int
    blocks: int
    short_ids: bool

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return _WARP * self.warps

    @property
    def outputs(self) -> int:
        """Outputs of a thread block."""
        return 1

    @property
    def record_words(self) -> int:
        """Words of 4 bytes of a product's record in the list."""
        return record_words(len(self.steps), self.short_ids)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block: two products' slices, three's matrices."""
        sizes = [self.steps[s].C for s in (self.leading, self.slow, self.fast)]
        slices = sizes[0] * (math.prod(sizes[1:]) + 4)
        return 8 * (2 * slices + 3 * sum(n * (n + 2) for n in sizes))

    @property
    def carveout(self) -> int:
        """Percentage of the memory on chip that should be shared memory; caches use the rest."""
        return min(100, -(-100 * self.blocks * (self.shared_bytes + _RESERVED) // _ON_CHIP))


def unit_slice_tiling(
    steps: tuple[Step, ...],
    dtype: np.dtype[np.generic],
    outputs: int,
    short_ids: bool,
    identities: bool,
    limits: DeviceLimits,
) -> UnitSliceTiling | None:
    """Return how products of single vectors share matrix units, or None if they do not.

    ``outputs`` is the number of the whole call, with all systems. Lists with identities have other
    kernels: on matrix units an infinity would meet zeros.
    """
    if dtype != np.float64 or identities or len(steps) != 3 or outputs < limits.multiprocessors:
        return None
    leading, slow, fast = sorted(range(3), key=lambda s: steps[s].mode)
    sizes = [steps[s].C for s in (leading, slow, fast)]
    square = all(step.C == step.K for step in steps)
    if not square or sizes[0] not in _LEADING or not all(size in WIDE for size in sizes[1:]):
        return None
    warps, blocks = next(share for least, share in _SHARES if math.prod(sizes) >= least)
    tiling = UnitSliceTiling(steps, leading, slow, fast, warps, blocks, short_ids)
    return tiling if tiling.shared_bytes <= limits.shared_bytes else None
