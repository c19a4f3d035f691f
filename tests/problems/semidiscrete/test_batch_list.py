from functools import reduce

import numpy as np
import pytest

from batchkron.problems.discretization.matrices.dg_matrices import (
    div_matrix,
    grad_matrix,
    mass_matrix,
)
from batchkron.problems.discretization.matrices.mode_operator import ModeOperator
from batchkron.problems.grids.sparse_grid import SparseGrid
from batchkron.problems.semidiscrete.batch_list import batch_list
from batchkron.problems.statement.axis import Axis


def restricted_sum(grid, terms, n):
    """Σ_t ⊗_k A_(t,k) by numpy.kron on the full grid, then cut to the grid's cells."""
    sizes = [2**level * n for level in grid.levels]
    total = sum(
        reduce(
            np.kron,
            [
                np.eye(size) if mode is None else mode.to_dense()
                for mode, size in zip(modes, sizes, strict=True)
            ],
        )
        for modes in terms
    )
    places = np.array(
        [
            np.ravel_multi_index(
                [
                    axis.ravel()
                    for axis in np.meshgrid(*(c * n + np.arange(n) for c in cell), indexing="ij")
                ],
                sizes,
            )
            for cell in grid.cells
        ]
    ).ravel()
    return total[np.ix_(places, places)]


def summed(products, num_cells):
    """The dense operator that a batch list stands for, product by product."""
    pools, factor_ids, inputs, outputs, _ = products
    size = np.prod([pool.shape[1] for pool in pools])
    dense = np.zeros((num_cells, size, num_cells, size))
    for ids, source, target in zip(factor_ids, inputs, outputs, strict=True):
        factors = [pool[i] for pool, i in zip(pools, ids, strict=True)]
        dense[target, :, source, :] += reduce(np.kron, factors)
    return dense.reshape(num_cells * size, num_cells * size)


def operators(levels, degree):
    """Per axis an advection, a diffusion chain and a multiplication."""
    made = []
    for number, level in enumerate(levels):
        axis = Axis(f"x{number}", -1.0, 1.0 + number)
        chain = div_matrix(axis, level, degree) @ grad_matrix(axis, level, degree, flux="downwind")
        made.append(
            [
                ModeOperator.from_nodal(matrix, degree)
                for matrix in (
                    div_matrix(axis, level, degree, -1.5, flux="central"),
                    chain,
                    mass_matrix(axis, level, degree, lambda s: np.exp(s)),
                )
            ]
        )
    return made


GRIDS = [
    SparseGrid.sparse([0]),
    SparseGrid.sparse([4]),
    SparseGrid.sparse([3, 3]),
    SparseGrid.sparse([3, 2]),
    SparseGrid.full([2, 2]),
    SparseGrid.sparse([2, 2, 2]),
    SparseGrid.full([1, 2, 1]),
    SparseGrid.custom([[0, 0], [2, 1], [3, 2], [7, 0], [5, 3], [6, 3], [4, 1]], [3, 2]),
]


@pytest.mark.parametrize(
    ("grid", "degree"),
    [(grid, degree) for grid in GRIDS for degree in range(5 if grid.dimensions < 3 else 2)],
    ids=lambda value: f"{value.kind}-{value.levels}" if isinstance(value, SparseGrid) else None,
)
def test_the_list_sums_to_the_restricted_kronecker_sum(grid, degree):
    made, dimensions = operators(grid.levels, degree), grid.dimensions
    terms = [
        tuple(made[k][k % 2] if k == acting else None for k in range(dimensions))
        for acting in range(dimensions)
    ]
    terms.append(tuple(made[k][2] for k in range(dimensions)))  # no identity anywhere
    terms.append((None,) * dimensions)
    terms.append((made[0][0], *(made[k][2] for k in range(1, dimensions))))
    products = batch_list(grid, terms, degree)
    expected = restricted_sum(grid, terms, degree + 1)
    np.testing.assert_allclose(
        summed(products, grid.num_cells), expected, atol=1e-13 * np.abs(expected).max()
    )


def test_only_coupled_pairs_are_listed_once_and_in_order():
    grid = SparseGrid.sparse([4, 4])
    made = operators(grid.levels, 1)
    terms = [(made[0][0], None), (made[0][2], made[1][0]), (None, made[1][1])]
    _, factor_ids, inputs, outputs, offsets = batch_list(grid, terms, 1)
    for number, modes in enumerate(terms):
        own = slice(offsets[number], offsets[number + 1])
        listed = list(zip(outputs[own], inputs[own], strict=True))
        coupled = [
            (output, source)
            for output, row in enumerate(grid.cells)
            for source, column in enumerate(grid.cells)
            if all(
                row[k] == column[k]
                if mode is None
                else ((mode.rows == row[k]) & (mode.columns == column[k])).any()
                for k, mode in enumerate(modes)
            )
        ]
        assert listed == coupled
    assert offsets[-1] == inputs.size == len(factor_ids)


