"""The sweeps of an operator as one list: its vectors, its matrices, and its run on a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.backends import backend, own_apply, reserve
from batchkron.operators.couplings import Ids, narrow
from batchkron.operators.sparse_grid.added_cells import extended
from batchkron.operators.sparse_grid.order import Cells, sweep_orders
from batchkron.operators.sparse_grid.schedule import Stage, Sweep, needed_sweeps
from batchkron.operators.sparse_grid.spec import SweepSpec
from batchkron.spec.kron import Array
from batchkron.spec.sweeps import SweepList, SweepPart, SweepStep, SweepVector

__all__ = ["SweepListing", "SweepProgram", "SweepSum", "identity_sum", "list_sweeps"]

_Share: TypeAlias = tuple[int, int, Ids | slice, Ids | slice]
"""The contribution of one matrix to a sweep, ``blocks[target] += c_term A[source]``: the matrix, -1
for the identity; the term, -1 for the coefficient 1; source and target."""


class SweepSum(NamedTuple):
    """The matrix of one sweep, Σ c_t A_t, of which ``number`` blocks of ``size`` are used."""

    number: int
    size: tuple[int, int]
    shares: tuple[_Share, ...]

    def blocks(self, spec: SweepSpec) -> Array:
        """Return the blocks of the sum, (number, *size), perhaps one matrix's own array."""
        if len(self.shares) == 1 and self.shares[0][0] >= 0:  # all blocks are this matrix's
            return self._scaled(self.shares[0], spec)
        result = np.zeros((self.number, *self.size), spec.dtype)
        for share in self.shares:
            result[share[-1]] += self._scaled(share, spec)
        return result

    def linked(
        self, places: Mapping[int, NDArray[np.int64]], spec: SweepSpec
    ) -> tuple[NDArray[np.int64], complex] | None:
        """Return where the sum's entries are, (number, n, n), and their factor; None if none are.

        ``places`` has, for some matrices, where the entries of their blocks are, (count, n, n).
        Raises ValueError if the sum has other matrices, too.
        """
        if all(matrix not in places for matrix, *_ in self.shares):
            return None
        if len(self.shares) > 1:
            raise ValueError("a sweep has the sum of a linked 1-D operator and another one")
        ((matrix, term, source, _),) = self.shares
        return places[matrix][source], 1 if term < 0 else spec.coefficients[term]

    def _scaled(self, share: _Share, spec: SweepSpec) -> Array:
        """Return the blocks that a share adds, (entries, n, n)."""
        matrix, term, source, _ = share
        if matrix < 0:
            found = np.eye(*self.size, dtype=spec.dtype)
        else:
            found = spec.matrices[matrix].blocks[source]
        scale = 1 if term < 0 else spec.coefficients[term]
        return found if scale == 1 else found * scale  # saves a copy in each update


def identity_sum(size: int) -> SweepSum:
    """Return a sum that is one identity matrix."""
    return SweepSum(1, (size, size), ((-1, -1, slice(None), slice(None)),))


def _share(matrix: int, term: int, places: Ids, used: Ids) -> _Share:
    """Return the share of a matrix, with those of its blocks that are used.

    ``places`` are the sum's blocks to which the matrix's blocks are added, ``used`` the sum's
    blocks that the sweep uses.
    """
    found = np.minimum(np.searchsorted(used, places), len(used) - 1)
    source = np.flatnonzero(used[found] == places)
    return matrix, term, _range(source, len(places)), _range(found[source], len(used))


def _range(chosen: Ids, count: int) -> Ids | slice:
    """Return the chosen numbers; if they are all below ``count``, a slice, which saves memory."""
    is_all = len(chosen) == count and bool((np.diff(chosen) == 1).all())
    return slice(None) if is_all else narrow(chosen)


def _ranks(numbers: Ids) -> tuple[Ids, Ids]:
    """Return the distinct numbers, ascending, and the rank of each number among them."""
    used = np.flatnonzero(np.bincount(numbers))
    return used, _places(used)[numbers]


def _places(cells: Ids) -> Ids:
    """Return a table with the rank of each of the ascending cells; other entries are undefined."""
    places = narrow(np.arange(len(cells)))
    table = np.empty(cells[-1] + 1, places.dtype)
    table[cells] = places
    return table


