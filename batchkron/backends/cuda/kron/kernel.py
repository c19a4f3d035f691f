"""The base class of all families of kernels for Kron-Matmuls.

Such a kernel multiplies a run of neighbouring modes. If its program has constants, the factors lie
in the kernel's constant memory, and the kernel belongs to one operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Kernel, LaunchShape, TimedFamily, record
from batchkron.backends.cuda.runtime.arguments import FACTOR, struct
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import ModeRun
from batchkron.spec.kron import Array

MEMORY = {
    "memory_rate": (3000.0, "bandwidth of memory, bytes per nanosecond"),
    "cache_rate": (5000.0, "bandwidth of the second-level cache"),
    "cache_bytes": (7e6, "if this many bytes are read and written, half are in the cache"),
}
"""The constants of estimated times that families have for vectors that stay in the cache."""


class KronFamily(TimedFamily[ModeRun]):
    """A `TimedFamily` for runs of neighbouring modes, of ``csrc/cuda/kron``."""

    operation = "kron"

    def near(
        self, run: ModeRun, centre: Any, changes: int, longer: float, device: DeviceLimits
    ) -> Iterable[Any]:
        """Return variants for a search near ``centre``, the most promising first.

        Each family takes the criterion that suits it: variants that differ from ``centre`` in at
        most ``changes`` numbers, or whose estimate is at most ``longer`` times as large.
        """
        return self.variants(run, device)

    def made(
        self,
        run: ModeRun,
        variant: Any,
        device: DeviceLimits,
        program: Program,
        launch: LaunchShape,
        tile: Any = None,
        modes: tuple[int, ...] | None = None,
        arguments: Array | None = None,
    ) -> Kernel:
        """Return a kernel: of all modes in turn, with `KronArguments`, if nothing else is said."""
        if arguments is None:
            layout = kron_arguments(run.dtype, len(run.inputs))
            arguments = record(layout, L=run.L, R=run.R, alpha=1)
        if modes is None:
            modes = tuple(range(run.first, run.first + len(run.inputs)))
        seconds = self.estimate(run, variant, device)
        return Kernel(self, run, variant, program, launch, arguments, seconds, modes, tile)


@cache
def kron_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct KronArguments for ``modes`` factors."""
    factors = "factors", FACTOR, (modes,)
    return struct("*x *y *previous", factors, "L R", ("alpha", dtype), ("beta", dtype))
