"""Sweeps equal the batch list of all coupled pairs in one to six dimensions, and a dense matrix."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_oracle import as_dict, operator_of, restricted

import batchkron as bk
from batchkron.problems import SparseGrid

DTYPES = ("float32", "float64", "complex64", "complex128")
# Finest level by the number of modes; largest examples, in six modes three cells of degree 3.
FINEST = {1: 6, 2: 5, 3: 4, 4: 3, 5: 3, 6: 3}
MAX_CELLS, MAX_UNKNOWNS = 150, 13000


def batch_list(cells, terms, sizes, coefficients, dtype):
    """The operator as a BatchedKron with an entry for each term and coupled pair of cells."""
    pools, ids, inputs, outputs, weights = [[] for _ in sizes], [], [], [], []
    pairs = (cells[:, None, :], cells[None, :, :])
    for scale, modes in zip(coefficients, terms, strict=True):
        found = []
        for k, operator in enumerate(modes):
            row, column = (part[..., k] for part in pairs)
            start = sum(map(len, pools[k]))
            if operator is None:
                pools[k].append(np.eye(sizes[k])[None])
                found.append(np.where(row == column, start, -1))
                continue
            pools[k].append(operator.blocks)
            numbers = np.full((1 << FINEST[len(sizes)],) * 2, -1)
            numbers[operator.rows, operator.columns] = start + np.arange(len(operator.rows))
            found.append(numbers[row, column])
        found = np.stack(found, axis=-1)
        output, given_by = np.nonzero((found >= 0).all(axis=-1))
        ids.append(found[output, given_by])
        inputs.append(given_by)
        outputs.append(output)
        weights.append(np.full(len(output), scale))
    return bk.BatchedKron(
        [np.concatenate(pool).astype(dtype) for pool in pools],
        *(np.concatenate(parts) for parts in (ids, inputs, outputs)),
        weights=np.concatenate(weights).astype(dtype),
        num_inputs=len(cells),
        num_outputs=len(cells),
    )


def magnitudes(terms):
    """The terms with the absolute values of their blocks."""
    return [
        [
            mode and SimpleNamespace(rows=mode.rows, columns=mode.columns, blocks=abs(mode.blocks))
            for mode in modes
        ]
        for modes in terms
    ]


def numbers(rng, shape, dtype):
    found = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        found = found + 1j * rng.standard_normal(shape)
    return found.astype(dtype)


@st.composite
def cases(draw, modes, several, closed):
    """Cells, terms with fluxes in one mode each or in several, sizes, and a dtype."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), "seed"))
    dtype = draw(st.sampled_from(DTYPES), "dtype")
    degree = draw(st.integers(0, 3 if modes > 2 else 8), "degree")
    sizes = [degree + 1] * modes
    if draw(st.booleans(), "mixed sizes"):
        sizes[-1] = max(1, degree)
    maximum = max(3, min(MAX_CELLS, MAX_UNKNOWNS // int(np.prod(sizes))))
    level = FINEST[modes]
    terms = [
        draw_term(draw, rng, level, sizes, several, dtype)
        for _ in range(draw(st.integers(1, 3), "terms"))
    ]
    if closed:
        cells = draw_cells(draw, modes, level, True, maximum)
    else:
        cells = draw_cells(draw, modes, level, draw(st.booleans(), "holes"), maximum)
        cells = cells[rng.random(len(cells)) < 0.8] if len(cells) > 20 else cells
    return cells[rng.permutation(len(cells))], terms, sizes, dtype, rng


def draw_cells(draw, modes, level, closed, maximum):
    """Return at most ``maximum`` cells, with their ancestors if the set is to be closed."""
    index = st.one_of(st.just(0), st.integers(0, 2**level - 1))
    fine = draw(st.lists(st.tuples(*[index] * modes), min_size=1, max_size=12), "cells")
    grid = SparseGrid.custom([[0] * modes], [level] * modes)
    for cell in fine:
        larger = SparseGrid.custom(np.vstack([grid.cells, cell]), grid.levels)
        larger = larger.closed() if closed else larger
        if larger.num_cells <= maximum:
            grid = larger
    return grid.cells


def draw_term(draw, rng, level, sizes, several, dtype):
    kinds = [draw(st.sampled_from([None, "volume"]), "kind") for _ in sizes]
    least = min(2, len(sizes)) if several else 1
    count = draw(st.integers(least, len(sizes) if several else 1), "fluxes")
    for mode in draw(st.permutations(range(len(sizes))), "modes")[:count]:
        kinds[mode] = "full"
    return [
        kind and operator_of(rng, level, n, kind, dtype)
        for kind, n in zip(kinds, sizes, strict=True)
    ]


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "with gaps"])
@pytest.mark.parametrize(
    ("modes", "several"), [(1, False), *[(d, s) for d in range(2, 7) for s in (False, True)]]
)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_sweeps_equal_the_batch_list(modes, several, closed, data):
    cells, terms, sizes, dtype, rng = data.draw(cases(modes, several, closed))
    scale = numbers(rng, len(terms), dtype)
    op = bk.SparseGridOperator(cells, terms, sizes, coefficients=scale)
    assert op.dtype == dtype
    if closed and not several:
        assert op.num_added_cells == 0
    exact = batch_list(cells, terms, sizes, scale, "complex128")
    bound = batch_list(cells, magnitudes(terms), sizes, abs(scale), "float64")
    x, y = numbers(rng, (2, op.shape[0]), dtype)
    many = numbers(rng, (op.shape[0], 2), dtype)
    # a few roundings for each factor, pair of cells and element that a sum runs over
    slack = 16 * np.finfo(dtype).eps * (modes + 1)
    out = np.full_like(x, np.nan)
    assert op.matvec(x, out=out) is out
    assert (abs(out - exact @ x) <= slack * (bound @ abs(x))).all()
    assert (abs(op @ many - exact @ many) <= slack * (bound @ abs(many))).all()
    assert (abs(op.T @ y - exact.T @ y) <= slack * (bound.T @ abs(y))).all()
    assert (abs(op.H @ y - exact.H @ y) <= slack * (bound.T @ abs(y))).all()
    dots = y @ (op @ x), (op.T @ y) @ x
    assert abs(dots[0] - dots[1]) <= 4 * slack * (abs(y) @ (bound @ abs(x)))


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "with gaps"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("modes", [1, 2, 3, 4, 5, 6])
def test_sweeps_equal_a_dense_matrix(rng, modes, dtype, closed):
    """Fluxes in all modes, in two and in one; in six dimensions 64 functions a cell."""
    level = min(FINEST[modes], 2)
    cells = np.zeros((4, modes), int)
    for k, cell in enumerate(cells):
        cell[[k % modes, (k + 1) % modes]] = rng.integers(1, 2**level, 2)
    grid = SparseGrid.custom(np.unique(cells, axis=0), [level] * modes)
    cells = (grid.closed() if closed else grid).cells
    full, volume = (
        [operator_of(rng, level, 2, k, dtype) for _ in cells.T] for k in ("full", "volume")
    )
    terms = [full, [*full[:2], *volume[2:]], [*[None] * (modes - 1), full[-1]]]
    op = bk.SparseGridOperator(cells, terms, 2)
    dense = sum(restricted(cells, list(map(as_dict, term)), [2] * modes) for term in terms)
    tolerance = 1e2 * np.finfo(dtype).eps * abs(dense).max()
    np.testing.assert_allclose(op.to_dense(), dense, atol=tolerance)
    np.testing.assert_allclose(op.T.to_dense(), dense.T, atol=tolerance)
