"""Families of kernels whose variants are compared by their estimated seconds.

No device is needed here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from batchkron.backends.cuda.costs import constants_for
from batchkron.backends.cuda.estimates import Count
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

Work = TypeVar("Work")
Kernel = TypeVar("Kernel")


class TimedFamily(ABC, Generic[Work, Kernel]):
    """A kernel template of ``csrc/cuda`` and the choice of its template arguments.

    ``Work`` is what to compute, such as some modes of a Kron-Matmul. A variant is one choice: a
    frozen dataclass of integers, so that tuning can store it.
    """

    operation: str
    name: str
    variant_type: type[Any]

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
        return float(self.seconds(counts, constants_for(device.name, self.operation, self.name)))

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
