"""The search space of autotuning for Kron-Matmuls: runs of modes, a family and variant for each.

"The rule" is the choice that is used without tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import permutations, zip_longest
from typing import Any

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kron.families import FAMILIES, FAMILY_OF
from batchkron.backends.cuda.kron.kernel import KronFamily
from batchkron.backends.cuda.kron.registers.passes import cuts
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun
from batchkron.backends.cuda.tuning.search import Launched

# Numbers below were chosen by hand.
_MAX_PERMUTED = 3  # largest number of runs that are tried in every order
_MAX_CUTS = 32  # largest number of divisions into runs that are tried with each family
# Arguments (changes, longer) of `KronFamily.near` for each round of the search: near the best
# choice first, then further away.
_NEIGHBOURHOODS = ((1, 1.3), (2, 2.0), (1, 1.3), (2, 2.0), (5, 4.0))


@dataclass(frozen=True, slots=True)
class RunChoice:
    """The kernel of the modes ``low`` to ``high - 1``: a family and its variant."""

    low: int
    high: int
    family: str
    variant: Any


KronChoice = tuple[RunChoice, ...]


def choice_of(kernels: Iterable[Kernel]) -> KronChoice:
    """Return the choice that gives these kernels."""
    return tuple(
        RunChoice(
            one.work.first, one.work.first + len(one.work.inputs), one.family.name, one.variant
        )
        for one in kernels
    )


def chosen_kernels(
    choice: KronChoice, product: ModeRun, device: DeviceLimits
) -> tuple[Kernel, ...] | None:
    """Return the kernels of a choice, None if it does not fit the product or the device."""
    runs = [(one.low, one.high) for one in choice]
    modes = [mode for low, high in runs for mode in range(low, high)]
    if tuple(sorted(modes)) not in product.multiplied:
        return None
    if any(low >= high for low, high in runs):
        return None
    found: list[Kernel] = []
    for run, one in zip(product.parts(runs), choice, strict=True):
        kernel = FAMILY_OF[one.family].kernel(run, one.variant, device)
        if kernel is None:
            return None
        found.append(kernel)
    return tuple(found)


def written_kron_choice(choice: KronChoice) -> list[list[Any]]:
    """Return a choice as lists of names and numbers, for the store."""
    return [[c.family, c.low, c.high, *c.variant] for c in choice]


def read_kron_choice(data: Any) -> KronChoice | None:
    """Return the choice that `written_kron_choice` wrote, None for other data."""
    if not isinstance(data, list) or not data:
        return None
    found = []
    for one in data:
        named = isinstance(one, list) and len(one) >= 3 and isinstance(one[0], str)
        family = FAMILY_OF.get(one[0]) if named else None
        if family is None or len(one) != 3 + len(family.numbers):
            return None
        if not all(type(number) is int for number in one[1:]):
            return None
        found.append(RunChoice(one[1], one[2], family.name, family.variant_type(one[3:])))
    return tuple(found)


class KronSpace:
    """All choices for a Kron-Matmul on a device, the most promising ones first."""

    def __init__(self, product: ModeRun, device: DeviceLimits, rule: KronChoice) -> None:
        self.product, self.device, self.rule = product, device, rule

    def kernels(self, choice: KronChoice) -> tuple[Launched, ...] | None:
        """Return the kernels to compile for a choice, None if it does not fit."""
        kernels = chosen_kernels(choice, self.product, self.device)
        return None if kernels is None else tuple((k.program, k.launch) for k in kernels)

    def steps(self) -> Iterator[Callable[[KronChoice], Iterable[KronChoice]]]:
        """Yield functions that map the best choice so far to candidates.

        The first one divides the modes into other runs, with each family's fastest variants by
        estimate. The others take another family or variant for one run, the nearest ones first.
        """
        yield self._other_runs
        for changes, longer in _NEIGHBOURHOODS:
            for index in range(len(self.product.inputs)):
                yield partial(self._other_variants, index, changes, longer)

    def _orders(self, parts: int) -> Iterator[list[tuple[int, int]]]:
        """Yield the divisions of the modes into ``parts`` runs, in the orders that are tried."""
        product = self.product
        if len(product.inputs) != len(product.multiplied[-1]):
            return  # identities of any size divide the modes: the rule's runs are the only ones
        square = product.inputs == product.outputs
        for cut in cuts(len(product.inputs), parts):
            if square or parts > _MAX_PERMUTED:
                yield list(reversed(cut))
            else:
                yield from map(list, permutations(cut))

    def _other_runs(self, best: KronChoice) -> Iterator[KronChoice]:
        for choices in zip_longest(*map(self._runs, FAMILIES)):
            yield from (choice for choice in choices if choice is not None)

    def _runs(self, family: KronFamily) -> Iterator[KronChoice]:
        """Yield divisions into the fewest runs that a family has kernels for, and into one more."""
        fewest = tried = 0
        for parts in range(1, len(self.product.inputs) + 1):
            if fewest and parts > fewest + 1:
                return
            found = []
            for order in self._orders(parts):
                kernels = self._of_family(family, order)
                if kernels is not None:
                    found.append((sum(one.seconds for one in kernels), choice_of(kernels)))
            for _, choice in sorted(found, key=lambda way: way[0]):
                if tried == _MAX_CUTS:
                    return
                fewest, tried = fewest or parts, tried + 1
                yield choice

    def _of_family(
        self, family: KronFamily, order: list[tuple[int, int]]
    ) -> tuple[Kernel, ...] | None:
        found = []
        for run in self.product.parts(order):
            kernel = family.fastest(run, self.device)
            if kernel is None:
                return None
            found.append(kernel)
        return tuple(found)

    def _other_variants(
        self, index: int, changes: int, longer: float, best: KronChoice
    ) -> Iterator[KronChoice]:
        """Yield choices with another kernel for run ``index``, those of its own family first."""
        if index >= len(best):
            return
        one, device = best[index], self.device
        run = list(self.product.parts((c.low, c.high) for c in best))[index]
        for family in sorted(FAMILIES, key=lambda family: family.name != one.family):
            if not family.accepts(run, device):
                continue
            centre = one.variant
            if family.name != one.family:
                fastest = family.fastest(run, device)
                if fastest is None:
                    continue
                centre = fastest.variant
                yield self._replaced(best, index, family, centre)
            for variant in family.near(run, centre, changes, longer, device):
                yield self._replaced(best, index, family, variant)

    def _replaced(
        self, best: KronChoice, index: int, family: KronFamily, variant: Any
    ) -> KronChoice:
        one = best[index]
        choice = RunChoice(one.low, one.high, family.name, variant)
        return (*best[:index], choice, *best[index + 1 :])
