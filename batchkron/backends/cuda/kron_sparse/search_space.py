"""The search space of autotuning for products with Kronecker-sparse matrices.

"The rule" is the way of least estimated time, which is used without tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_family import enabled, is_enabled
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.kron_sparse.kernel import WORD, SparseShape
from batchkron.backends.cuda.kron_sparse.library import LIBRARY, library_products
from batchkron.backends.cuda.kron_sparse.transposed import (
    TRANSPOSED,
    DirectWay,
    Way,
    kernels_of,
    part_sizes,
    seconds_of,
    transposed_product,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.tuning.search import Launched

WayChoice = tuple[str | int, ...]
"""The name of a family and a variant, or cuBLAS and how values are stored; with "transposed"
before it if vectors are brought into another order."""

_LIBRARY, _TRANSPOSED = "library", "transposed"
# Numbers below were chosen by hand.
_KERNELS = 64  # of each order of the vectors' elements that are tried, at most
_LONGER = 3.0  # estimates over the least one, beyond which none is tried


def choice_of(way: Way) -> WayChoice:
    """Return the choice that gives a way."""
    if isinstance(way, tuple):
        return _TRANSPOSED, *choice_of(way[0].product)
    if isinstance(way, Kernel):
        return way.family.name, *way.variant
    return _LIBRARY, way.stored


def read_choice(data: Any) -> WayChoice | None:
    """Return a stored choice, None for data that are no list of names and numbers."""
    sound = isinstance(data, list) and data and isinstance(data[0], str)
    return tuple(data) if sound and all(type(one) in (str, int, bool) for one in data) else None


def way_of(choice: WayChoice, shape: SparseShape, device: DeviceLimits) -> Way | None:
    """Return the way of a choice, None if it does not fit or is switched off."""
    if choice[0] != _TRANSPOSED:
        return _direct_way(choice, shape, device)
    if not is_enabled(TRANSPOSED):
        return None
    return transposed_product(shape, lambda one: _direct_way(choice[1:], one, device), device)


def _direct_way(choice: WayChoice, shape: SparseShape, device: DeviceLimits) -> DirectWay | None:
    kind, numbers = choice[:1], choice[1:]
    if kind == (_LIBRARY,):
        ways = library_products(shape, device) if is_enabled(LIBRARY) else ()
        return next((one for one in ways if (one.stored,) == numbers), None)
    for family in enabled(FAMILIES):
        if kind == (family.name,):
            possible = (one for one in family.variants(shape, device) if tuple(one) == numbers)
            variant = next(possible, None)
            return None if variant is None else family.kernel(shape, variant, device)
    return None


class SparseSpace:
    """The ways for a product on a device, those of the least estimated time first."""

    def __init__(self, shape: SparseShape, device: DeviceLimits) -> None:
        self._shape, self._device = shape, device
        rule = fastest_way(shape, device)
        self.rule = choice_of(rule)
        self.ways: dict[WayChoice, Way] = {self.rule: rule}

    def kernels(self, choice: WayChoice) -> tuple[Launched, ...]:
        """Return the kernels of a choice, all of which fit."""
        return tuple((one.program, one.launch) for one in kernels_of(self.ways[choice]))

    def steps(self) -> Iterator[Callable[[WayChoice], Iterable[WayChoice]]]:
        """Yield one function, whose candidates do not depend on the best so far."""
        yield lambda best: self._candidates()

    def _candidates(self) -> list[WayChoice]:
        shape, device = self._shape, self._device
        found = _likely(shape, device)
        if sizes := part_sizes(shape):
            turned = replace(shape, a=shape.a * shape.d, d=1, outer=sizes[0], alignment=WORD)
            found += [(_TRANSPOSED, *choice) for choice in _likely(turned, device)]
        for choice in found:
            way = way_of(choice, shape, device)
            if way is not None:
                self.ways.setdefault(choice, way)
        return sorted(self.ways, key=lambda choice: seconds_of(self.ways[choice]))


def _likely(shape: SparseShape, device: DeviceLimits) -> list[WayChoice]:
    """Return all products by cuBLAS, and the kernels whose estimates are not far from the least."""
    found = [
        (family.estimate(shape, variant, device), (family.name, *variant))
        for family in enabled(FAMILIES)
        if family.accepts(shape, device)
        for variant in family.variants(shape, device)
    ]
    found.sort(key=lambda one: one[0])
    near = [choice for seconds, choice in found[:_KERNELS] if seconds <= _LONGER * found[0][0]]
    if is_enabled(LIBRARY):
        near += [choice_of(one) for one in library_products(shape, device)]
    return near