def test_pools_hold_every_matrix_once():
    grid = SparseGrid.sparse([3, 3])
    (first, *_), (second, *_) = operators(grid.levels, 2)
    copy = ModeOperator(first.cells, first.n, first.rows, first.columns, first.blocks)
    pools, *_ = batch_list(grid, [(first, None), (copy, second)], 2)
    for pool in pools:
        assert len(np.unique(pool.reshape(len(pool), -1), axis=0)) == len(pool)
    alone, *_ = batch_list(grid, [(first, None)], 2)
    assert pools[0].shape == alone[0].shape
    assert alone[1].shape == (1, 3, 3)
    np.testing.assert_array_equal(alone[1][0], np.eye(3))


def test_small_chunks_give_the_same_list(monkeypatch):
    grid = SparseGrid.sparse([4, 4])
    made = operators(grid.levels, 1)
    terms = [(made[0][2], made[1][0]), (made[0][0], None)]
    whole = batch_list(grid, terms, 1)
    for chunk in (1, 7, 1000):
        monkeypatch.setattr("batchkron.operators.coupled_pairs._CHUNK", chunk)
        pieces = batch_list(grid, terms, 1)
        for found, expected in zip(pieces[1:4], whole[1:4], strict=True):
            np.testing.assert_array_equal(found, expected)


def test_the_list_goes_into_the_batched_operator():
    from batchkron import BatchedKron

    grid = SparseGrid.sparse([3, 3])
    made = operators(grid.levels, 2)
    terms = [(made[0][0], None), (None, made[1][0]), (made[0][2], made[1][2])]
    *products, offsets = batch_list(grid, terms, 2)
    coefficients = np.array([0.5, -2.0, 3.0])
    operator = BatchedKron(
        *products,
        weights=np.repeat(coefficients, np.diff(offsets)),
        num_inputs=grid.num_cells,
        num_outputs=grid.num_cells,
    )
    expected = sum(
        c * restricted_sum(grid, [term], 3) for c, term in zip(coefficients, terms, strict=True)
    )
    x = np.random.default_rng(4).standard_normal(grid.num_cells * 9)
    result = np.full_like(x, np.nan)
    operator.matvec(x, out=result)
    np.testing.assert_allclose(result, expected @ x, atol=1e-12 * np.abs(expected).max())


def test_zero_operators_and_no_terms_give_empty_lists():
    grid = SparseGrid.sparse([2, 2])
    zero = ModeOperator.from_dense(np.zeros((8, 8)), 2)
    for terms in ([(zero, None)], [(zero, zero)], []):
        pools, factor_ids, inputs, *_ = batch_list(grid, terms, 1)
        assert inputs.size == 0
        assert factor_ids.shape == (0, 2)
        assert all(pool.shape[1:] == (2, 2) for pool in pools)


def test_forty_axes():
    grid = SparseGrid.sparse([1] * 40)
    advection = ModeOperator.from_nodal(div_matrix(Axis("x", 0, 1), 1, 0), 0)
    _, _, inputs, outputs, _ = batch_list(grid, [(*[None] * 39, advection)], 0)
    expected = {(cell, cell) for cell in range(1, 41)} - {(1, 1)}
    assert set(zip(outputs.tolist(), inputs.tolist(), strict=True)) <= (
        expected | {(0, 0), (0, 1), (1, 0), (1, 1)}
    )
    assert inputs.size == advection.rows.size + np.count_nonzero(
        (grid.cells[:, 39] == 0) & (grid.cells[:, :39].any(axis=1))
    ) * np.count_nonzero((advection.rows == 0) & (advection.columns == 0))


OPERATOR = ModeOperator.identity(2, 2)


@pytest.mark.parametrize(
    ("terms", "degree", "error", "text"),
    [
        ([(None,)], 1, ValueError, r"terms\[0\] has 1 modes; expected 2"),
        ([(None, None), (OPERATOR, 1.0)], 1, TypeError, r"terms\[1\]\[1\] is float"),
        ([(OPERATOR, OPERATOR)], 1, ValueError, r"terms\[0\]\[1\] has 2 cells of 2 functions; exp"),
        ([(OPERATOR, None)], 2, ValueError, "expected 2 of 3 for level 1 and degree 2"),
    ],
)
def test_wrong_arguments_are_named(terms, degree, error, text):
    with pytest.raises(error, match=text):
        batch_list(SparseGrid.sparse([1, 2]), terms, degree)
