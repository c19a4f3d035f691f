"""Kernels of Kron-Matmuls for one factor of any size and dtype, with a thread for each result.

    time = launch + slowest(a thread's multiply-adds, memory)

The kernel's contract is in ``csrc/cuda/kron/direct.cuh``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron.kernel import KronFamily
from batchkron.backends.cuda.runtime.hardware import MAX_RESIDENT_THREADS, DeviceLimits
from batchkron.backends.cuda.runtime.program import SCALARS, Program, template_type
from batchkron.backends.cuda.steps import ModeRun

_THREADS = (128, 256)  # of a thread block


@dataclass(frozen=True, slots=True)
class DirectVariant:
    """The threads of a thread block."""

    threads: int


class Direct(KronFamily):
    """Kernels of one factor each, of any size and dtype."""

    name = "direct"
    variant_type = DirectVariant
    constants: ClassVar = {
        "launch": (2000, "a kernel launch in a CUDA graph"),
        "multiply_add": (300, "a multiply-add with its two loads on a full multiprocessor"),
        "memory_rate": (3000, "bandwidth of memory, bytes per nanosecond"),
        "sharpness": (2, "see `slowest`"),
    }

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether the run is one mode."""
        return len(run.inputs) == 1

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[DirectVariant]:
        """Return all numbers of threads."""
        return [DirectVariant(threads) for threads in _THREADS]

    def work(
        self, run: ModeRun, variant: DirectVariant, device: DeviceLimits
    ) -> SimpleNamespace | None:
        """Count the multiply-adds of a thread in turn, and bytes read and written."""
        if not self.accepts(run, device) or variant.threads not in _THREADS:
            return None
        (C,) = run.inputs
        threads = MAX_RESIDENT_THREADS * device.multiprocessors
        turns = ceil_div(run.results, threads)
        return SimpleNamespace(multiply_adds=C * turns, moved=run.bytes)

    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch."""
        busy = costs.multiply_add * work.multiply_adds
        total = costs.launch + slowest(costs.sharpness, busy, work.moved / costs.memory_rate)
        return total * NANOSECOND

    def kernel(self, run: ModeRun, variant: DirectVariant, device: DeviceLimits) -> Kernel | None:
        """Return the kernel of a variant, None if there is no such kernel."""
        if self.work(run, variant, device) is None:
            return None
        ((C,), (K,)), threads = (run.inputs, run.outputs), variant.threads
        resident = MAX_RESIDENT_THREADS // threads
        blocks = min(ceil_div(run.results, threads), resident * device.multiprocessors)
        expression = template_type("kron_direct", SCALARS[run.dtype], C, K, threads)
        program = Program("cuda/kron/direct.cuh", expression)
        return self.made(run, variant, device, program, LaunchShape(blocks, threads, resident, 0))
