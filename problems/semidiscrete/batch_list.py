"""The batch list of a sum of Kronecker products on a grid: one small product per pair of cells."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.coupled_pairs import coupled_pairs
from batchkron.operators.distinct_matrices import distinct_matrices

from ..discretization.matrices.mode_operator import ModeOperator
from ..grids.degrees import Degree, sizes_of_degrees
from ..grids.sparse_grid import SparseGrid

Modes: TypeAlias = Sequence[ModeOperator | None]
"""The operators of one term, one per axis; None is the identity."""

Ids: TypeAlias = NDArray[np.int64]


def batch_list(
    grid: SparseGrid, terms: Sequence[Modes], degree: Degree
) -> tuple[tuple[NDArray[np.float64], ...], NDArray[np.int32], Ids, Ids, Ids]:
    """Return Σ_t ⊗_k A_(t,k), restricted to a grid, as a list of small Kronecker products.

    They are Y[outputs[b]] += (⊗_k pools[k][factor_ids[b, k]]) X[inputs[b]], b = 0 … B-1.

    A term has one operator per axis of the grid, None for the identity. There is one entry per term
    and pair of cells that are coupled in every mode: in a mode whose operator is the identity their
    1-D cells are equal, in other modes the operator has a block for the pair.

    Returns four arguments of `batchkron.BatchedKron` and offsets: for each mode the distinct small
    matrices, (count, n_k, n_k); their indices, (B, dimensions); indices of cells of the grid,
    inputs and outputs (B,), each term's sorted by output, then by input; and offsets, (terms + 1,):
    term t has the entries offsets[t] … offsets[t + 1] - 1. If terms have coefficients c_t, the
    weights of the list are ``np.repeat(c, np.diff(offsets))``.

    Examples
    --------
    >>> double = ModeOperator.from_dense(2 * np.eye(2), n=1)
    >>> _, ids, inputs, outputs, _ = batch_list(SparseGrid.sparse([1, 1]), [(double, None)], 0)
    >>> ids.tolist(), inputs.tolist(), outputs.tolist()
    ([[0, 0], [0, 0], [0, 0]], [0, 1, 2], [0, 1, 2])
    """
    sizes = sizes_of_degrees(degree, grid.dimensions)
    for number, modes in enumerate(terms):
        _check_term(grid, modes, sizes, f"terms[{number}]")
    pairs = [coupled_pairs(grid.cells, modes) for modes in terms]
    counts = [outputs.size for outputs, _ in pairs]
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    inputs, outputs = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
    factor_ids = np.empty((offsets[-1], grid.dimensions), dtype=np.int32)
    pools = [_pool([modes[axis] for modes in terms], n) for axis, n in enumerate(sizes)]
    for number, modes in enumerate(terms):
        own = slice(offsets[number], offsets[number + 1])
        outputs[own], inputs[own] = pairs[number]
        pairs[number] = (outputs[own], inputs[own])
        for axis, operator in enumerate(modes):
            ids = pools[axis][1][number]
            rows, columns = grid.cells[outputs[own], axis], grid.cells[inputs[own], axis]
            factor_ids[own, axis] = ids if operator is None else ids[operator.find(rows, columns)]
    return tuple(pool for pool, _ in pools), factor_ids, inputs, outputs, offsets


def _check_term(grid: SparseGrid, modes: Modes, sizes: Sequence[int], name: str) -> None:
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
        cells, n = 1 << grid.levels[axis], sizes[axis]
        if (operator.cells, operator.n) != (cells, n):
            raise ValueError(
                f"{name}[{axis}] has {operator.cells} cells of {operator.n} functions; expected "
                f"{cells} of {n} for level {grid.levels[axis]} and degree {n - 1}"
            )


def _pool(operators: Modes, n: int) -> tuple[NDArray[np.float64], list[Ids]]:
    """Return the distinct blocks of one mode, and for each term the pool ids of its blocks.

    Blocks are compared by their bytes, after adding 0.0, which turns negative zeros into positive
    ones.
    """
    distinct = list({id(operator): operator for operator in operators}.values())
    blocks = [np.eye(n)[None] if operator is None else operator.blocks for operator in distinct]
    stacked = np.concatenate([np.zeros((0, n, n)), *blocks]) + 0.0
    first, ranks = distinct_matrices(stacked)
    stops = np.cumsum([len(block) for block in blocks], dtype=np.int64)
    parts = np.split(ranks, stops)[: len(blocks)]
    ids = {id(operator): part for operator, part in zip(distinct, parts, strict=True)}
    return stacked[first], [ids[id(operator)] for operator in operators]
