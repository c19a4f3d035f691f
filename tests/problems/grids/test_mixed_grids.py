"""Mixed grids: tensor products of sparse grids for groups of axes."""

from itertools import product

import numpy as np
import pytest
from problem_oracle import dense_div, dense_mass, dense_sum, orders

from batchkron.problems import (
    PDE,
    Axis,
    Mixed,
    Separable,
    SparseGrid,
    div,
    load_problem,
    make,
    save_problem,
    time,
)
from batchkron.solvers import evolve

X, V, W = Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0), Axis("w", -2.0, 2.0)


def level_of(cell):
    return int(cell).bit_length()


@pytest.mark.parametrize(
    ("groups", "order"),
    [
        ([["x"], ["v", "w"]], [X, V, W]),
        ([["x", "v"], ["w"]], [X, V, W]),
        ([["v", "w"], ["x"]], [X, V, W]),
        ([["x", "w"], ["v"]], [X, V, W]),
        ([["w"], ["x", "v"]], [W, X, V]),
        ([["x"], ["v"], ["w"]], [X, V, W]),
        ([["v", "x", "w"]], [X, V, W]),
    ],
)
def test_cells_are_those_of_small_level_sum_in_every_group(groups, order):
    level = 3
    grid = Mixed(*groups).make(order, [level] * 3)
    expected = [
        cells
        for cells in product(range(2**level), repeat=3)
        if all(
            sum(level_of(cells[[a.name for a in order].index(name)]) for name in group) <= level
            for group in groups
        )
    ]
    np.testing.assert_array_equal(grid.cells, expected)
    assert grid.kind == "mixed"
    assert grid.levels == (3, 3, 3)
    assert grid.is_downward_closed


def test_levels_belong_to_their_axes():
    grid = Mixed([V, X], W).make([X, V, W], [1, 4, 2])
    assert grid.levels == (1, 4, 2)
    np.testing.assert_array_equal(grid.cell_levels.max(axis=0), [1, 4, 2])
    sparse = SparseGrid.sparse([1, 4]).num_cells
    assert grid.num_cells == sparse * 4
    np.testing.assert_array_equal(
        np.unique(grid.cells[:, :2], axis=0), SparseGrid.sparse([1, 4]).cells
    )


def test_one_group_is_sparse_and_groups_of_one_axis_are_full():
    pde = PDE([X, V], div(X), boundary="periodic", initial=0.0)
    cells = {
        kind: pde.discretize(3, 1, grid).grid.cells
        for kind, grid in [
            ("one group", Mixed(["x", "v"])),
            ("sparse", "sparse"),
            ("groups of one", Mixed("v", X)),
            ("full", "full"),
        ]
    }
    np.testing.assert_array_equal(cells["one group"], cells["sparse"])
    np.testing.assert_array_equal(cells["groups of one"], cells["full"])


KINETIC = PDE(
    [X, V, W],
    [
        -div(X, others={V: lambda v: v}),
        div(V, others={X: lambda x: np.sin(2 * np.pi * x)}),
        div(W, -0.5),
    ],
    boundary="periodic",
    exact=Separable(
        x=lambda s: np.sin(2 * np.pi * s),
        v=lambda s: np.cos(np.pi * s),
        w=lambda s: np.cos(np.pi * s / 2),
        t=time.cos(1.0),
    ),
    sources="from exact",
)


def test_the_operator_is_the_dense_kronecker_sum():
    problem = KINETIC.discretize(2, 1, Mixed([X], [V, W]))
    level, degree = 2, 1
    terms = []
    for sign in (1.0, -1.0):
        terms.append(
            (
                dense_div(X, level, degree, lambda s, sign=sign: -sign * np.ones_like(s)),
                dense_mass(V, level, degree, lambda s, sign=sign: np.maximum(sign * s, 0)),
                None,
            )
        )
        terms.append(
            (
                dense_mass(
                    X,
                    level,
                    degree,
                    lambda s, sign=sign: np.maximum(sign * np.sin(2 * np.pi * s), 0),
                ),
                dense_div(V, level, degree, lambda s, sign=sign: sign * np.ones_like(s)),
                None,
            )
        )
    terms.append((None, None, dense_div(W, level, degree, lambda s: -0.5 * np.ones_like(s))))
    expected = dense_sum(terms, problem.grid, degree)
    # the kink of |sin| at x = 1/2 is an edge of the cells, so that quadrature sees none
    np.testing.assert_allclose(
        problem.operator.to_dense(), expected, atol=1e-10 * np.abs(expected).max()
    )
    assert problem.validate().ok


