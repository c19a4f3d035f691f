"""The list of sweeps of an operator, with their matrices, on a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from batchkron.backends import backend, own_apply, reserve
from batchkron.operators.sparse_grid.listing import SweepListing
from batchkron.operators.sparse_grid.schedule import Stage
from batchkron.operators.sparse_grid.spec import SweepSpec
from batchkron.spec.kron import Array

__all__ = ["SweepProgram"]


class SweepProgram:
    """The sum of an operator's terms as a list of sweeps, ready to run.

    ``spec``: the operator.
    ``stage``: its sweeps.
    ``num_sweeps``: number of sweeps.
    ``multiply_adds``: multiply-adds for one vector.
    ``num_edges``: number of pairs of cells that the sweeps couple.
    ``apply_fast``: the fast path of plans on a device.
    """

    def __init__(self, spec: SweepSpec, stage: Stage) -> None:
        listing = SweepListing(spec, stage)
        self._sums = listing.sums
        self.num_sweeps = len(self._sums)
        self.multiply_adds = listing.sweeps.multiply_adds
        self.num_edges = listing.sweeps.num_edges
        self._backend = backend()
        self._plan = self._backend.sweep_plan(listing.sweeps, self._matrices(spec))
        self.apply_fast = own_apply(self._plan)

    def _matrices(self, spec: SweepSpec) -> list[Array]:
        return [total.blocks(spec) for total in self._sums]

    def set_values(self, spec: SweepSpec) -> None:
        """Copy the matrices and coefficients of an operator of the same structure."""
        self._plan.set_values(self._matrices(spec))

    def link(self, places: Mapping[int, NDArray[np.int64]], count: int, spec: SweepSpec) -> Array:
        """Return a vector of ``count`` values, of which `gather` copies matrices of the sweeps.

        ``places`` has, for some 1-D operators, where in the vector the entries of their blocks are,
        (count, n, n). Raises ValueError if a sweep has the sum of one of these matrices and others.
        """
        parts = []
        for number, total in enumerate(self._sums):
            found = total.linked(places, spec)
            if found is not None:
                parts.append((number, *found))
        return self._plan.link(parts, count)

    def gather(self) -> None:
        """Copy the present values of the linked vector."""
        self._plan.gather()

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, cells, elements, inner) to alpha A x, added to y or overwriting it."""
        self._plan.run(x, y, outer, inner, alpha, accumulate)

    def bind(self, x: Array, y: Array) -> Callable[[], object] | None:
        """Return what writes A x to y in each call, if the plan has such passes."""
        make = getattr(self._plan, "bind", None)
        return None if make is None else make(x, y, 1, 1, 1, False)

    def reserve(self, outer: int, inner: int) -> None:
        """Allocate workspace for `run` on a device, so that it cannot fail after writing to y."""
        reserve(self._plan, outer, inner)
