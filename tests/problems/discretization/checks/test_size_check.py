"""A discretization that cannot fit in memory is refused at once, with the number of unknowns."""

import tracemalloc

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Mixed, Separable, SparseGrid, gallery, laplacian, mass
from batchkron.problems.discretization.checks import size_check
from batchkron.problems.grids.choice import choose_grid, size_of_choice
from batchkron.problems.grids.sparse_grid import count_cells

X, Y, Z = (Axis(name, 0.0, 1.0) for name in "xyz")


@pytest.mark.parametrize(
    "levels", [[0], [5], [3, 3], [4, 2], [0, 3, 2], [3, 2, 4], [2, 2, 2, 2, 2], [1, 0, 5, 3]]
)
def test_cells_are_counted_as_grids_have_them(levels):
    assert count_cells("sparse", levels) == SparseGrid.sparse(levels).num_cells
    assert count_cells("full", levels) == SparseGrid.full(levels).num_cells


@pytest.mark.parametrize("grid", ["sparse", "full", Mixed([X, Z], [Y]), SparseGrid.sparse([2] * 3)])
def test_the_size_of_a_choice_is_that_of_its_grid(grid):
    level = None if isinstance(grid, SparseGrid) else [3, 2, 4]
    chosen = choose_grid(grid, level, (X, Y, Z))
    assert size_of_choice(grid, level, (X, Y, Z)) == (chosen.num_cells, chosen.levels)


def pde(axes):
    return PDE(axes, laplacian(axes), boundary="periodic", initial=Separable(x=np.cos))


@pytest.mark.parametrize(
    ("axes", "level", "grid", "unknowns"),
    [
        ([X], 30, "sparse", 3 * 2**30),
        ([X, Y], 30, "sparse", 9 * (2**30 + 30 * 2**29)),
        ([X, Y], 30, "full", 9 * 2**60),
        ([X, Y, Z], [30, 25, 20], Mixed([X], [Y], [Z]), 27 * 2**75),
    ],
)
def test_the_unknowns_are_said_before_anything_is_made(monkeypatch, axes, level, grid, unknowns):
    monkeypatch.setattr(size_check, "_memory", lambda: 32 << 30)
    problem = pde(axes)
    tracemalloc.start()
    try:
        with pytest.raises(
            MemoryError, match=rf"^{unknowns} unknowns in \d+ cells of levels .*32 Gi"
        ):
            problem.discretize(level, 2, grid)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_bound_is_below_what_a_problem_takes(monkeypatch):
    """It counts grid, state and operators alone, so that no problem that fits is refused."""
    problem = gallery.make("diffusion-1d", level=8, degree=1)
    modes = {id(mode): mode for term in problem.terms for mode in term.modes}
    needed = problem.initial.nbytes + problem.grid.cells.nbytes
    needed += sum(mode.blocks.nbytes for mode in modes.values())
    monkeypatch.setattr(size_check, "_memory", lambda: needed)
    gallery.make("diffusion-1d", level=8, degree=1)
    monkeypatch.setattr(size_check, "_memory", lambda: problem.initial.nbytes)
    with pytest.raises(MemoryError, match="512 unknowns in 256 cells of levels 8, degree 1"):
        gallery.make("diffusion-1d", level=8, degree=1)


def test_a_machine_that_does_not_say_refuses_nothing(monkeypatch):
    monkeypatch.setattr(size_check, "_memory", lambda: None)
    assert pde([X]).discretize(level=3).unknowns == 24


def test_terms_without_derivatives_have_no_operators(monkeypatch):
    constant = PDE([X], mass(X), boundary="periodic", initial=1.0)
    monkeypatch.setattr(size_check, "_memory", lambda: 8 * (16 + 2 * 16))
    assert constant.discretize(level=4, degree=1).unknowns == 32
    with pytest.raises(MemoryError, match="32 unknowns"):
        PDE([X], laplacian(X), boundary="periodic", initial=0.0).discretize(level=4, degree=1)
