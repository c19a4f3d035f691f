"""The sweeps of a sum of terms: those with which terms begin in common are done only once.

Each sweep is restricted to the cells that are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Connections, Ids, Part, narrow
from batchkron.operators.sparse_grid.fibres import Edges
from batchkron.operators.sparse_grid.order import Cells, SweepOrder
from batchkron.operators.sparse_grid.spec import SweepSpec

__all__ = ["MatrixSums", "Stage", "Sweep", "needed_sweeps", "passed"]

ModeMatrix: TypeAlias = tuple[int, int]  # a mode, and the number of its matrix
Mask: TypeAlias = NDArray[np.bool_]  # one entry per cell

# Limit of the bytes of all stages' masks, and so of the number of stages: terms of six modes have
# fewer than 200 stages. Chosen by hand.
_MAX_MASK_BYTES = 1 << 32


_SumOfMatrices: TypeAlias = tuple[Ids, Connections, tuple[Ids, ...]]
"""Of a sum of matrices: the 1-D cells of the identity, if it is one of them; the pairs of cells
that it couples; and for each matrix the sum's blocks to which its blocks are added."""
MatrixSums: TypeAlias = dict[tuple[int, tuple[int, ...]], _SumOfMatrices]
"""Sums of matrices by (mode, numbers of the matrices)."""


class Sweep(NamedTuple):
    """A sweep: the sum of c_term A_matrix along one mode, as pairs of coupled cells.

    ``edges``: pairs of coupled cells; their blocks are those of the sum.
    ``pairs`` (tuple of (matrix, term)): the summands; matrix -1 is the identity, term -1 the
      coefficient 1.
    ``places``: for each pair, the block of the sum to which each of the matrix's blocks is added.
    """

    mode: int
    edges: Edges
    pairs: tuple[tuple[int, int], ...]
    places: tuple[Ids, ...]

    def where(self, kept: Mask) -> Sweep:
        """Return the sweep with the kept edges only."""
        if kept.all():
            return self
        return self._replace(edges=Edges(*(part[kept] for part in self.edges)))


