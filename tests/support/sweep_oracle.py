"""Sweeps along the fibres of a grid with SciPy's sparse matrices: the algorithm on one page.

A sweep is the sparse matrix of one mode's operator between all pairs of cells that differ in that
mode's index only. A term's modes are split but for one; the recursion applies the upper part of the
first split mode before, and its lower part after what it does with the other modes.
"""

from types import SimpleNamespace

import numpy as np
from scipy.sparse import block_array, coo_array, csr_array, kron

from batchkron.problems.discretization.matrices.mode_operator import connected


def operator_of(rng, level, n, kind, dtype=np.float64):
    """A 1-D operator with random blocks where cells overlap ("volume") or also touch ("full")."""
    rows, columns = np.nonzero(connected(level, kind))
    blocks = rng.standard_normal((len(rows), n, n))
    if np.dtype(dtype).kind == "c":
        blocks = blocks + 1j * rng.standard_normal(blocks.shape)
    return SimpleNamespace(rows=rows, columns=columns, blocks=blocks.astype(dtype))


def levels_of(cells):
    return np.array([int(cell).bit_length() for cell in np.ravel(cells)]).reshape(np.shape(cells))


def sweep(cells, mode, blocks, sizes):
    """The matrix that has blocks[r, c] wherever two cells of one fibre have indices r and c."""
    ahead = np.eye(int(np.prod(sizes[:mode])))
    behind = np.eye(int(np.prod(sizes[mode + 1 :])))
    number = {tuple(cell): i for i, cell in enumerate(cells.tolist())}
    size = int(np.prod(sizes))
    grid = [[None] * len(cells) for _ in cells]
    for i in range(len(cells)):
        grid[i][i] = csr_array((size, size))
    for cell, i in number.items():
        for (row, column), block in blocks.items():
            if row == cell[mode]:
                j = number.get((*cell[:mode], column, *cell[mode + 1 :]))
                if j is not None:
                    grid[i][j] = kron(kron(coo_array(ahead), block), behind)
    return csr_array(block_array(grid))


def parts(blocks):
    """The upper part, which does not make the level finer, and the lower one, which does."""
    upper = {
        pair: block for pair, block in blocks.items() if levels_of(pair[0]) <= levels_of(pair[1])
    }
    return upper, {pair: block for pair, block in blocks.items() if pair not in upper}


def apply_term(cells, factors, full, sizes, x):
    """(⊗_k factors[k]) x by sweeps; factors[k] is {(row, column): block} or None.

    The mode `full` is not split.
    """
    split = [k for k, blocks in enumerate(factors) if blocks is not None and k != full]

    def rest(modes, v):
        if not modes:
            return v if factors[full] is None else sweep(cells, full, factors[full], sizes) @ v
        first, *others = modes
        upper, lower = parts(factors[first])
        down = rest(others, sweep(cells, first, upper, sizes) @ v)
        return down + sweep(cells, first, lower, sizes) @ rest(others, v)

    return rest(split, x)


def cells_beside(cells, factors, full):
    """The cells outside of the grid that sweeps pass between coupled cells.

    A way changes the indices of upper parts first, then of the full mode, then of lower parts.
    """
    grid = set(map(tuple, cells.tolist()))
    split = [k for k, blocks in enumerate(factors) if blocks is not None and k != full]
    found = set()
    for column in grid:
        for row in grid:
            ends = zip(row, column, factors, strict=True)
            if all(r == c if blocks is None else (r, c) in blocks for r, c, blocks in ends):
                upper = [k for k in split if levels_of(row[k]) <= levels_of(column[k])]
                lower = [k for k in split if k not in upper]
                cell = list(column)
                for mode in (*upper, full, *reversed(lower)):
                    cell[mode] = row[mode]
                    found.add(tuple(cell))
    return found - grid


def restricted(cells, factors, sizes):
    """⊗_k factors[k], pair of cells by pair of cells, dense."""
    size = int(np.prod(sizes))
    given = [block for blocks in factors if blocks is not None for block in blocks.values()]
    dense = np.zeros((len(cells), size, len(cells), size), np.result_type(float, *given))
    for i, row in enumerate(cells.tolist()):
        for j, column in enumerate(cells.tolist()):
            block = np.ones((1, 1))
            for k, blocks in enumerate(factors):
                if blocks is None:
                    one = np.eye(sizes[k]) * (row[k] == column[k])
                else:
                    one = blocks.get((row[k], column[k]), np.zeros((sizes[k],) * 2))
                block = np.kron(block, one)
            dense[i, :, j, :] = block
    return dense.reshape(len(cells) * size, -1)


def as_dict(operator):
    """The blocks of a 1-D operator by their cells."""
    if operator is None:
        return None
    pairs = zip(operator.rows.tolist(), operator.columns.tolist(), strict=True)
    return dict(zip(pairs, operator.blocks, strict=True))
