"""Axes and levels whose cells floating-point numbers do not resolve are refused by name."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from batchkron.problems import PDE, Axis, Separable, div, grad
from batchkron.problems.discretization.checks.cell_widths import check_cell_widths, finest_resolved
from batchkron.problems.discretization.matrices.mode_operator import ModeOperator
from batchkron.solvers import Adapt, evolve


def heat(axis, level):
    """f_t = L² f_xx, whose solution does not depend on the axis's unit; f_xx where L² overflows."""
    pde = PDE(
        [axis],
        div(axis, axis.length**2 if axis.length < 1e150 else 1.0) @ grad(axis),
        boundary="dirichlet",
        initial=Separable(**{axis.name: lambda s: np.sin(np.pi * (s - axis.lower) / axis.length)}),
    )
    return pde.discretize(level, 2)


@pytest.mark.parametrize("length", [5e-320, 1e-200, 1e-100, 1e100, 1e200, 1e308])
def test_lengths_whose_squares_leave_the_range(length):
    with pytest.raises(ValueError, match=r"axis 'x' has the length .* another unit"):
        heat(Axis("x", 0.0, length), 2)


@pytest.mark.parametrize("length", [2e-60, 1e-20, 1e20, 5e59])
def test_a_unit_of_the_axis_changes_nothing(length):
    """The largest and smallest lengths that are allowed give the answer of the unit interval."""
    plain, scaled = (heat(Axis("x", 0.0, own), 3) for own in (1.0, length))
    u, v = (evolve(p, until=0.05, method="sdirk2", dt=0.01).u for p in (plain, scaled))
    np.testing.assert_allclose(v / np.sqrt(length), u, rtol=0, atol=1e-7)  # solver's tolerance


def test_boxes_whose_volumes_leave_the_range():
    axes = [Axis(name, 0.0, 1e40) for name in "xyz"]
    with pytest.raises(ValueError, match=r"box of x, y, z has the volume 1e\+120"):
        check_cell_widths(axes, (1, 1, 1))
    check_cell_widths(axes[:2], (1, 1))


@pytest.mark.parametrize(
    ("lower", "upper", "finest"),
    [
        (0.0, 1.0, 30),
        (1e9, 1e9 + 1.0, 13),
        (-1e12 - 1.0, -1e12, 3),
        (1e16, 1e16 + 8.0, -1),
        (0.0, 1e16, 30),
    ],
)
def test_cells_have_enough_coordinates(lower, upper, finest):
    axis = Axis("x", lower, upper)
    assert finest_resolved(axis) == finest
    if finest >= 0:
        check_cell_widths([axis], [finest])
    if finest < 30:
        with pytest.raises(ValueError, match=r"'x'.*cells of level .* 1024 numbers in a cell"):
            check_cell_widths([axis], [finest + 1])


def test_levels_of_grids_that_follow_the_solution():
    axis = Axis("x", 1e12, 1e12 + 1.0)
    problem = heat(axis, 2)
    assert problem.adaptive(tol=1e-3).limits == (3,)
    with pytest.raises(ValueError, match="the finest level is 3"):
        evolve(problem, until=0.1, method="sdirk2", dt=0.1, adapt=Adapt(1e-3, max_level=4))
    with pytest.raises(ValueError, match="cells of level 4"):
        heat(axis, 4)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_blocks_that_are_not_finite_are_not_dropped(wrong):
    matrix = np.diag(np.arange(1.0, 9.0))
    matrix[4, 5] = wrong
    for make in (ModeOperator.from_dense, lambda A, n: ModeOperator.from_sparse(csr_array(A), n)):
        with pytest.raises(ValueError, match="NaN or infinite"):
            make(matrix, 2)


def test_coefficients_that_overflow_with_the_width():
    x = Axis("x", 0.0, 1e-50)
    pde = PDE([x], div(x, 1e250) @ grad(x), boundary="periodic", initial=1.0)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="NaN or infinite"):
        pde.discretize(3, 2, method="sdirk2", dt=0.1)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"terms\[0\], div.* at rates"):
        pde.discretize(3, 2)
