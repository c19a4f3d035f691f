"""What a family of kernels is: where it works, in which ways, and how long each of them takes.

An operation's families stand in one table. Whoever chooses loops over it, and asks no kernel of
what kind it is. Nothing here needs a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program

Work = TypeVar("Work", contravariant=True)
Variant = TypeVar("Variant")
Kernel = TypeVar("Kernel")


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The thread blocks of a launch, threads of each, and memory.

    Attributes
    ----------
    blocks : int
        Thread blocks of the grid.
    threads : int
        Threads of a thread block.
    resident : int
        Thread blocks that a multiprocessor should hold at a time: it bounds the registers.
    shared_bytes : int
        Shared memory of a thread block, bytes.
    workspace : int
        Device memory of the whole grid for what does not fit there, bytes.
    """

    blocks: int
    threads: int
    resident: int
    shared_bytes: int
    workspace: int = 0


class KernelFamily(Protocol[Work, Variant, Kernel]):
    """One template of ``csrc/cuda`` with all its specialisations.

    ``Work`` is what is to be done, such as some modes of a Kron-Matmul. A ``Variant`` is one way to
    do it: a frozen dataclass of integers, so that tuning can store it. A ``Kernel`` is a variant
    for some work, with all that compiling and launching it take.
    """

    name: str
    variant_type: type[Variant]

    def accepts(self, work: Work, device: DeviceLimits) -> bool:
        """Whether there is a kernel for this work at all."""
        ...

    def variants(self, work: Work, device: DeviceLimits) -> Iterable[Variant]:
        """Return the ways that are worth comparing by their estimates."""
        ...

    def estimate(self, work: Work, variant: Variant, device: DeviceLimits) -> float:
        """Return how long a launch takes, seconds; infinite if the variant does not fit."""
        ...

    def kernel(self, work: Work, variant: Variant, device: DeviceLimits) -> Kernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        ...

    def program(self, kernel: Kernel) -> Program:
        """Return what is compiled."""
        ...

    def launch(self, kernel: Kernel, device: DeviceLimits) -> LaunchShape:
        """Return how it is launched."""
        ...
