"""The search space of autotuning for batch lists: the variants of kernels in registers.

Pure arithmetic on sizes, no device needed. "The rule" is the variant that is used without tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, fields
from functools import partial
from typing import Any

from batchkron.backends.cuda.batch.registers import (
    RegisterVariant,
    near_variants,
    register_variants,
    registers_kernel,
)
from batchkron.backends.cuda.kernel import Kernel as DeviceKernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.tuning.search import Launched

# How many numbers of the best variant so far are changed in each round of the search; chosen by
# hand.
_CHANGED_NUMBERS = (1, 2, 1, 2, 4)


def written_variant(variant: RegisterVariant) -> list[int]:
    """Return a variant as a list of numbers, for the store."""
    return list(astuple(variant))


def read_variant(data: Any) -> RegisterVariant | None:
    """Return the variant that `written_variant` wrote, None for other data."""
    if not isinstance(data, list) or len(data) != len(fields(RegisterVariant)):
        return None
    return RegisterVariant(*data) if all(type(number) is int for number in data) else None


class BatchSpace:
    """All variants for a batch list, the most promising ones first."""

    def __init__(self, kernel: DeviceKernel, device: DeviceLimits) -> None:
        """Take the kernel that is used without tuning."""
        self._shape, self._device = kernel.work, device
        self.rule = kernel.variant

    def kernels(self, choice: RegisterVariant) -> tuple[Launched, ...] | None:
        """Return the kernels to compile for a variant, None if it does not fit."""
        kernel = registers_kernel(self._shape, self._device, choice)
        return None if kernel is None else ((kernel.program, kernel.launch),)

    def steps(self) -> Iterator[Callable[[RegisterVariant], Iterable[RegisterVariant]]]:
        """Yield functions that map the best variant so far to candidates.

        The first one gives a variant for each number of elements that a thread may hold; the others
        change a few numbers of the best one.
        """
        yield lambda best: register_variants(self._shape, self._device)
        for changes in _CHANGED_NUMBERS:
            yield partial(self._near, changes)

    def _near(self, changes: int, best: RegisterVariant) -> Iterable[RegisterVariant]:
        return near_variants(self._shape, best, changes, self._device)