def test_kinetic_transport_converges_between_sparse_and_full():
    errors, unknowns = {}, {}
    for name, grid in [("sparse", "sparse"), ("mixed", Mixed([X], [V, W])), ("full", "full")]:
        runs = []
        for level in (3, 4):
            problem = KINETIC.discretize(level, 1, grid)
            unknowns[name] = problem.unknowns
            result = evolve(problem, until=0.1, method="rk4", dt=0.01)
            runs.append(problem.relative_error(result.u, 0.1))
        errors[name] = runs
    assert unknowns["sparse"] < unknowns["mixed"] < unknowns["full"]
    assert errors["full"][1] < errors["mixed"][1] < errors["sparse"][1]
    assert orders(errors["mixed"])[0] > 1.5


def test_the_gallery_takes_mixed_grids():
    problem = make("continuity-3d", 3, 1, Mixed("x", ["y", "z"]))
    assert problem.grid.num_cells == 8 * SparseGrid.sparse([3, 3]).num_cells
    best = problem.l2_error(problem.exact_coefficients(0.1), 0.1)
    result = evolve(problem, until=0.1)
    assert best < problem.l2_error(result.u, 0.1) < 2 * best


def test_files_keep_mixed_grids(tmp_path):
    problem = KINETIC.discretize([3, 1, 2], 1, Mixed([X, W], V))
    save_problem(tmp_path / "mixed.h5", problem)
    loaded = load_problem(tmp_path / "mixed.h5")
    assert loaded.grid.kind == "mixed"
    np.testing.assert_array_equal(loaded.grid.cells, problem.grid.cells)
    assert loaded.content_hash == problem.content_hash


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: Mixed(), ValueError, "no group given"),
        (lambda: Mixed([X], []), ValueError, r"groups\[1\] is empty"),
        (lambda: Mixed([X], 3), TypeError, r"groups\[1\] is int; expected axes"),
        (lambda: Mixed([X, 3.0]), TypeError, r"groups\[0\] holds float"),
        (lambda: Mixed([X], [V, "x"]), ValueError, "the axis 'x' occurs 2 times"),
        (
            lambda: KINETIC.discretize(2, 1, Mixed([X], [V])),
            ValueError,
            "name the axes v, x; expected each of the PDE's axes once: x, v, w",
        ),
        (lambda: KINETIC.discretize(2, 1, Mixed(X, V, "q")), ValueError, "name the axes q, v, x"),
        (lambda: KINETIC.discretize(None, 1, Mixed(X, V, W)), TypeError, "level is missing"),
        (lambda: KINETIC.discretize([1, 2], 1, Mixed(X, V, W)), ValueError, "level has 2 entries"),
        (
            lambda: KINETIC.discretize(2, 1, "mixed"),
            ValueError,
            r"Mixed\(\[x\], \[v1, v2\]\) with the groups of axes",
        ),
        (
            lambda: SparseGrid.product(SparseGrid.full([1]), SparseGrid.full([1]), order=[0, 0]),
            ValueError,
            r"order is \[0, 0\]; expected each of 0 … 1 once",
        ),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_mixed_choices_are_values():
    assert Mixed([X], [V, W]) == Mixed("x", ("v", "w"))
    assert hash(Mixed([X], [V, W])) == hash(Mixed("x", ["v", "w"]))
    assert Mixed([X], [V, W]) != Mixed([X, V], [W])
