"""The pairs of cells of a grid that a Kronecker product of 1-D operators couples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from batchkron.operators.couplings import Ids, joined

__all__ = ["SortedPairs", "coupled_pairs"]

_CHUNK = 1 << 20  # pairs that are formed at once, before those not in the grid are dropped


class SortedPairs(Protocol):
    """The pairs of 1-D cells that a 1-D operator couples, sorted by (row, column)."""

    @property
    def columns(self) -> Ids:
        """1-D index of the input cell of each pair, (count,)."""

    def row_range(self, rows: Ids, last_columns: Ids) -> tuple[Ids, Ids]:
        """Return where the pairs of rows, up to a last column in each, begin and end."""


def coupled_pairs(
    grid_cells: Ids, modes: Sequence[SortedPairs | None], largest: int | None = None
) -> tuple[Ids, Ids]:
    """Return the output and input cells of all coupled pairs, sorted by output, then by input.

    They are rows of ``grid_cells`` (num_cells, modes), the multi-indices of the grid's cells in any
    order. A mode is None for the identity. Raises ValueError if there are more pairs than
    ``largest``.

    The multi-indices of the cells form a prefix tree (trie): the modes that are identities come
    first, and a node at depth k is the set of cells that agree in the first k modes. The search
    starts with the pairs of equal nodes at the depth of the identities. Each further mode then
    replaces a pair of nodes by those pairs of their children that its operator couples. So no more
    pairs are formed than the operators have blocks for.
    """
    identities = [axis for axis, operator in enumerate(modes) if operator is None]
    acting = [(axis, operator) for axis, operator in enumerate(modes) if operator is not None]
    axes = identities + [axis for axis, _ in acting]
    order = np.lexsort(grid_cells.T[axes[::-1]])
    cells = grid_cells[order]
    opens = np.zeros(len(cells), dtype=np.bool_)  # whether a cell is the first of its node
    opens[:1] = True
    for axis in identities:
        opens[1:] |= cells[1:, axis] != cells[:-1, axis]
    rows = columns = np.arange(np.count_nonzero(opens))
    for axis, operator in acting:
        parents = np.flatnonzero(opens)
        opens[1:] |= cells[1:, axis] != cells[:-1, axis]
        children = np.flatnonzero(opens)
        bounds = np.searchsorted(children, np.append(parents, len(cells)))
        if largest is not None and (bounds[rows + 1] - bounds[rows]).sum() > largest:
            raise ValueError(f"the grid has more than {largest} coupled pairs of cells")
        rows, columns = _descend(rows, columns, bounds, cells[children, axis], operator)
    outputs, inputs = order[rows], order[columns]
    by_output = np.argsort(outputs * np.int64(len(cells)) + inputs)
    return outputs[by_output], inputs[by_output]


def _descend(
    rows: Ids, columns: Ids, bounds: Ids, child_cells: Ids, operator: SortedPairs
) -> tuple[Ids, Ids]:
    """Return the coupled pairs of children of the pairs of nodes (rows, columns).

    Node i has the children bounds[i] … bounds[i + 1] - 1, whose 1-D cells along the operator's axis
    are child_cells, ascending.
    """
    pair, row_child = joined(bounds[rows], bounds[rows + 1])
    column = columns[pair]
    last_cell = child_cells[bounds[column + 1] - 1]
    first, stop = operator.row_range(child_cells[row_child], last_cell)
    ends = np.cumsum(stop - first)
    total = int(ends[-1]) if ends.size else 0
    cuts = np.searchsorted(ends, np.arange(0, max(total, 1), _CHUNK))
    found_rows, found_columns = [], []
    for begin, end in zip(cuts, [*cuts[1:], ends.size], strict=True):
        item, entry = joined(first[begin:end], stop[begin:end])
        item += begin
        child = _child_of(column[item], operator.columns[entry], bounds, child_cells)
        present = child >= 0
        found_rows.append(row_child[item[present]])
        found_columns.append(child[present])
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *found_rows]), np.concatenate([nothing, *found_columns])


def _child_of(nodes: Ids, wanted: Ids, bounds: Ids, child_cells: Ids) -> Ids:
    """Return, for each node, its child with the wanted 1-D cell; -1 if it has none."""
    guess: Ids = np.minimum(bounds[nodes] + wanted, bounds[nodes + 1] - 1)
    missed = np.flatnonzero(child_cells[guess] != wanted)
    # the guess is right if the children of a node are cells 0, 1, 2, … without a gap, as those of
    # sparse and full grids are
    if missed.size:
        width = np.int64(child_cells.max() + 1)
        owners = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
        keys = owners * width + child_cells
        key = nodes[missed] * width + wanted[missed]
        place = np.minimum(np.searchsorted(keys, key), keys.size - 1)
        guess[missed] = np.where(keys[place] == key, place, -1)
    return guess
