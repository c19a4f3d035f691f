"""What a family of kernels is: where it works, in which ways, and how long each of them takes.

An operation's families stand in one table. Whoever chooses loops over it, and asks no kernel of
what kind it is. `without` switches families off, to measure what they gain. Nothing here needs a
device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
    down : int
        Thread blocks along the second axis of the grid.
    carveout : int
        Percentage of the memory on chip that should be shared memory, -1 for no preference.
    """

    blocks: int
    threads: int
    resident: int
    shared_bytes: int
    workspace: int = 0
    down: int = 1
    carveout: int = -1


class KernelFamily(Protocol[Work, Variant, Kernel]):
    """One template of ``csrc/cuda`` with all its specialisations.

    ``Work`` is what is to be done, such as some modes of a Kron-Matmul. A ``Variant`` is one way to
    do it: a frozen dataclass of integers, so that tuning can store it. A ``Kernel`` is a variant
    for some work, with all that compiling and launching it take.
    """

    operation: str
    name: str
    variant_type: type[Variant]

    def accepts(self, work: Work, device: DeviceLimits) -> bool:
        """Whether there is a kernel for this work."""
        ...

    def variants(self, work: Work, device: DeviceLimits) -> Iterable[Variant]:
        """Return the variants worth comparing by their estimates."""
        ...

    def estimate(self, work: Work, variant: Variant, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""
        ...

    def kernel(self, work: Work, variant: Variant, device: DeviceLimits) -> Kernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        ...

    def program(self, kernel: Kernel) -> Program:
        """Return the template instance to compile."""
        ...

    def launch(self, kernel: Kernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        ...


class _Named(Protocol):
    operation: str
    name: str


Family = TypeVar("Family", bound=_Named)

_switched_off: ContextVar[frozenset[str]] = ContextVar(
    "families without kernels", default=frozenset()
)
_remembered: list[Callable[[], None]] = []


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Plan without some families, in this thread: for benchmarks and tests only.

    Plans that were made before keep their kernels.

    Parameters
    ----------
    *names : str
        Operation and family of each, such as "batch.unit_slices".
    """
    token = _switched_off.set(_switched_off.get() | set(names))
    _forget()
    try:
        yield
    finally:
        _switched_off.reset(token)
        _forget()


def enabled(families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Return those of a table that are not switched off. Planning alone asks for it."""
    off = _switched_off.get()
    if not off:
        return families
    return tuple(one for one in families if f"{one.operation}.{one.name}" not in off)


def forget_by(clear: Callable[[], None]) -> None:
    """Have `without` call ``clear``: of what remembers plans by no key that names the families."""
    _remembered.append(clear)


def _forget() -> None:
    for clear in _remembered:
        clear()
