"""A kernel that is ready to be compiled and launched, and the families of such kernels.

Each operation has a table of its families: in order of preference, or with variants that are
compared by their estimated seconds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import Count
from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.spec.kron import Array

THREADS = 256
"""Threads of a thread block of kernels that go through elements; chosen by hand."""

Work = TypeVar("Work")


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The grid, threads and memory of a launch."""

    blocks: int  # thread blocks along the first axis of the grid
    threads: int  # threads of a thread block
    # thread blocks that a multiprocessor should hold, which bounds the registers of a thread
    resident: int
    shared_bytes: int  # bytes of shared memory of a thread block
    # bytes of device memory of the whole grid for what does not fit in shared memory
    workspace: int = 0
    down: int = 1  # thread blocks along the second axis of the grid
    # percentage of the on-chip memory to use as shared memory, -1 for no preference
    carveout: int = -1


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a family for given work."""

    family: Any  # a `Family` or `TimedFamily`
    work: Any  # what it computes, such as the sizes of a batch list
    variant: Any  # the choice among the family's kernels for this work; None if there is only one
    program: Program
    launch: LaunchShape
    # the kernel's arguments (1,), without addresses and scalars that a plan or a call fills in
    arguments: Array = field(compare=False)
    seconds: float = field(default=0.0, compare=False)  # estimated time of a launch, if compared
    # of a Kron-Matmul: the modes, in the order of the factors in the arguments
    modes: tuple[int, ...] = ()
    tile: Any = None  # the family's tiling, from which program and launch follow


@dataclass(eq=False)
class Family:
    """A kernel template of ``csrc/cuda`` and the choice of its template arguments."""

    operation: str
    name: str
    # ``kernel(work, device)`` returns the kernel, None where there is none for this work or others
    # are faster; ``kernel(work, device, variant)`` that of a variant
    kernel: Callable[..., Kernel | None]
    # whether it was faster at this work than the families before it
    is_better: Callable[[Any], bool] = lambda work: False


class TimedFamily(ABC, Generic[Work]):
    """A kernel template of ``csrc/cuda`` and the choice of its template arguments.

    ``Work`` is what to compute, such as some modes of a Kron-Matmul. A variant is one choice: a
    tuple of integers, so that tuning can store it; the only one where sizes decide all is empty.
    """

    operation: str
    name: str
    numbers: tuple[str, ...]
    """The names of a variant's integers."""
    variant_type: Callable[[Iterable[int]], Any] = tuple
    """Makes a variant of its integers: a plain tuple where they are few."""
    constants: ClassVar[dict[str, tuple[float, str]]] = {}
    """The constants of the estimated time, in nanoseconds: where a fit begins, and what each is."""

    def accepts(self, work: Work, device: DeviceLimits) -> bool:
        """Whether there is a kernel for this work."""
        return True

    @abstractmethod
    def variants(self, work: Work, device: DeviceLimits) -> Iterable[Any]:
        """Return the variants worth comparing by their estimates."""

    @abstractmethod
    def work(self, work: Work, variant: Any, device: DeviceLimits) -> SimpleNamespace | None:
        """Count what the kernel of a variant does; None if it does not fit."""

    @abstractmethod
    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch.

        ``work`` has the counts of one kernel or, as arrays, those of many; ``costs`` the constants
        of a card, of ``batchkron/backends/cuda/costs``: in nanoseconds, and rates in bytes per
        nanosecond.
        """

    @abstractmethod
    def kernel(self, work: Work, variant: Any, device: DeviceLimits) -> Kernel | None:
        """Return the kernel of a variant, None if it does not fit."""

    def estimate(self, work: Work, variant: Any, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""
        counts = self.work(work, variant, device)
        if counts is None:
            return math.inf
        return float(self.seconds(counts, costs_of(self, device.name)))

    def choose(self, work: Work, device: DeviceLimits) -> tuple[float, Any] | None:
        """Return the best variant and its estimated seconds; None where there is none."""
        if not self.accepts(work, device):
            return None
        timed = [(self.estimate(work, one, device), one) for one in self.variants(work, device)]
        best = min(timed, key=lambda way: way[0], default=(math.inf, None))
        return None if math.isinf(best[0]) else best

    def fastest(self, work: Work, device: DeviceLimits) -> Kernel | None:
        """Return the kernel of the variant that `choose` returns; None where there is none."""
        chosen = self.choose(work, device)
        return None if chosen is None else self.kernel(work, chosen[1], device)


Choice = tuple[float, TimedFamily[Any], Any]
"""Estimated seconds, a family, and its variant."""


def fastest_choice(
    families: Iterable[TimedFamily[Any]], work: Any, device: DeviceLimits
) -> Choice | None:
    """Return the choice of the least estimate, the first among equals; None if there is none."""
    chosen = ((family, family.choose(work, device)) for family in families)
    found = [(one[0], family, one[1]) for family, one in chosen if one]
    return min(found, key=lambda choice: choice[0], default=None)


def chosen_kernel(choice: Choice, work: Any, device: DeviceLimits) -> Kernel:
    """Return the kernel of a choice for this work."""
    _, family, variant = choice
    kernel = family.kernel(work, variant, device)
    assert kernel is not None, "what a family chooses fits"
    return kernel


@cache
def costs_of(family: TimedFamily[Any], device: str) -> SimpleNamespace:
    """Return a family's constants on a card (`costs_for`), those of a start if not measured."""
    start = {name: value for name, (value, _) in family.constants.items()}
    fitted = costs_for(device).families.get(family.operation, {}).get(family.name, {})
    return SimpleNamespace(**{**start, **fitted})


def record(layout: np.dtype[Any], **values: Any) -> Array:
    """Return arguments of this layout with these values, and zeros elsewhere."""
    arguments = np.zeros(1, layout)
    for name, value in values.items():
        arguments[name] = value
    return arguments


def first_kernel(families: tuple[Family, ...], work: Any, device: DeviceLimits) -> Kernel | None:
    """Return the kernel of the first family that has one and is not switched off, else None."""
    kernels: Iterable[Kernel | None] = (one.kernel(work, device) for one in enabled(families))
    return next(filter(None, kernels), None)
