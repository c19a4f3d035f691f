"""Sums of inverses on full grids by sweeps over all of them, against dense inverses of each."""

from dataclasses import replace

import numpy as np
import pytest

from batchkron.operators.kronecker_terms import terms_of
from batchkron.problems import gallery
from batchkron.solvers import preconditioners
from batchkron.solvers.preconditioners.bases import ModeBases
from batchkron.solvers.preconditioners.subgrids import Subgrid, coloured_levels, subgrids
from batchkron.solvers.preconditioners.swept_grids import SweptGrids
from batchkron.solvers.preconditioners.tensor_inverse import FullGrid


def swept(operator, scale, dtype, grids=None):
    """The sums by sweeps for B = I - scale A, and a function that takes another scale."""
    terms = terms_of(operator)
    bases, found = ModeBases(terms), subgrids(terms) if grids is None else grids
    joint = [bases.up_to(grid.levels) for grid in found]

    def diagonals(c):
        pairs = zip(found, joint, strict=True)
        return [FullGrid(bases, grid.levels, c).diagonal(own) for grid, own in pairs]

    made = SweptGrids(terms.sizes, found, joint, np.dtype(dtype), "cpu")
    made = made.with_diagonals(diagonals(scale))
    return made, lambda c: made.rescale(diagonals(c))


def summed(operator, scale, grids=None):
    """Σ_l c_l P_l (P_l* B P_l)⁻¹ P_l*, dense; P_l picks the unknowns that the sparse grid has."""
    B = np.eye(operator.shape[0]) - scale * operator.to_dense()
    total = np.zeros_like(B)
    for grid in subgrids(terms_of(operator)) if grids is None else grids:
        assert grid.complete
        block = np.ix_(grid.places, grid.places)
        total[block] += grid.coefficient * np.linalg.inv(B[block])
    return total


def check(found, expected, rng, dtype, extra=0):
    x = rng.standard_normal(len(expected))
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(len(expected))
    padded, target = np.zeros(len(x) + extra, dtype), np.ones(len(x) + extra, dtype)
    padded[: len(x)] = x
    found.add(padded, target)
    tolerance = 1e3 * np.finfo(dtype).eps * np.linalg.norm(expected, 2) * np.linalg.norm(x)
    np.testing.assert_allclose(target[: len(x)], 1 + expected @ x, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    ("name", "level", "degree"),
    [
        ("diffusion-1d", 3, 2),
        ("diffusion-2d", 3, 1),
        ("diffusion-3d", 2, 0),
        ("diffusion-2d", 0, 1),
    ],
)
def test_sums_are_those_of_dense_inverses(rng, dtype, name, level, degree):
    operator = gallery.make(name, level=level, degree=degree).operator
    scales = (0.02, 0.3) if np.dtype(dtype).kind == "f" else (0.02, 0.1 + 0.2j)
    found, rescale = swept(operator, scales[0], dtype)
    check(found, summed(operator, scales[0]), rng, dtype)
    rescale(scales[1])
    check(found, summed(operator, scales[1]), rng, dtype, extra=1)


def test_complex_eigenvectors_of_real_operators(rng):
    operator = gallery.make("continuity-2d", level=2, degree=1).operator
    found, _ = swept(operator, 0.3, "float64")
    assert found._kind == np.complex128
    check(found, summed(operator, 0.3), rng, "float64")
    check(found, summed(operator, 0.3), rng, "float32")


def test_part_of_the_grid(rng):
    """The grids of one of two classes have not all cells; others are not written."""
    operator = gallery.make("diffusion-2d", level=3, degree=1).operator
    terms = terms_of(operator)
    for tops in coloured_levels(terms.levels):
        grids = subgrids(terms, tops)
        found, _ = swept(operator, 0.1, "float64", grids)
        check(found, summed(operator, 0.1, grids), rng, "float64")


def test_grids_with_absent_cells(rng):
    """The unknowns that a grid does not have are 0 in what the full grids are given."""
    terms = terms_of(gallery.make("diffusion-2d", level=3, degree=1).operator)
    kept = np.sort(rng.permutation(len(terms.cells))[3:])
    terms = replace(terms, cells=terms.cells[np.union1d(kept, [0])])
    size, scale = terms.unknowns, 0.1
    expected, absent = np.zeros((size + 1, size + 1)), 0
    for grid in subgrids(terms):
        B = np.eye(len(grid.places))
        for t, term in enumerate(terms.terms):
            factors = [terms.factor(t, mode, level) for mode, level in enumerate(grid.levels)]
            B -= scale * term.coefficient * np.kron(*factors)
        inverse = grid.coefficient * np.linalg.inv(B)
        np.add.at(expected, np.ix_(grid.places, grid.places), inverse)
        absent += int((grid.places == size).sum())
    assert absent
    found, _ = swept(terms, scale, "float64")
    check(found, expected[:size, :size], rng, "float64")
    check(found, expected[:size, :size], rng, "float64", extra=1)


def test_large_grids_are_left_to_dense_products():
    grids = [Subgrid((9, 3), 1, None, True), Subgrid((3, 9), 1, None, True)]
    assert SweptGrids.fits(grids[:0])
    assert not SweptGrids.fits(grids)
    assert SweptGrids.fits([Subgrid((7, 3), 1, None, True)])


@pytest.mark.parametrize("name", ["auto", "combination", "fibre-inverse"])
@pytest.mark.parametrize("problem", ["diffusion-2d", "diffusion-1d", "runaway-collisions"])
def test_another_scale_in_place(rng, name, problem):
    problem = gallery.make(problem, level=3, degree=1)
    A = problem.operator
    M = preconditioners.make(name, A, 0.1, dtype=np.float64)
    x = rng.standard_normal(problem.unknowns)
    for scale in (0.3, 0.01):
        expected = preconditioners.make(name, A, scale, dtype=np.float64).matvec(x)
        M.rescale(scale)
        np.testing.assert_array_equal(M.matvec(x), expected)
        assert M.scale == scale