@dataclass
class Stage:
    """The work that computes one vector from another: the sum of sweeps and parts of split modes.

    ``sweeps``: sweeps along modes that are not split.
    ``uppers``, ``lowers`` (list of (Sweep, Stage)): the upper sweeps of split modes, each with the
      stage of the remaining modes, which follows it; and the lower ones, whose stages precede them.
    ``needed``, ``made`` (ndarray of bool, (cells,)): cells of the input vector that are read, and
      of the output vector that are written.
    """

    needed: Mask
    made: Mask
    sweeps: list[Sweep] = field(default_factory=list)
    uppers: list[tuple[Sweep, Stage]] = field(default_factory=list)
    lowers: list[tuple[Sweep, Stage]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether it computes nothing."""
        return not (self.sweeps or self.uppers or self.lowers)


_Node: TypeAlias = tuple[list[Sweep], list[tuple[Sweep, Sweep, "_Node"]]]
"""A node of the tree of terms, which share the split modes on the path from the root: the sweeps of
terms without further split modes; and the upper and lower sweep of each next split mode, with the
node of the terms that continue with it."""


def needed_sweeps(
    spec: SweepSpec, orders: Sequence[SweepOrder], hull: Cells, num_cells: int, sums: MatrixSums
) -> Stage:
    """Return the sweeps for the sum of an operator's terms, from its cells to themselves.

    ``hull`` has all cells that sweeps may need; the operator's come first. Sums of its matrices
    that are not in ``sums`` yet are added there. Raises ValueError if there are too many sweeps.

    Let U be the upper and L the lower part of the first split mode. Then f(x) = g(U x) + L g(x),
    where g applies the remaining modes in the same way; the last one is not split. Terms that begin
    with the same split modes share these sweeps. L reads only cells that have finer ones in their
    fibre, so the second g is computed on these cells alone, a grid of one level less; and so on.
    """
    tree = _Builder(spec, hull, sums).node([(order.split, order) for order in orders])
    inside = np.arange(len(hull)) < num_cells
    return _Stages(max(1, _MAX_MASK_BYTES // (2 * len(hull)))).stage(tree, inside, inside)


def passed(stage: Stage) -> Mask:
    """Return a mask of all cells that the vectors between a stage's sweeps have."""
    cells = np.zeros_like(stage.needed)
    for _, rest in stage.uppers:
        cells |= rest.needed | passed(rest)
    for _, rest in stage.lowers:
        cells |= rest.made | passed(rest)
    return cells


class _Builder:
    """Builds the tree of terms; equal sweeps are built only once."""

    def __init__(self, spec: SweepSpec, hull: Cells, sums: MatrixSums) -> None:
        self._spec = spec
        self._hull = hull
        self._sums = sums
        self._found: dict[tuple[int, Part, tuple[int, ...]], Edges] = {}

    def node(self, items: Sequence[tuple[tuple[ModeMatrix, ...], SweepOrder]]) -> _Node:
        """Return the node for pairs of remaining split modes and the order they belong to."""
        node: _Node = ([], [])
        last: dict[int, list[SweepOrder]] = {}
        first: dict[ModeMatrix, list[tuple[tuple[ModeMatrix, ...], SweepOrder]]] = {}
        for rest, order in items:
            if rest:
                first.setdefault(rest[0], []).append((rest[1:], order))
            else:
                last.setdefault(order.full[0], []).append(order)
        for mode, ending in last.items():
            pairs = tuple((order.full[1], order.term) for order in ending)
            node[0].append(self._sweep(mode, "full", pairs))
        for (mode, matrix), following in first.items():
            upper = self._sweep(mode, "upper", ((matrix, -1),))
            lower = self._sweep(mode, "lower", ((matrix, -1),))
            node[1].append((upper, lower, self.node(following)))
        return node

    def _sweep(self, mode: int, part: Part, pairs: tuple[tuple[int, int], ...]) -> Sweep:
        matrices = tuple(matrix for matrix, _ in pairs)
        _, connections, places = self._sum_of(mode, matrices)
        if (mode, part, matrices) not in self._found:
            edges = self._hull.fibres(mode).edges(connections, part)
            self._found[mode, part, matrices] = edges
        return Sweep(mode, self._found[mode, part, matrices], pairs, places)

    def _sum_of(self, mode: int, matrices: tuple[int, ...]) -> _SumOfMatrices:
        diagonal = np.unique(self._hull.cells[:, mode]) if -1 in matrices else np.zeros(0, np.int64)
        found = self._sums.get((mode, matrices))
        if found is None or not np.array_equal(found[0], diagonal):
            identity = Connections(diagonal, diagonal)
            parts = [self._spec.matrices[m].connections if m >= 0 else identity for m in matrices]
            found = _sum_of(diagonal, parts)
            self._sums[mode, matrices] = found
        return found


def _sum_of(diagonal: Ids, parts: Sequence[Connections]) -> _SumOfMatrices:
    """Return the distinct pairs of cells of all parts, and the index of each part's pairs."""
    if len(parts) == 1:
        return diagonal, parts[0], (narrow(np.arange(len(parts[0].rows))),)
    rows = np.concatenate([part.rows for part in parts])
    columns = np.concatenate([part.columns for part in parts])
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.cumsum(opens) - 1
    stops = np.cumsum([len(part.rows) for part in parts])
    distinct = Connections(rows[opens], columns[opens])
    return diagonal, distinct, tuple(np.split(narrow(places), stops[:-1]))


class _Stages:
    """Builds stages, at most ``maximum`` of them."""

    def __init__(self, maximum: int) -> None:
        self._left = maximum

    def stage(self, node: _Node, given: Mask, wanted: Mask) -> Stage:
        """Return the stage that computes the wanted cells of a node's result from given cells.

        Cells that are not given are zero; cells that are not wanted are not computed.
        """
        self._left -= 1
        if self._left < 0:
            raise ValueError(
                "terms with this many modes need too many sweeps on this grid; use a BatchedKron "
                "(a Problem's form 'batch')"
            )
        stage = Stage(np.zeros_like(given), np.zeros_like(given))
        for sweep in node[0]:
            kept = sweep.where(given[sweep.edges.inputs] & wanted[sweep.edges.outputs])
            if len(kept.edges.inputs):
                stage.sweeps.append(kept)
                stage.needed[kept.edges.inputs] = True
                stage.made[kept.edges.outputs] = True
        for upper, lower, child in node[1]:
            self._add_upper(stage, upper.where(given[upper.edges.inputs]), child, wanted)
            self._add_lower(stage, lower.where(wanted[lower.edges.outputs]), child, given)
        return stage

    def _add_upper(self, stage: Stage, sweep: Sweep, child: _Node, wanted: Mask) -> None:
        """Add g(U x) to a stage."""
        if not len(sweep.edges.inputs):
            return
        rest = self.stage(child, _marked(sweep.edges.outputs, wanted), wanted)
        if not rest.is_empty:
            sweep = sweep.where(rest.needed[sweep.edges.outputs])
            stage.uppers.append((sweep, rest))
            stage.needed[sweep.edges.inputs] = True
            stage.made |= rest.made

    def _add_lower(self, stage: Stage, sweep: Sweep, child: _Node, given: Mask) -> None:
        """Add L g(x) to a stage."""
        # Each lower part reads a grid of one level less: this bounds their depth by the levels.
        if not len(sweep.edges.inputs):
            return
        rest = self.stage(child, given, _marked(sweep.edges.inputs, given))
        if not rest.is_empty:
            sweep = sweep.where(rest.made[sweep.edges.inputs])
            stage.lowers.append((sweep, rest))
            stage.needed |= rest.needed
            stage.made[sweep.edges.outputs] = True


def _marked(cells: Ids, like: Mask) -> Mask:
    mask = np.zeros_like(like)
    mask[cells] = True
    return mask
