"""The search space of autotuning for batch lists: the variants of one kernel family.

Pure arithmetic on sizes, no device needed. "The rule" is the variant that is used without tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, fields
from functools import partial
from typing import Any

from batchkron.backends.cuda.batch.kernel import BatchFamily, BatchKernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.tuning.search import Kernel

# How many numbers of the best variant so far are changed in each round of the search; chosen by
# hand.
_CHANGED_NUMBERS = (1, 2, 1, 2, 4)


def written_variant(variant: Any) -> list[int]:
    """Return a variant as a list of numbers, for the store."""
    return list(astuple(variant))


def read_variant(data: Any, family: BatchFamily) -> Any:
    """Return the variant that `written_variant` wrote, None for other data."""
    variant_type = family.variant_type
    if not isinstance(data, list) or len(data) != len(fields(variant_type)):
        return None
    return variant_type(*data) if all(type(number) is int for number in data) else None


class BatchSpace:
    """All variants of a batch list's family, the most promising ones first."""

    def __init__(self, kernel: BatchKernel, device: DeviceLimits) -> None:
        """Take the kernel that is used without tuning."""
        self._family, self._shape, self._device = kernel.family, kernel.shape, device
        self.rule = kernel.variant

    def kernels(self, choice: Any) -> tuple[Kernel, ...] | None:
        """Return the kernels to compile for a variant, None if it does not fit."""
        kernel = self._family.kernel(self._shape, choice, self._device)
        if kernel is None:
            return None
        how = kernel.launch(self._device)
        memory = how.shared_bytes, how.carveout
        return (Kernel(kernel.program(), how.threads, how.resident, *memory),)

    def steps(self) -> Iterator[Callable[[Any], Iterable[Any]]]:
        """Yield functions that map the best variant so far to candidates.

        The first one gives the variants that the family compares by estimates; the others change
        a few numbers of the best one.
        """
        yield lambda best: self._family.variants(self._shape, self._device)
        for changes in _CHANGED_NUMBERS:
            yield partial(self._near, changes)

    def _near(self, changes: int, best: Any) -> Iterable[Any]:
        return self._family.near(self._shape, best, changes, self._device)