class SweepListing:
    """The sum of an operator's terms as a list of sweeps.

    ``spec``: the operator.
    ``stage``: its sweeps.
    ``sums``: the matrices of each part of each step, in their order.
    ``cells`` (tuple of ndarray of int, one for each vector of ``sweeps``): the cells of its blocks,
      ascending: numbers of the operator's cells, and from their number on of cells that were added
      to its grid.
    """

    def __init__(self, spec: SweepSpec, stage: Stage) -> None:
        cells = np.arange(len(spec.cells))
        self._vectors = [SweepVector(0, len(cells)), SweepVector(0, len(cells))]
        self._cells: list[Ids] = [cells, cells]
        self._steps: list[SweepStep] = []
        self._sums: list[SweepSum] = []
        self._sizes = list(zip(spec.sizes, spec.given, strict=True))
        self._emit(stage, 0, 1, 0, False)
        if spec.plus_identity:
            self._add_identity()
        lists = tuple(self._vectors), tuple(self._steps)
        self.sweeps = SweepList(spec.sizes, spec.given, *lists, spec.dtype)
        self.sums, self.cells = tuple(self._sums), tuple(self._cells)

    def _emit(self, stage: Stage, x: int, y: int, free: int, adds: bool) -> None:
        """Append the steps of a stage from the vector with number x to that with number y.

        Scratch memory is free from block `free` on.

        All sweeps that read x itself go into one step at the end, together with the last lower
        part: that step then writes each block of y only once.
        """
        for sweep, rest in stage.uppers:
            between = self._between(rest.needed, free)
            self._append(between, False, [self._part(sweep, x, between)])
            self._emit(rest, between, y, self._end(between), adds)
            adds = True
        for lower in stage.lowers[:-1]:
            self._append(y, adds, [self._lower(*lower, x, y, free)])
            adds = True
        parts = [self._lower(*lower, x, y, free) for lower in stage.lowers[-1:]]
        parts += [self._part(sweep, x, y) for sweep in stage.sweeps]
        if parts:
            self._append(y, adds, parts)

    def _lower(self, sweep: Sweep, rest: Stage, x: int, y: int, free: int) -> SweepPart:
        """Append the steps that compute the input of a lower part, and return that part."""
        between = self._between(rest.made, free)
        self._emit(rest, x, between, self._end(between), False)
        return self._part(sweep, between, y)

    def _between(self, cells: Array, free: int) -> int:
        """Return the number of a new vector in the scratch memory, with the marked cells."""
        chosen = np.flatnonzero(cells)
        self._vectors.append(SweepVector(free, len(chosen)))
        self._cells.append(chosen)
        return len(self._vectors) - 1

    def _end(self, vector: int) -> int:
        """Return the end of a vector's scratch memory, in blocks."""
        start, blocks = self._vectors[vector]
        return start + blocks

    def _part(self, sweep: Sweep, source: int, target: int) -> SweepPart:
        edges, size = sweep.edges, self._sizes[sweep.mode]
        used, ids = _ranks(edges.blocks)
        shares = [
            _share(matrix, term, place, used)
            for (matrix, term), place in zip(sweep.pairs, sweep.places, strict=True)
        ]
        self._sums.append(SweepSum(len(used), size, tuple(shares)))
        cells = self._cells[target]
        counts = np.bincount(edges.outputs, minlength=cells[-1] + 1)[cells]
        return SweepPart(
            source,
            sweep.mode,
            len(used),
            narrow(np.concatenate(([0], np.cumsum(counts)))),
            ids,
            _places(self._cells[source])[edges.inputs],
        )

    def _add_identity(self) -> None:
        """Let the first step that writes y add x; without one, let a step do that alone."""
        for number, step in enumerate(self._steps):
            if step.target == 1:
                self._steps[number] = step._replace(adds_x=True)
                return
        self._steps.append(SweepStep(1, False, (), adds_x=True))

    def _append(self, target: int, adds: bool, parts: Sequence[SweepPart]) -> None:
        self._steps.append(SweepStep(target, adds, tuple(parts)))


def list_sweeps(spec: SweepSpec) -> tuple[SweepListing, Ids]:
    """Return the list of sweeps of an operator that has not been built, and its cells.

    The operator's cells come first, then those that were added to its grid.
    """
    grid = Cells(spec.cells, {})
    ordered = sweep_orders(spec, grid)
    hull = extended(grid, ordered, spec.matrices, {})
    return SweepListing(spec, needed_sweeps(spec, ordered, hull, len(grid), {})), hull.cells


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
