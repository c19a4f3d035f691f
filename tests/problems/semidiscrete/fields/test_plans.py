"""Blocks of fields by one call of the core, next to those that NumPy computes step by step."""

import numpy as np
import pytest

from batchkron import NotPhysicalError
from batchkron.backends import backend
from batchkron.backends.protocol import Backend
from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, SparseGrid, div, make
from batchkron.problems.semidiscrete.fields.contraction import MomentComponents

x, v, w = Axis("x", -1.0, 2.0), Axis("v", -2.0, 3.0), Axis("w", -1.0, 2.0)


def positive(problem, rng):
    """A state near the initial one, with noise that falls along the numbers of its elements."""
    scale = 1e-3 * np.abs(problem.initial).max()
    noise = rng.standard_normal(problem.unknowns) * np.exp(-np.arange(problem.unknowns) / 5.0)
    return problem.initial + scale * noise


def blocks_of(terms, u):
    """The blocks that each axis's fields have for a state, matrix by matrix."""
    found = []
    for parts, vector in zip(terms._axes, terms._vectors, strict=True):
        vector.whole[:] = np.nan
        parts.write(0.25, u, vector)
        places = [parts.blocks.local.places(k) for k in range(len(parts.modes))]
        found += [vector.whole[own] for own in places]
    return found


def unplanned(problem, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(type(backend()), "fast_path", Backend.fast_path)
        terms = problem.system._field_terms
    assert all(parts._plan is None for parts in terms._axes)
    return terms


@pytest.mark.parametrize(
    ("name", "level", "degree"),
    [
        ("relaxation-1x1v", 5, 2),
        ("relaxation-1x1v", 4, 0),
        ("relaxation-1x1v", 0, 3),
        ("relaxation-1x2v", 3, 1),
        ("collisional-landau-1x1v", 4, 2),
        ("two-stream", 7, 2),
        ("two-stream", 1, 1),
        ("two-stream", 0, 2),
        ("landau-1x2v", 3, 1),
    ],
)
def test_plans_write_the_blocks_of_numpy(name, level, degree, rng, monkeypatch):
    problem = make(name, level, degree)
    slow = unplanned(make(name, level, degree), monkeypatch)
    fast = problem.system._field_terms
    assert all(parts._plan is not None for parts in fast._axes)
    u = positive(problem, rng)
    for found, expected in zip(blocks_of(fast, u), blocks_of(slow, u), strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-13 * scale)


def test_fields_that_are_given_and_offsets(rng, monkeypatch):
    """Potentials at the ends, a background, and a field that does not depend on the state."""

    def build():
        density = Moment(v)
        field = Poisson(x, density, background=lambda s: 1.0 + s, potential=(0.0, 0.7))
        terms = [
            div(v, -1.0, others={x: field}),
            div(v, -0.5, others={x: (density - 2.0 * field) / (3.0 + density * density)}),
            div(x, 1.0),
        ]
        pde = PDE(
            [x, v], terms, boundary={x: "neumann", v: "no-flux"},
            initial=Separable(v=lambda s: 1.0 + s * s),
        )  # fmt: skip
        return pde.discretize(level=3, degree=2)

    problem = build()
    slow = unplanned(build(), monkeypatch)
    assert all(parts._plan is not None for parts in problem.system._field_terms._axes)
    u = positive(problem, rng)
    pairs = zip(blocks_of(problem.system._field_terms, u), blocks_of(slow, u), strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, atol=1e-13 * np.abs(expected).max())


def test_another_grid_has_another_plan(rng, monkeypatch):
    problem = make("relaxation-1x1v", 4, 1)
    cells = problem.grid.cells
    fewer = SparseGrid.custom(cells[(cells[:, 1] < 8) | (cells[:, 0] < 2)], problem.grid.levels)
    moved = problem.on_grid(fewer)
    u = positive(moved, rng)
    fast = problem.system._field_terms.on_grid(fewer)
    slow = unplanned(moved, monkeypatch)
    for found, expected in zip(blocks_of(fast, u), blocks_of(slow, u), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


def test_powers_are_left_to_numpy():
    density = Moment(v)
    pde = PDE(
        [x, v], [div(v, -1.0, others={x: density**0.5})],
        boundary={x: "periodic", v: "no-flux"}, initial=1.0,
    )  # fmt: skip
    problem = pde.discretize(level=2, degree=1)
    (parts,) = problem.system._field_terms._axes
    assert parts._plan is None
    out = np.full(problem.unknowns, np.nan)
    problem.rhs(0.0, problem.initial, out)
    assert np.isfinite(out).all()


def test_what_is_not_physical_is_said_as_before():
    problem = make("relaxation-1x1v", 3, 2)
    out = np.empty(problem.unknowns)
    with pytest.raises(NotPhysicalError, match=r"Moment\(\{v: 0\}\).* at x = "):
        problem.rhs(0.5, -problem.initial, out)
    u = problem.initial.copy()
    u[0] = np.nan
    problem.rhs(0.5, u, out)
    assert np.isnan(out).any()


def test_states_that_are_not_contiguous(rng):
    problem = make("relaxation-1x1v", 3, 1)
    u = positive(problem, rng)
    terms = problem.system._field_terms
    expected = [own.copy() for own in blocks_of(terms, u)]
    for found, own in zip(blocks_of(terms, np.repeat(u, 2)[::2]), expected, strict=True):
        np.testing.assert_allclose(found, own, atol=1e-12 * np.abs(own).max())


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_components_as_a_sparse_matrix(rng, place, dense, gap):
    """All weights, those of cell 0 alone, or none; on a grid without some cells, too."""
    n, grid = 2, SparseGrid.sparse([3, 2, 2])
    if gap:
        above = grid.cells[:, place] < 4
        grid = SparseGrid.custom(grid.cells[above], grid.levels)
    cells = rng.permutation(1 << grid.levels[place])
    rows = []
    for _ in range(3):
        own = {}
        for k in range(3):
            if k != place:
                weights = rng.standard_normal((1 << grid.levels[k], n))
                weights[1 if dense else slice(1, None)] = 0.0
                own[k] = weights
        rows.append(own)
    rows.append({k: 0.0 * weights for k, weights in rows[0].items()})
    components = MomentComponents(grid, (n,) * 3, place, rows, cells)
    u = rng.standard_normal(grid.num_cells * n**3)
    matrix = components.sparse(1 << 20)
    np.testing.assert_allclose((matrix @ u).reshape(components(u).shape), components(u), atol=1e-13)
    assert components.sparse(3) is None
