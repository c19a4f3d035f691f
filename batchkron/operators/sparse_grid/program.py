"""The sweeps of an operator as one list for a backend, and the matrices that they multiply by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batchkron.backends import backend, own_apply
from batchkron.operators.couplings import Ids, narrow
from batchkron.operators.sparse_grid.schedule import Branch, Pattern, Stage
from batchkron.operators.sparse_grid.spec import SweepSpec
from batchkron.spec.kron import Array
from batchkron.spec.sweeps import SweepList, SweepPart, SweepStep, SweepVector

__all__ = ["SweepProgram"]


class _Share(NamedTuple):
    """What one matrix adds to the blocks of a sweep: ``blocks[target] += c_term A[source]``."""

    matrix: int  # -1 for the identity
    term: int  # -1 for no coefficient
    source: Ids | slice
    target: Ids | slice


class _Sum(NamedTuple):
    """The matrices that one sweep multiplies by, Σ c_t A_t block by block."""

    number: int
    size: int
    shares: tuple[_Share, ...]

    def blocks(self, spec: SweepSpec) -> Array:
        """Return the sum, (number, n, n); it may be one of the matrices."""
        if len(self.shares) == 1 and self.shares[0].matrix >= 0:  # which has them all, in order
            return self._scaled(self.shares[0], spec)
        result = np.zeros((self.number, self.size, self.size), spec.dtype)
        for share in self.shares:
            result[share.target] += self._scaled(share, spec)
        return result

    def _scaled(self, share: _Share, spec: SweepSpec) -> Array:
        """Return what a share adds, (entries, n, n)."""
        if share.matrix < 0:
            found = np.eye(self.size, dtype=spec.dtype)
        else:
            found = spec.matrices[share.matrix].blocks[share.source]
        return found if share.term < 0 else found * spec.coefficients[share.term]


def _share(matrix: int, term: int, places: Ids, used: Ids) -> _Share:
    """Keep those of a matrix's blocks that are used, by their place among these."""
    found = np.minimum(np.searchsorted(used, places), len(used) - 1)
    source = np.flatnonzero(used[found] == places)
    return _Share(matrix, term, _range(source, len(places)), _range(found[source], len(used)))


def _range(chosen: Ids, count: int) -> Ids | slice:
    """Return chosen numbers, or the slice of all below a count, which needs no memory."""
    is_all = len(chosen) == count and bool((np.diff(chosen) == 1).all())
    return slice(None) if is_all else narrow(chosen)


def _ranks(numbers: Ids) -> tuple[Ids, Ids]:
    """Return the distinct numbers, ascending, and the place of each number among these."""
    used = np.flatnonzero(np.bincount(numbers))
    return used, _places(used)[numbers]


def _places(cells: Ids) -> Ids:
    """Return a table of the places of ascending cells; of others it says nothing."""
    places = narrow(np.arange(len(cells)))
    table = np.empty(cells[-1] + 1, places.dtype)
    table[cells] = places
    return table


class _Vector(NamedTuple):
    """A vector between sweeps: its number, its cells, and where its memory ends, in blocks."""

    number: int
    cells: Ids
    stop: int = 0


class SweepProgram:
    """The sum of an operator's terms as a list of sweeps, ready to run.

    Parameters
    ----------
    spec : SweepSpec
        The operator.
    stage : Stage
        Its sweeps.

    Attributes
    ----------
    num_sweeps : int
        How many sweeps a run takes.
    multiply_adds : int
        How many multiply-adds a run takes on one vector.
    num_edges : int
        How many pairs of cells the sweeps hold.
    apply_fast : callable, optional
        A quick `apply` of plans on a device.
    """

    def __init__(self, spec: SweepSpec, stage: Stage) -> None:
        cells = np.arange(len(spec.cells))
        self._vectors = [SweepVector(0, len(cells)), SweepVector(0, len(cells))]
        self._steps: list[SweepStep] = []
        self._sums: list[_Sum] = []
        self._sizes = spec.sizes
        self._emit(stage, _Vector(0, cells), _Vector(1, cells), 0, False)
        listed = SweepList(spec.sizes, tuple(self._vectors), tuple(self._steps), spec.dtype)
        self.num_sweeps = len(self._sums)
        self.multiply_adds = listed.multiply_adds
        self.num_edges = listed.num_edges
        self._backend = backend()
        self._plan = self._backend.sweep_plan(listed, self._matrices(spec))
        self.apply_fast = own_apply(self._plan)
        self._steps.clear()  # the plan has its own copy

    def _matrices(self, spec: SweepSpec) -> list[Array]:
        return [total.blocks(spec) for total in self._sums]

    def set_values(self, spec: SweepSpec) -> None:
        """Take the matrices and coefficients of an operator of the same structure."""
        self._plan.set_values(self._matrices(spec))

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, cells, elements, inner) to alpha A x, added to y or overwriting it."""
        self._plan.run(x, y, outer, inner, alpha, accumulate)

    def reserve(self, outer: int, inner: int) -> None:
        """Allocate on a device what `run` will need, so that it cannot fail halfway."""
        self._backend.reserve(self._plan, outer, inner)

    def _emit(self, stage: Stage, x: _Vector, y: _Vector, free: int, adds: bool) -> None:
        """Append a stage's steps from x to y; memory is free from `free` on.

        All that is read of x itself goes into one step at the end, together with the last lower
        part: each block of y is then written once.
        """
        lowers = [branch for branch in stage.branches if branch.part == "lower"]
        for branch in stage.branches:
            if branch.part == "upper":
                between = self._between(branch.rest.needed, free)
                self._append(between, False, [self._part(branch.sweep, x, between)])
                self._emit(branch.rest, between, y, between.stop, adds)
                adds = True
        for branch in lowers[:-1]:
            self._append(y, adds, [self._lower(branch, x, y, free)])
            adds = True
        parts = [self._lower(branch, x, y, free) for branch in lowers[-1:]]
        parts += [self._part(sweep, x, y) for sweep in stage.sweeps]
        if parts:
            self._append(y, adds, parts)

    def _lower(self, branch: Branch, x: _Vector, y: _Vector, free: int) -> SweepPart:
        """Append what makes the vector that a lower part reads, and return that part."""
        between = self._between(branch.rest.made, free)
        self._emit(branch.rest, x, between, between.stop, False)
        return self._part(branch.sweep, between, y)

    def _between(self, cells: Array, free: int) -> _Vector:
        """Return a new vector in the scratch memory that has the marked cells."""
        chosen = np.flatnonzero(cells)
        self._vectors.append(SweepVector(free, len(chosen)))
        return _Vector(len(self._vectors) - 1, chosen, free + len(chosen))

    def _part(self, pattern: Pattern, source: _Vector, target: _Vector) -> SweepPart:
        edges, size = pattern.edges, self._sizes[pattern.mode]
        used, ids = _ranks(edges.blocks)
        shares = [
            _share(matrix, term, place, used)
            for (matrix, term), place in zip(pattern.pairs, pattern.places, strict=True)
        ]
        self._sums.append(_Sum(len(used), size, tuple(shares)))
        counts = np.bincount(edges.outputs, minlength=target.cells[-1] + 1)[target.cells]
        return SweepPart(
            source.number,
            pattern.mode,
            len(used),
            narrow(np.concatenate(([0], np.cumsum(counts)))),
            ids,
            _places(source.cells)[edges.inputs],
        )

    def _append(self, target: _Vector, adds: bool, parts: Sequence[SweepPart]) -> None:
        self._steps.append(SweepStep(target.number, adds, tuple(parts)))
