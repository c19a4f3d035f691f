"""The ways to work on a batch list that tuning chooses from: variants of the list's family.

Pure arithmetic on sizes, no device needed. "The rule" is the tiling that is used without tuning,
`registers.register_tiling`; a choice's fields are called knobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, fields
from functools import partial
from typing import Any

from batchkron.backends.cuda.batch.kernel import BatchFamily, BatchKernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.tuning.search import Kernel

# How many numbers of the best variant so far are changed in each round of the search.
_CHANGED_NUMBERS = (1, 2, 1, 2, 4)


def written_variant(variant: Any) -> list[int]:
    """Return a variant as plain data."""
    return list(astuple(variant))


def read_variant(data: Any, family: BatchFamily) -> Any:
    """Return the variant that `written_variant` wrote, None for anything else."""
    variant_type = family.variant_type
    if not isinstance(data, list) or len(data) != len(fields(variant_type)):
        return None
    return variant_type(*data) if all(type(number) is int for number in data) else None


class BatchSpace:
    """All variants of a batch list's family, in the order in which they are worth a try."""

    def __init__(self, kernel: BatchKernel, device: DeviceLimits) -> None:
        """Take the kernel of the least estimate."""
        self._family, self._shape, self._device = kernel.family, kernel.shape, device
        self.rule = kernel.variant

    def kernels(self, choice: Any) -> tuple[Kernel, ...] | None:
        """Return what a variant is compiled to, None if it cannot run."""
        kernel = self._family.kernel(self._shape, choice, self._device)
        if kernel is None:
            return None
        how = kernel.launch(self._device)
        memory = how.shared_bytes, how.carveout
        return (Kernel(kernel.program(), how.threads, how.resident, *memory),)

    def steps(self) -> Iterator[Callable[[Any], Iterable[Any]]]:
        """Yield functions from the best variant so far to others that may be better.

        First those worth comparing by their estimates, then those near the best, few changes first.
        """
        yield lambda best: self._family.variants(self._shape, self._device)
        for changes in _CHANGED_NUMBERS:
            yield partial(self._near, changes)

    def _near(self, changes: int, best: Any) -> Iterable[Any]:
        return self._family.near(self._shape, best, changes, self._device)
