"""The batch list of a sum of Kronecker products on a grid: one small product per pair of cells."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import joined

from ..discretization.basis.multiwavelets import check_degree
from ..discretization.matrices.mode_operator import ModeOperator
from ..grids.sparse_grid import SparseGrid

Modes: TypeAlias = Sequence[ModeOperator | None]
"""The operators of one term, one per axis; None is the identity."""

Ids: TypeAlias = NDArray[np.int64]
_CHUNK = 1 << 20  # pairs that are formed at once, before those not in the grid are dropped


class BatchList(NamedTuple):
    """The products Y[outputs[b]] += (⊗_k pools[k][factor_ids[b, k]]) X[inputs[b]], b = 0 … B-1.

    Parameters
    ----------
    pools : tuple of float64 (count, n, n)
        For each mode the distinct small matrices.
    factor_ids : int32 (B, dimensions)
        Indices of the matrices in the pools.
    inputs, outputs : int64 (B,)
        Indices of cells of the grid; each term's entries are sorted by output, then by input.
    term_offsets : int64 (terms + 1,)
        Term t has the entries term_offsets[t] … term_offsets[t + 1] - 1.

    Notes
    -----
    The first four are arguments of `batchkron.BatchedKron`. If terms have coefficients c_t, the
    weights of the list are ``np.repeat(c, np.diff(term_offsets))``.
    """

    pools: tuple[NDArray[np.float64], ...]
    factor_ids: NDArray[np.int32]
    inputs: Ids
    outputs: Ids
    term_offsets: Ids


def batch_list(grid: SparseGrid, terms: Sequence[Modes], degree: int) -> BatchList:
    """Return Σ_t ⊗_k A_(t,k), restricted to a grid, as a list of small Kronecker products.

    Parameters
    ----------
    grid : SparseGrid
        The grid; its cells are the input and output blocks.
    terms : sequence of sequences of ModeOperator or None
        For each term one operator per axis of the grid, None for the identity.
    degree : int
        Polynomial degree, n - 1.

    Returns
    -------
    BatchList
        One entry per term and pair of cells that are coupled in every mode: in a mode whose
        operator is the identity their 1-D cells are equal, in other modes the operator has a block
        for the pair.

    Raises
    ------
    TypeError
        If a mode is neither a ModeOperator nor None.
    ValueError
        If a term has the wrong number of modes, or an operator the wrong number of cells or
        functions.

    Examples
    --------
    >>> double = ModeOperator.from_dense(2 * np.eye(2), n=1)
    >>> products = batch_list(SparseGrid.sparse([1, 1]), [(double, None)], degree=0)
    >>> products.factor_ids.tolist(), products.inputs.tolist(), products.outputs.tolist()
    ([[0, 0], [0, 0], [0, 0]], [0, 1, 2], [0, 1, 2])
    """
    n = check_degree(degree) + 1
    for number, modes in enumerate(terms):
        _check_term(grid, modes, n, f"terms[{number}]")
    pairs = [_connected_pairs(grid, modes) for modes in terms]
    sizes = [outputs.size for outputs, _ in pairs]
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    inputs, outputs = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
    factor_ids = np.empty((offsets[-1], grid.dimensions), dtype=np.int32)
    pools = [_pool([modes[axis] for modes in terms], n) for axis in range(grid.dimensions)]
    for number, modes in enumerate(terms):
        own = slice(offsets[number], offsets[number + 1])
        outputs[own], inputs[own] = pairs[number]
        pairs[number] = (outputs[own], inputs[own])
        for axis, operator in enumerate(modes):
            ids = pools[axis][1][number]
            rows, columns = grid.cells[outputs[own], axis], grid.cells[inputs[own], axis]
            factor_ids[own, axis] = ids if operator is None else ids[operator.find(rows, columns)]
    return BatchList(tuple(pool for pool, _ in pools), factor_ids, inputs, outputs, offsets)


def _check_term(grid: SparseGrid, modes: Modes, n: int, name: str) -> None:
    if len(modes) != grid.dimensions:
        raise ValueError(
            f"{name} has {len(modes)} modes; expected {grid.dimensions}, one per axis of the grid "
            "(None for the identity)"
        )
    for axis, operator in enumerate(modes):
        if operator is None:
            continue
        if not isinstance(operator, ModeOperator):
            raise TypeError(
                f"{name}[{axis}] is {type(operator).__name__}; expected ModeOperator or None"
            )
        cells = 1 << grid.levels[axis]
        if (operator.cells, operator.n) != (cells, n):
            raise ValueError(
                f"{name}[{axis}] has {operator.cells} cells of {operator.n} functions; expected "
                f"{cells} of {n} for level {grid.levels[axis]} and degree {n - 1}"
            )


def _pool(operators: Modes, n: int) -> tuple[NDArray[np.float64], list[Ids]]:
    """Return the distinct blocks of one mode, and for each term the pool ids of its blocks.

    Blocks are compared by their bytes, after adding 0.0, which turns negative zeros into positive
    ones. The pool has them in the order in which they first occur.
    """
    distinct = list({id(operator): operator for operator in operators}.values())
    blocks = [np.eye(n)[None] if operator is None else operator.blocks for operator in distinct]
    stacked = np.concatenate([np.zeros((0, n, n)), *blocks]) + 0.0
    as_bytes = stacked.reshape(len(stacked), n * n).view(np.dtype((np.void, 8 * n * n))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(order.size)
    stops = np.cumsum([len(block) for block in blocks], dtype=np.int64)
    parts = np.split(ranks[inverse], stops)[: len(blocks)]
    ids = {id(operator): part for operator, part in zip(distinct, parts, strict=True)}
    return stacked[first[order]], [ids[id(operator)] for operator in operators]


def _connected_pairs(grid: SparseGrid, modes: Modes) -> tuple[Ids, Ids]:
    """Return the output and input cells of all coupled pairs, sorted by output, then by input.

    The multi-indices of the cells form a prefix tree (trie): the modes that are identities come
    first, and a node at depth k is the set of cells that agree in the first k modes. The search
    starts with the pairs of equal nodes at the depth of the identities. Each further mode then
    replaces a pair of nodes by those pairs of their children that its operator couples. So no more
    pairs are formed than the operators have blocks for.
    """
    identities = [axis for axis, operator in enumerate(modes) if operator is None]
    acting = [(axis, operator) for axis, operator in enumerate(modes) if operator is not None]
    axes = identities + [axis for axis, _ in acting]
    order = np.lexsort(grid.cells.T[axes[::-1]])
    cells = grid.cells[order]
    opens = np.zeros(len(cells), dtype=np.bool_)  # whether a cell is the first of its node
    opens[0] = True
    for axis in identities:
        opens[1:] |= cells[1:, axis] != cells[:-1, axis]
    rows = columns = np.arange(np.count_nonzero(opens))
    for axis, operator in acting:
        parents = np.flatnonzero(opens)
        opens[1:] |= cells[1:, axis] != cells[:-1, axis]
        children = np.flatnonzero(opens)
        bounds = np.searchsorted(children, np.append(parents, len(cells)))
        rows, columns = _descend(rows, columns, bounds, cells[children, axis], operator)
    outputs, inputs = order[rows], order[columns]
    by_output = np.argsort(outputs * np.int64(len(cells)) + inputs)
    return outputs[by_output], inputs[by_output]


def _descend(
    rows: Ids, columns: Ids, bounds: Ids, child_cells: Ids, operator: ModeOperator
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
