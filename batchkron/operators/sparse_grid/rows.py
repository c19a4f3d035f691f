"""Rows and the diagonal of an operator on a sparse grid, from its definition without sweeps."""

from __future__ import annotations

import numpy as np

from batchkron.operators.couplings import Ids
from batchkron.operators.sparse_grid.spec import SweepSpec
from batchkron.spec.kron import Array, BatchSpec

__all__ = ["diagonal", "rows_as_products"]


def rows_as_products(spec: SweepSpec, rows: Ids) -> BatchSpec:
    """Return the Kronecker products whose sums are the output blocks of the given cells."""
    spec = spec.with_identity_term
    # Where each matrix's blocks begin in the pool; the last entry is the identity's.
    starts = np.cumsum([0, *[len(matrix.rows) for matrix in spec.matrices]])
    along = [np.unique(column, return_inverse=True) for column in spec.cells.T]
    found: list[tuple[Ids, Ids, int, int]] = []  # factor ids, inputs, output, term
    for place, row in enumerate(spec.cells[rows]):
        for term, modes in enumerate(spec.terms):
            inputs = np.arange(len(spec.cells))
            ids = np.empty((len(inputs), len(modes)), np.int64)
            for mode, number in enumerate(modes):
                blocks = _blocks_of(spec, number, row[mode], along[mode], inputs)
                kept = blocks >= 0
                inputs, ids = inputs[kept], ids[kept]
                ids[:, mode] = starts[number] + blocks[kept]
            found.append((ids, inputs, place, term))
    counts = [len(inputs) for _, inputs, _, _ in found]
    terms = np.repeat(np.array([term for *_, term in found], np.int64), counts)
    pools = tuple(_pool(spec, mode) for mode in range(len(spec.sizes)))
    return BatchSpec(
        pools=pools,
        factor_ids=np.concatenate([np.empty((0, len(pools)), np.int64), *[f[0] for f in found]]),
        inputs=np.concatenate([np.empty(0, np.int64), *[f[1] for f in found]]),
        outputs=np.repeat(np.array([output for _, _, output, _ in found], np.int64), counts),
        weights=spec.coefficients[None, terms],
        num_inputs=len(spec.cells),
        num_outputs=len(rows),
        batch_shape=(),
        accumulation="auto",
        dtype=spec.dtype,
        identity=tuple(np.zeros(pool.shape[1], np.bool_) for pool in pools),
    )


def _pool(spec: SweepSpec, mode: int) -> Array:
    """Return a pool of all matrices' blocks and the identity, (1, count, n, inputs).

    Blocks of another size are zero: no term uses them along this mode.
    """
    size = spec.sizes[mode], spec.given[mode]
    fit = [
        matrix.blocks
        if matrix.blocks.shape[1:] == size
        else np.zeros((len(matrix.rows), *size), spec.dtype)
        for matrix in spec.matrices
    ]
    return np.concatenate([*fit, np.eye(*size, dtype=spec.dtype)[None]])[None]


def _blocks_of(spec: SweepSpec, number: int, row: int, along: tuple[Ids, Ids], inputs: Ids) -> Ids:
    """Return for each input cell the block that maps its index to ``row``, -1 if there is none.

    ``along`` has the mode's distinct indices, and the rank of each cell's among them. The lookup
    table has entries only for indices that occur, since indices may be up to 2^52.
    """
    distinct, ranks = along
    if number < 0:
        return np.where(distinct == row, 0, -1)[ranks[inputs]]
    matrix = spec.matrices[number]
    own = np.flatnonzero(matrix.rows == row)
    own = own[np.isin(matrix.columns[own], distinct)]
    table = np.full(len(distinct), -1)
    table[np.searchsorted(distinct, matrix.columns[own])] = own
    return table[ranks[inputs]]


def diagonal(spec: SweepSpec) -> Array:
    """Return the diagonal of an operator, (cells, elements of a block)."""
    spec = spec.with_identity_term
    result = np.zeros((len(spec.cells), spec.block_size), spec.dtype)
    for scale, modes in zip(spec.coefficients, spec.terms, strict=True):
        entries = np.full((len(spec.cells), 1), scale, spec.dtype)
        for mode, number in enumerate(modes):
            along = _diagonal_along(spec, number, mode)
            width = entries.shape[1] * along.shape[1]
            entries = (entries[:, :, None] * along[:, None, :]).reshape(-1, width)
        result += entries
    return result


def _diagonal_along(spec: SweepSpec, number: int, mode: int) -> Array:
    """Return the diagonal entries of one factor for every cell, (cells, n)."""
    size = spec.sizes[mode]
    if number < 0:
        return np.ones((len(spec.cells), size), spec.dtype)
    distinct, places = np.unique(spec.cells[:, mode], return_inverse=True)
    matrix = spec.matrices[number]
    own = np.flatnonzero((matrix.rows == matrix.columns) & np.isin(matrix.rows, distinct))
    table = np.zeros((len(distinct), size), spec.dtype)
    table[np.searchsorted(distinct, matrix.rows[own])] = matrix.blocks[own].diagonal(
        axis1=1, axis2=2
    )
    return table[places]
